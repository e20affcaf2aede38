// The thread that decides writes the heartbeats of every tenant, too: no claim may keep it for long.
#include <gtest/gtest.h>
#include <time.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pool/share.h"
#include "pool/share_model_trial.h"

namespace tensor_fusion::pool {
namespace {

using namespace model;

double cpu_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

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

// As many as one claim's page has places for, none of which is one with another.
TEST(Flood, of_stretches_that_cannot_be_joined_is_read_in_a_moment) {
  Arbiter arbiter;
  constexpr Time kBegin = kSecond;
  constexpr std::size_t kMarkers = 512 * 32;
  arbiter.add(1, weight(.5), kBegin);
  arbiter.add(2, weight(.5), kBegin);
  arbiter.decide(kBegin);
  std::vector<ShareStretch> stretches;
  for (std::size_t i = 0; i < kMarkers; ++i) {
    const Time start = kBegin + 1 + (kMarkers - i) * kUs;
    stretches.push_back({start, start + kMs, kUs, static_cast<std::uint32_t>(i)});
  }
  const double before = cpu_ms();
  for (Time reads = 1; reads <= 5; ++reads)
    arbiter.observe(1, {.launched_ns = kMarkers * kUs}, stretches, kBegin + (20 + reads) * kMs);
  EXPECT_LT((cpu_ms() - before) / 5, 20);
}

}  // namespace
}  // namespace tensor_fusion::pool
