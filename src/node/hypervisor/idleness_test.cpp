#include "node/hypervisor/idleness.h"

#include <gtest/gtest.h>

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

TEST(Idleness, is_over_after_a_while_without_anybody) {
  Idleness idleness(10 * kSecond);
  EXPECT_FALSE(idleness.is_over(false, 1, 1'000 * kSecond)) << "which has only begun";
  EXPECT_FALSE(idleness.is_over(false, 1, 1'010 * kSecond));
  EXPECT_TRUE(idleness.is_over(false, 1, 1'010 * kSecond + 1));
}

TEST(Idleness, counts_anew_from_what_was_last_busy) {
  Idleness idleness(10 * kSecond);
  for (std::uint64_t now = kSecond; now <= 100 * kSecond; now += kSecond) EXPECT_FALSE(idleness.is_over(true, 1, now));
  EXPECT_FALSE(idleness.is_over(false, 1, 110 * kSecond));
  EXPECT_TRUE(idleness.is_over(false, 1, 111 * kSecond));
}

// Whoever starts one asks it something and goes; the `run` that this was for comes a moment later.
TEST(Idleness, is_not_over_while_somebody_comes_and_goes_between_two_looks) {
  Idleness idleness(10 * kSecond);
  std::uint64_t visits = 0;
  for (std::uint64_t now = kSecond; now <= 100 * kSecond; now += 9 * kSecond)
    EXPECT_FALSE(idleness.is_over(false, ++visits, now));
  EXPECT_TRUE(idleness.is_over(false, visits, 120 * kSecond)) << "and then it is";
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
