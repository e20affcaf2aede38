#include "guest/limiter/core/pace.h"

#include <gtest/gtest.h>

namespace tensor_fusion::guest::limiter {
namespace {

TEST(Pace, lets_one_through_a_second_and_counts_the_others) {
  Pace pace;
  std::uint32_t skipped = 99;
  EXPECT_TRUE(pace.is_due(5'000'000'000, skipped));
  EXPECT_EQ(skipped, 0u);
  EXPECT_FALSE(pace.is_due(5'000'000'001, skipped));
  EXPECT_FALSE(pace.is_due(5'999'999'999, skipped));
  EXPECT_TRUE(pace.is_due(6'000'000'000, skipped));
  EXPECT_EQ(skipped, 2u);
  EXPECT_FALSE(pace.is_due(6'000'000'001, skipped));
  EXPECT_TRUE(pace.is_due(9'000'000'000, skipped));
  EXPECT_EQ(skipped, 1u);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
