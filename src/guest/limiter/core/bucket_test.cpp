// The bucket on a clock of the test's own.
#include "guest/limiter/core/bucket.h"

#include <gtest/gtest.h>

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

class BucketTest : public ::testing::Test {
 protected:
  BucketTest() {
    granted_.fallback_share = 5000;
    device_.grant = &granted_;
  }
  // Launches stretches of `work` for 2 s of the clock; each then takes `others` more. Returns the device time launched.
  std::uint64_t launched_ns(std::uint64_t work, std::uint64_t others) {
    std::uint64_t now = kMs, launched = 0;
    while (now < 2'000 * kMs) {
      const std::uint64_t wait = bucket_.wait_ns(device_, now, 1);
      if (wait != 0) {
        now += wait;
        continue;
      }
      bucket_.charge(work);
      launched += work;
      now += work + others;
      bucket_.settle(work, 0, others);
    }
    return launched;
  }

  contract::GrantDevice granted_{};
  Device device_{};
  Bucket bucket_;
};

TEST_F(BucketTest, refills_at_the_fallback_share) {
  EXPECT_NEAR(static_cast<double>(launched_ns(kMs / 2, 0)) / 1e6, 1'000, 15);
}

TEST_F(BucketTest, takes_the_turns_of_others_for_no_work_of_its_own) {
  // The slicer: two of ours, two of another.
  EXPECT_NEAR(static_cast<double>(launched_ns(2 * kMs, 2 * kMs)) / 1e6, 1'000, 15);
  // Short stretches, of which every fifth is interrupted.
  std::uint64_t now = 5'000 * kMs;
  const std::uint64_t from = now;
  std::uint64_t launched = 0;
  for (int i = 0; i < 2'000; ++i) {
    while (const std::uint64_t wait = bucket_.wait_ns(device_, now, 1)) now += wait;
    bucket_.charge(400'000);
    launched += 400'000;
    const std::uint64_t others = i % 5 == 0 ? 2 * kMs : 0;
    now += 400'000 + others;
    bucket_.settle(400'000, 0, others);
  }
  EXPECT_NEAR(static_cast<double>(launched) / static_cast<double>(now - from), 0.5, 0.01);
}

TEST_F(BucketTest, charges_what_no_turn_of_others_explains) {
  // Said to take 50 us, and takes 10 ms.
  EXPECT_LE(launched_ns(50'000, 9'950'000) / 50'000 * 10, 1'000u + 60) << "of 2,000 ms at half";
}

TEST_F(BucketTest, charges_all_that_nobody_knew) {
  std::uint64_t now = kMs, launched = 0;
  while (now < 2'000 * kMs) {
    if (const std::uint64_t wait = bucket_.wait_ns(device_, now, 1)) {
      now += wait;
      continue;
    }
    bucket_.charge(10'000);
    now += 5 * kMs;
    launched += 5 * kMs;
    bucket_.settle(10'000, 5 * kMs - 10'000, 0);
  }
  EXPECT_NEAR(static_cast<double>(launched) / 1e6, 1'000, 15);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
