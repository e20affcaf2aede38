#include "node/hypervisor/share_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "pool/share.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

TEST(ShareWindow, is_of_the_last_second_for_who_uses_the_device_all_the_time) {
  ShareWindow window;
  EXPECT_EQ(window.share(), 0);
  for (std::uint64_t s = 1; s <= 5; ++s) window.add(s * kSecondNs, s * kSecondNs / 10 * 3);
  EXPECT_NEAR(window.share(), 0.3, 1e-9);
  window.add(6 * kSecondNs, 5 * kSecondNs / 10 * 3 + kSecondNs / 2);
  EXPECT_NEAR(window.share(), 0.5, 1e-9) << "a new limit shows at once";
  window.add(7 * kSecondNs, 5 * kSecondNs / 10 * 3 + kSecondNs / 2);
  window.add(8 * kSecondNs, 5 * kSecondNs / 10 * 3 + kSecondNs / 2);
  EXPECT_EQ(window.share(), 0) << "and so does an end";
}

// Readings come as closely as somebody asks, and one of them may fall into a turn of 30 ms in each 100.
TEST(ShareWindow, is_over_a_second_where_readings_are_closer_than_turns) {
  ShareWindow window;
  double least = 1, most = 0;
  for (std::uint64_t ms = 10; ms <= 5000; ms += 25) {
    window.add(ms * 1'000'000, (ms / 100 * 30 + std::min<std::uint64_t>(ms % 100, 30)) * 1'000'000);
    if (ms < 2000) continue;
    least = std::min(least, window.share());
    most = std::max(most, window.share());
  }
  EXPECT_NEAR(least, 0.3, 0.03);
  EXPECT_NEAR(most, 0.3, 0.03);
}

// Launches of 1.5 s, 30 % of the time: one each 5 s, accounted when it ends. Every second by itself is 0 % or 100 %.
TEST(ShareWindow, is_over_a_few_turns_for_launches_longer_than_the_time_between_readings) {
  ShareWindow window;
  double least = 1, most = 0;
  for (std::uint64_t s = 1; s <= 60; ++s) {
    window.add(s * kSecondNs, s / 5 * kSecondNs * 3 / 2);
    if (s < 15) continue;
    least = std::min(least, window.share());
    most = std::max(most, window.share());
  }
  EXPECT_NEAR(least, 0.3, 0.01);
  EXPECT_NEAR(most, 0.3, 0.01);
}

TEST(ShareWindow, forgets_turns_that_have_ended) {
  ShareWindow window;
  std::uint64_t s = 1;
  for (; s <= 20; ++s) window.add(s * kSecondNs, s / 4 * kSecondNs * 2);
  EXPECT_NEAR(window.share(), 0.5, 0.01);
  for (; s <= 30; ++s) window.add(s * kSecondNs, 10 * kSecondNs);
  EXPECT_EQ(window.share(), 0);
}

// A program that launches 282 ms of work each 470 ms and whose host is so busy that it tells the end 150 ms late,
// beside one that looks now and then. A launch is charged when it is let in, so a second may have two of them in it or
// three.
TEST(ShareWindow, is_of_what_the_card_did_where_it_is_told_late_of_long_launches) {
  constexpr std::uint64_t kPeriodMs = 470, kRunsMs = 282, kLateMs = 150;
  const auto had_ms = [=](std::uint64_t ms) { return ms / kPeriodMs * kRunsMs + std::min(ms % kPeriodMs, kRunsMs); };
  pool::Arbiter arbiter;
  arbiter.add(1, {0.7, 0.7}, 0);
  ShareWindow window;
  pool::ShareClaim claim;
  std::vector<pool::ShareStretch> told;
  std::minstd_rand random(7);
  double worst = 0;
  std::uint64_t look_ms = 0;
  for (std::uint64_t ms = 10; ms <= 60'000; ++ms) {
    const std::uint64_t now = ms * 1'000'000, at = ms % kPeriodMs, begun = (ms - at) * 1'000'000;
    if (at == 0) {
      claim.launched_ns += kRunsMs * 1'000'000;
      claim.streams = 1;
      claim.open_since_ns = now;
      claim.progress_ns = now + kRunsMs * 1'000'000;
    } else if (at == kRunsMs + kLateMs && claim.streams == 1) {
      told.push_back({begun, begun + kRunsMs * 1'000'000, kRunsMs * 1'000'000});
      claim.streams = 0;
      claim.open_since_ns = pool::kNever;
    }
    arbiter.observe(1, claim, told, now);
    told.clear();
    arbiter.decide(now);
    if (ms < look_ms) continue;
    look_ms = ms + 250 + random() % 800;
    const pool::ShareAccount account = arbiter.account(1);
    window.add(std::min(now, account.placed_until_ns), static_cast<std::uint64_t>(account.placed_ns));
    if (ms < 5000) continue;
    double least = 1, most = 0;
    for (std::uint64_t over_ms = 1000; over_ms <= 2000; over_ms += 100) {
      const double share = static_cast<double>(had_ms(ms) - had_ms(ms - over_ms)) / static_cast<double>(over_ms);
      least = std::min(least, share);
      most = std::max(most, share);
    }
    worst = std::max({worst, least - window.share(), window.share() - most});
  }
  EXPECT_LE(worst, 0.1);
}

TEST(ShareWindow, begins_anew_with_the_account) {
  ShareWindow window;
  window.add(kSecondNs, 100 * kSecondNs);
  window.add(2 * kSecondNs, 0);
  EXPECT_EQ(window.share(), 0);
  window.add(3 * kSecondNs, kSecondNs / 4);
  EXPECT_NEAR(window.share(), 0.25, 1e-9);
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
