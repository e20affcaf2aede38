#include "node/hypervisor/used_share.h"

#include <gtest/gtest.h>

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kMs = 1'000'000, kSecond = 1'000 * kMs;

ShareUsage account(std::uint64_t charged_ns, std::uint64_t placed_ns, std::uint64_t placed_until_ns) {
  ShareUsage usage;
  usage.service_ns = charged_ns;
  usage.placed_ns = placed_ns;
  usage.placed_until_ns = placed_until_ns;
  return usage;
}

TEST(UsedShare, goes_by_the_line_of_time_where_that_is_known_soon) {
  UsedShare used;
  for (std::uint64_t now = kSecond; now <= 10 * kSecond; now += 250 * kMs)
    used.add(now, account(now, now * 3 / 10, now - 100 * kMs));  // all is charged in advance
  EXPECT_NEAR(used.share(), 0.3, 0.02);
}

TEST(UsedShare, goes_by_what_is_charged_while_a_launch_of_seconds_is_not_yet_told) {
  UsedShare used;
  for (std::uint64_t now = kSecond; now <= 10 * kSecond; now += 250 * kMs)
    used.add(now, account(now / 2, now / 2, now));
  for (std::uint64_t now = 10 * kSecond; now <= 13 * kSecond; now += 250 * kMs)
    used.add(now, account(5 * kSecond, 5 * kSecond, 10 * kSecond));  // a neighbour's
  EXPECT_NEAR(used.share(), 0, 0.02);
  const std::uint64_t until = 13 * kSecond + 2 * UsedShare::kLastsNs;
  for (std::uint64_t now = 13 * kSecond; now <= until; now += 250 * kMs) used.add(now, account(now, now / 4, now));
  EXPECT_NEAR(used.share(), 0.25, 0.02) << "and by the line again when it has long been known";
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
