// Tenants whose claims are forged, or that stop while they are let in: nobody else may pay for it.
#include <gtest/gtest.h>
#include <time.h>

#include <cmath>
#include <random>
#include <vector>

#include "pool/share.h"
#include "pool/share_model_trial.h"

namespace tensor_fusion::pool {
namespace {

using namespace model;

TEST(ShareLiar, a_tenant_that_claims_nothing_pays_for_holding_the_device) {
  Arbiter arbiter;
  arbiter.add(1, weight(.5), 0);
  arbiter.add(2, weight(.5), 0);
  Time held[2] = {0, 0};
  std::uint64_t honest = 0;
  for (Time now = kMs; now < 2 * kSecond; now += 200 * kUs) {
    // The liar is always blocked and never launches; the other works whenever it may.
    arbiter.observe(1, {.wanted_since_ns = kMs, .gap_ns = 0, .blocked = 1}, {}, now);
    std::vector<ShareStretch> said;
    if (arbiter.grant(2).admitted) {
      honest += 200 * kUs;
      said.push_back({now - 200 * kUs, now, 200 * kUs});
    }
    arbiter.observe(2, {.launched_ns = honest, .progress_ns = now, .blocked = 1}, said, now);
    arbiter.decide(now);
    for (ShareKey key : {ShareKey{1}, ShareKey{2}}) held[key - 1] += arbiter.grant(key).admitted ? 200 * kUs : 0;
  }
  EXPECT_GE(held[1], 2 * kSecond * 40 / 100);
}

TEST(ShareLiar, absurd_numbers_cost_only_their_author) {
  std::mt19937_64 random(3);
  Arbiter arbiter;
  arbiter.add(1, weight(.5), 0);
  arbiter.add(2, weight(.5), 0);
  Time held = 0;
  std::uint64_t honest = 0;
  for (Time now = kMs; now < 2 * kSecond; now += 200 * kUs) {
    const auto any = [&] { return random() >> (random() % 64); };
    std::vector<ShareStretch> lies;
    for (std::uint64_t i = random() % 3; i > 0; --i) lies.push_back({any(), any(), any()});
    arbiter.observe(1,
                    {any(), any(), any(), any(), any(), static_cast<std::uint32_t>(any()),
                     static_cast<std::uint32_t>(any()), static_cast<std::uint32_t>(any())},
                    lies, now);
    const bool mine = arbiter.grant(2).admitted;
    if (mine) honest += 200 * kUs;
    arbiter.observe(2, {.launched_ns = honest, .progress_ns = mine ? now + kMs : now, .blocked = 1}, {}, now);
    const Time due = arbiter.decide(now);
    EXPECT_GT(due, now);
    held += mine ? 200 * kUs : 0;
    const ShareAccount account = arbiter.account(2);
    ASSERT_TRUE(std::isfinite(account.virtual_time) && std::isfinite(account.service_ns));
  }
  EXPECT_GE(held, 2 * kSecond * 40 / 100);
}

TEST(ShareLiar, work_behind_the_gate_shows_in_nvml_and_is_charged) {
  Arbiter arbiter;
  arbiter.add(1, cap(.3), 0);
  const double before = arbiter.account(1).service_ns;
  for (int second = 1; second <= 5; ++second) {
    arbiter.observe_utilisation(1, 100, kSecond, static_cast<Time>(second) * kSecond);
  }
  EXPECT_GT(arbiter.account(1).service_ns, before + 0.9e9);
}

TEST(ShareLiar, one_that_forges_its_counters_has_no_more_than_its_share_over_time) {
  Arbiter arbiter;
  arbiter.add(1, cap(.2), kSecond);
  double had = 0;
  for (Time second = 2; second <= 62; ++second) {
    arbiter.observe(1, {.launched_ns = 25 * kMs * second, .blocked = 1}, {}, second * kSecond);
    arbiter.decide(second * kSecond);
    // A whole second while it may, and a pause while it may not: NVML tells both a window late.
    const bool open = arbiter.account(1).cap_credit_ns > 0;
    had += open ? 1 : 0;
    arbiter.observe_utilisation(1, open ? 100 : 0, kSecond, second * kSecond);
  }
  EXPECT_LE(had / 61, .3);
  EXPECT_TRUE(arbiter.account(1).bypass_suspected);
}

TEST(ShareLiar, a_long_kernel_that_tells_when_it_has_ended_is_not_charged_twice) {
  Arbiter arbiter;
  arbiter.add(1, cap(.5), kSecond);
  arbiter.add(2, cap(.5), kSecond);
  arbiter.observe_utilisation(1, 0, kSecond, kSecond);
  for (Time second = 2; second <= 5; ++second) {
    arbiter.decide(second * kSecond);
    arbiter.observe_utilisation(1, 100, kSecond, second * kSecond);
  }
  arbiter.observe(1, {.launched_ns = 4 * kSecond}, {}, 5 * kSecond);
  arbiter.observe_utilisation(1, 0, kSecond, 6 * kSecond);
  EXPECT_NEAR(arbiter.account(1).service_ns, 4e9, 1e9);
}

TEST(ShareLiar, what_is_told_too_late_is_charged_in_full) {
  Arbiter arbiter;
  arbiter.add(1, cap(.3), kSecond);
  arbiter.observe(1, {.launched_ns = 100'000}, {}, kSecond);
  arbiter.decide(2 * kSecond);
  const double before = arbiter.account(1).service_ns;
  const ShareStretch late{kSecond, kSecond + 300 * kMs, 100'000, 0}, beside{kSecond, kSecond + 300 * kMs, 100'000, 0};
  arbiter.observe(1, {.launched_ns = 200'000}, std::vector{late, beside}, 2 * kSecond);
  EXPECT_NEAR(arbiter.account(1).service_ns - before, 300e6, 1e6) << "and what ran beside it, once";
  EXPECT_LT(arbiter.account(1).cap_credit_ns, 0);
}

TEST(ShareLiar, what_is_told_too_late_counts_as_estimated_where_that_can_be) {
  Arbiter arbiter;
  arbiter.add(1, cap(.3), kSecond);
  arbiter.observe(1, {.launched_ns = 100 * kMs}, {}, kSecond);
  arbiter.decide(2 * kSecond);
  arbiter.observe(1, {.launched_ns = 100 * kMs}, std::vector{ShareStretch{kSecond, kSecond + 200 * kMs, 100 * kMs, 0}},
                  2 * kSecond);
  EXPECT_NEAR(arbiter.account(1).service_ns, 100e6, 1e6) << "others may have had turns in it";
}

// ---- floods ----

double cpu_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

// The thread that decides writes the heartbeats of every tenant, too: no claim may keep it for long.
TEST(Flood, of_stretches_that_all_overlap_is_settled_in_a_moment) {
  Arbiter arbiter;
  constexpr Time kBegin = kSecond;
  constexpr std::size_t kTenants = 8, kEach = 512;
  for (ShareKey key = 0; key < kTenants; ++key) arbiter.add(key, weight(.125), kBegin);
  arbiter.decide(kBegin);
  for (ShareKey key = 0; key < kTenants; ++key) {
    std::vector<ShareStretch> stretches;
    for (std::size_t i = 0; i < kEach; ++i) {
      const Time start = kBegin + 1 + (i * kTenants + key) * 3'000;
      stretches.push_back({start, start + 5 * kMs, 1 * kMs, static_cast<std::uint32_t>(i)});
    }
    arbiter.observe(key, {.launched_ns = kEach * kMs}, stretches, kBegin + 20 * kMs);
  }
  const double before = cpu_ms();
  arbiter.decide(kBegin + 20 * kMs);
  EXPECT_LT(cpu_ms() - before, 50);
  double measured = 0;
  for (ShareKey key = 0; key < kTenants; ++key) measured += arbiter.account(key).service_ns;
  EXPECT_NEAR(measured / 1e6, (kTenants * kEach * 3e3 + 5e6) / 1e6, 0.1) << "no more than passed, and no less";
}

}  // namespace
}  // namespace tensor_fusion::pool
