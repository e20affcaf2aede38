#include "guest/limiter/core/family.h"

#include <gtest/gtest.h>

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kUs = 1000;

class FamilyTest : public ::testing::Test {
 protected:
  FamilyTest() {
    g_durations.clear();
    g_families.clear();
  }
  static Duration& row(std::uint64_t function, std::uint64_t blocks, std::uint64_t block = 256) {
    const auto* of = reinterpret_cast<const void*>(function);
    const std::uint64_t shape = blocks * 2048 + block;
    return g_families.duration_of(of, shape, Durations::key_of(of, shape), kFirstGuessNs);
  }
  // A launch of a new grid, measured.
  static void launch(std::uint64_t function, std::uint64_t blocks, std::uint64_t ns, Measured how = Measured::alone) {
    g_families.learn(row(function, blocks), ns, how);
  }
};

TEST_F(FamilyTest, vouches_for_a_new_grid_once_enough_took_what_it_foretold) {
  for (std::uint64_t i = 0; i <= Family::kFirstNeeded; ++i) {
    EXPECT_FALSE(g_families.vouch_for(row(0x10, 1300 + i))) << i;
    launch(0x10, 1024 + 16 * i, (1024 + 16 * i) * 500);
  }
  EXPECT_TRUE(g_families.vouch_for(row(0x10, 1400)));
  EXPECT_NEAR(row(0x10, 1401).estimated_ns.load(), 1401 * 500, 1401);
}

TEST_F(FamilyTest, says_nothing_of_other_functions_blocks_and_sizes) {
  for (std::uint64_t i = 0; i < 32; ++i) launch(0x10, 1024 + i, 100 * kUs);
  ASSERT_TRUE(g_families.vouch_for(row(0x10, 1100)));
  EXPECT_FALSE(g_families.vouch_for(row(0x20, 1100)));
  EXPECT_FALSE(g_families.vouch_for(row(0x10, 1100, 128)));
  EXPECT_FALSE(g_families.vouch_for(row(0x10, 2048)));
  EXPECT_EQ(row(0x10, 2049).estimated_ns.load(), kFirstGuessNs);
}

TEST_F(FamilyTest, needs_twice_as_many_each_time_it_was_far_too_short) {
  std::uint64_t blocks = 1024;
  for (std::uint32_t needed = Family::kFirstNeeded; needed <= 64; needed *= 2) {
    unsigned launched = 0;
    while (!g_families.vouch_for(row(0x10, 1500))) launch(0x10, blocks++, 100 * kUs), ++launched;
    EXPECT_GE(launched, needed);
    EXPECT_LE(launched, 2 * needed + 4);
    launch(0x10, blocks++, 1000 * kUs);
    EXPECT_FALSE(g_families.vouch_for(row(0x10, 1500)));
  }
}

TEST_F(FamilyTest, is_not_misled_by_what_others_did_to_a_launch) {
  for (std::uint64_t i = 0; i < 32; ++i) launch(0x10, 1024 + i, 100 * kUs);
  launch(0x10, 1100, 4000 * kUs, Measured::disturbed);
  EXPECT_TRUE(g_families.vouch_for(row(0x10, 1200)));
  EXPECT_LE(row(0x10, 1201).estimated_ns.load(), 130 * kUs);
  launch(0x10, 1101, 100'000 * kUs, Measured::disturbed);
  EXPECT_FALSE(g_families.vouch_for(row(0x10, 1200))) << "no neighbour makes that of it";
}

TEST_F(FamilyTest, keeps_its_word_through_a_flood_of_new_families) {
  for (std::uint64_t i = 0; i < 32; ++i) launch(0x10, 1024 + i, 100 * kUs);
  for (std::uint64_t function = 1; function < 40'000; ++function) launch(0x100 * function, 1100, 30 * kUs);
  EXPECT_TRUE(g_families.vouch_for(row(0x10, 1200)));
  EXPECT_FALSE(g_families.vouch_for(row(0x100 * 39'999, 1200))) << "which is new";
}

// Another thread finds the key of one that is being made before its numbers are there.
TEST_F(FamilyTest, says_nothing_before_it_has_begun_or_after_it_was_forgotten) {
  Family family{};
  EXPECT_FALSE(family.vouches());
  family.begin(17);
  for (std::uint32_t i = 0; i <= Family::kFirstNeeded; ++i) family.learn(100 * kUs, 1024, Measured::alone);
  ASSERT_TRUE(family.vouches());
  family.forget();
  EXPECT_FALSE(family.vouches());
  EXPECT_EQ(family.foretell_ns(1024), 0);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
