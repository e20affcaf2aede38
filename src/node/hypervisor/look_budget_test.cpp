#include "node/hypervisor/look_budget.h"

#include <gtest/gtest.h>

namespace tensor_fusion::node::hypervisor {
namespace {

TEST(LookBudget, lets_a_user_wait_who_has_spent_it_and_nobody_else) {
  LookBudget budget;
  constexpr std::uint64_t kBegin = 1'000'000'000, kSpent = kBegin + Allowance::kNsAPeriod;
  EXPECT_TRUE(budget.has_more(1, kBegin));
  budget.spend(1, kBegin, kBegin + 1);
  EXPECT_TRUE(budget.has_more(1, kBegin + 1));
  budget.spend(1, kBegin + 1, kSpent);
  EXPECT_FALSE(budget.has_more(1, kSpent));
  EXPECT_TRUE(budget.has_more(2, kSpent));
  EXPECT_TRUE(budget.has_more(1, kBegin + Allowance::kPeriodNs));
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
