#include "cli/patience.h"

#include <gtest/gtest.h>

namespace tensor_fusion::cli {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

TEST(Patience, counts_from_the_first_answer_that_failed) {
  Patience patience(10 * kSecond);
  patience.reached(kSecond);
  EXPECT_FALSE(patience.is_over(900 * kSecond)) << "in line";
  patience.failed(900 * kSecond);
  EXPECT_FALSE(patience.is_over(910 * kSecond));
  patience.failed(905 * kSecond);
  EXPECT_TRUE(patience.is_over(910 * kSecond + 1)) << "and not from the last";
}

TEST(Patience, counts_anew_after_each_hypervisor_that_stood) {
  Patience patience(10 * kSecond);
  for (std::uint64_t at = kSecond; at < 100 * kSecond; at += 5 * kSecond) {
    patience.reached(at);
    patience.failed(at + 4 * kSecond);
    EXPECT_FALSE(patience.is_over(at + 5 * kSecond));
  }
}

TEST(Patience, ends_with_hypervisors_that_end_as_soon_as_they_are_asked) {
  Patience patience(10 * kSecond);
  std::uint64_t now = kSecond;
  for (; !patience.is_over(now) && now < 100 * kSecond; now += kSecond) {
    patience.reached(now);
    patience.failed(now + kSecond / 10);
  }
  EXPECT_LE(now, 13 * kSecond);
}

}  // namespace
}  // namespace tensor_fusion::cli
