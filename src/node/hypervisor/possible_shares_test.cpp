#include "node/hypervisor/possible_shares.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tensor_fusion::node::hypervisor {
namespace {

struct Case {
  const char* what;
  std::vector<ClaimedUse> slices;
  std::vector<double> shown;
};

TEST(PossibleShares, of_a_card_are_never_more_than_it) {
  const Case cases[] = {
      {"nobody", {}, {}},
      {"accounts that fit stand, whatever the driver says", {{3000, 9000}, {7000, 0}}, {3000, 7000}},
      {"a little too much is only taken from all", {{5150, 1000}, {5150, 9000}}, {5000, 5000}},
      {"the driver's word, for whom it says less", {{6000, 6000}, {9000, 3000}}, {6000, 3000}},
      {"never more than the account, however much the driver says", {{1000, 9000}, {10000, 9000}}, {1000, 9000}},
      {"no word of the driver is no idleness", {{8000, 0}, {8000, 0}}, {5000, 5000}},
      {"... beside one of whom it says something", {{9000, 3000}, {9000, 0}}, {2500, 7500}},
      {"the driver's words together too much", {{9000, 8000}, {9000, 8000}}, {5000, 5000}},
      {"one account of more than the card", {{20000, 0}}, {10000}},
  };
  for (const Case& each : cases) {
    const std::vector<double> shown = possible_shares(each.slices);
    ASSERT_EQ(shown.size(), each.shown.size()) << each.what;
    for (std::size_t i = 0; i < shown.size(); ++i) EXPECT_NEAR(shown[i], each.shown[i], 0.01) << each.what;
    EXPECT_LE(std::accumulate(shown.begin(), shown.end(), 0.0), 10000.01) << each.what;
  }
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
