#include "guest/limiter/core/stretches.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

struct Told {
  std::uint64_t start_ms, end_ms, estimated_ms;
  bool guessed = false;
  bool operator==(const Told&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Told& told) {
  return out << told.start_ms << "-" << told.end_ms << " of " << told.estimated_ms << (told.guessed ? " guessed" : "");
}

std::vector<Told> told_of(const std::vector<Told>& all) {
  contract::ClaimProcessDevice claim;
  std::memset(static_cast<void*>(&claim), 0, sizeof claim);
  {
    Stretches stretches(claim);
    for (const Told& one : all)
      stretches.add({one.start_ms * kMs, one.end_ms * kMs, one.estimated_ms * kMs, one.guessed});
    EXPECT_TRUE(all.size() > Stretches::kPlaces || claim.marker_count == 0) << "not before the look is over";
  }
  std::vector<Told> result;
  for (std::uint64_t n = 0; n < claim.marker_count; ++n) {
    const contract::Marker& marker = claim.markers[n % contract::kMarkers];
    result.push_back({marker.start_ns / kMs, marker.end_ns / kMs,
                      (marker.estimated_ns & ~contract::kMarkerGuessed) / kMs,
                      (marker.estimated_ns & contract::kMarkerGuessed) != 0});
  }
  return result;
}

TEST(Stretches, tells_what_overlaps_as_one_and_what_does_not_in_order_of_time) {
  EXPECT_EQ(told_of({{5, 7, 2}, {1, 3, 2}, {2, 4, 1, true}}), (std::vector<Told>{{1, 4, 3, true}, {5, 7, 2}}));
  EXPECT_EQ(told_of({{1, 2, 1}, {2, 3, 1}}), (std::vector<Told>{{1, 2, 1}, {2, 3, 1}})) << "of one stream";
  EXPECT_EQ(told_of({{1, 3, 2}, {5, 7, 2}, {2, 6, 4}}), (std::vector<Told>{{1, 7, 8}})) << "one joins two";
}

TEST(Stretches, joins_nothing_to_what_would_be_longer_than_two_stays) {
  EXPECT_EQ(told_of({{1, 15, 14}, {10, 25, 15}}), (std::vector<Told>{{1, 15, 14}, {10, 25, 15}}));
}

TEST(Stretches, tells_at_once_of_all_that_nobody_can_place) {
  EXPECT_EQ(told_of({{0, 0, 3}, {1, 2, 1}, {0, 0, 4}}), (std::vector<Told>{{0, 0, 7}, {1, 2, 1}}));
}

TEST(Stretches, loses_none_of_more_than_it_has_places_for) {
  std::vector<Told> many;
  for (std::uint64_t i = 0; i < 30; ++i) many.push_back({2 * i + 1, 2 * i + 2, 1});
  EXPECT_EQ(told_of(many), many);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
