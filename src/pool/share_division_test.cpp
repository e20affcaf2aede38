#include "pool/share_division.h"

#include <gtest/gtest.h>

#include <vector>

namespace tensor_fusion::pool {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

struct Said {
  std::uint64_t author;
  std::uint32_t context;
  std::uint64_t start, end;  // ms
  double target_ms;
  bool guessed = false;
};

std::vector<double> divided_ms(ShareDivision& division, const std::vector<Said>& all, std::uint64_t until_ms) {
  division.begin(0, until_ms * kMs);
  std::vector<std::size_t> rows;
  for (const Said& said : all)
    rows.push_back(
        division.add(said.author, said.context, said.start * kMs, said.end * kMs, said.target_ms * 1e6, said.guessed));
  division.divide();
  std::vector<double> result;
  for (const std::size_t row : rows)
    result.push_back(row == ShareDivision::kOutside ? -1 : division.given_ns(row) / 1e6);
  return result;
}

TEST(ShareDivision, gives_a_stretch_alone_all_its_time_whatever_it_was_estimated_at) {
  ShareDivision division;
  const auto had = divided_ms(division, {{1, 0, 2, 6, 1.0}}, 10);
  EXPECT_NEAR(had[0], 4, 1e-6);
  EXPECT_TRUE(division.alone(0));
}

TEST(ShareDivision, tells_when_the_device_was_idle) {
  ShareDivision division;
  divided_ms(division, {{1, 0, 2, 6, 4}, {2, 0, 5, 7, 1}}, 10);
  ASSERT_EQ(division.idle().size(), 2u);
  EXPECT_EQ(division.idle()[0].start_ns, 0u);
  EXPECT_EQ(division.idle()[0].end_ns, 2 * kMs);
  EXPECT_EQ(division.idle()[1].start_ns, 7 * kMs);
  EXPECT_EQ(division.idle()[1].end_ns, 10 * kMs);
}

TEST(ShareDivision, leaves_out_what_lies_outside_the_window) {
  ShareDivision division;
  EXPECT_EQ(divided_ms(division, {{1, 0, 12, 14, 2}}, 10)[0], -1);
}

TEST(ShareDivision, believes_estimates_of_short_work) {
  ShareDivision division;
  // A tail of 0.1 ms under the first millisecond of another.
  const auto had = divided_ms(division, {{1, 0, 0, 1, 0.1}, {2, 0, 0, 1, 0.9}}, 1);
  EXPECT_NEAR(had[0], 0.1, 0.05);
  EXPECT_NEAR(had[1], 0.9, 0.05);
}

TEST(ShareDivision, believes_equal_turns_of_long_work_and_not_its_estimates) {
  ShareDivision division;
  const auto had = divided_ms(division, {{1, 0, 0, 180, 60}, {2, 0, 0, 180, 120}}, 180);
  EXPECT_NEAR(had[0], 90, 2);
  EXPECT_NEAR(had[1], 90, 2);
}

TEST(ShareDivision, does_not_believe_a_first_guess) {
  ShareDivision division;
  const auto had = divided_ms(division, {{1, 0, 0, 180, 0.1}, {2, 0, 0, 180, 90}}, 180);
  EXPECT_NEAR(had[0], 90, 5);
}

TEST(ShareDivision, leaves_to_what_nobody_could_estimate_what_the_others_did_not_take) {
  ShareDivision division;
  EXPECT_NEAR(divided_ms(division, {{1, 0, 0, 4, 0.1, true}, {2, 0, 0, 4, 2}}, 4)[0], 2, 0.1);
  EXPECT_NEAR(divided_ms(division, {{1, 0, 0, 2, 0.1, true}, {2, 0, 0, 2, 1.5}}, 2)[0], 0.5, 0.2);
  EXPECT_NEAR(divided_ms(division, {{1, 0, 0, 4, 0.1, true}, {2, 0, 0, 4, 0.2, true}}, 4)[0], 2, 0.1);
}

TEST(ShareDivision, counts_turns_by_context_and_not_by_stretch) {
  ShareDivision division;
  // Four processes of one tenant against one of another; then four streams of one process.
  const auto processes = divided_ms(
      division, {{1, 0, 0, 100, 25}, {1, 1, 0, 100, 25}, {1, 2, 0, 100, 25}, {1, 3, 0, 100, 25}, {2, 0, 0, 100, 25}},
      100);
  EXPECT_NEAR(processes[4], 20, 2);
  const auto streams = divided_ms(
      division, {{1, 0, 0, 100, 25}, {1, 0, 0, 100, 25}, {1, 0, 0, 100, 25}, {1, 0, 0, 100, 25}, {2, 0, 0, 100, 50}},
      100);
  EXPECT_NEAR(streams[4], 50, 2);
}

TEST(ShareDivision, never_gives_more_than_there_is) {
  ShareDivision division;
  const auto had = divided_ms(division, {{1, 0, 0, 4, 9}, {2, 0, 2, 8, 9}, {3, 0, 1, 10, 9}}, 10);
  EXPECT_NEAR(had[0] + had[1] + had[2], 10, 1e-6);
}

TEST(ShareDivision, divides_a_flood_into_equal_turns_without_a_table) {
  ShareDivision division;
  std::vector<Said> all;
  for (std::uint64_t i = 0; i < 4000; ++i) all.push_back({1, 0, i, i + 3, 100});
  all.push_back({2, 0, 1000, 2000, 1});
  all.push_back({3, 0, 5000, 5100, 1});
  const auto had = divided_ms(division, all, 6000);
  EXPECT_LE(division.cells(), ShareDivision::kMostCells);
  double first = 0;
  for (std::size_t i = 0; i < 4000; ++i) first += had[i];
  EXPECT_NEAR(first, 4002 - 500, 0.01);
  EXPECT_NEAR(had[4000], 500, 0.01);
  EXPECT_NEAR(had[4001], 100, 0.01);
  EXPECT_TRUE(division.alone(500));
  EXPECT_FALSE(division.alone(1500));
  EXPECT_FALSE(division.alone(4000));
  EXPECT_TRUE(division.alone(4001));
  ASSERT_EQ(division.idle().size(), 2u);
  EXPECT_EQ(division.idle()[0].start_ns, 4002 * kMs);
  EXPECT_EQ(division.idle()[1].end_ns, 6000 * kMs);
}

}  // namespace
}  // namespace tensor_fusion::pool
