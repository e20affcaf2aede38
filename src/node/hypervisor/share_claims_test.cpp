// What is read from a claim, over processes that come and go.
#include "node/hypervisor/share_claims.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "node/hypervisor/fake_tenant.h"

namespace tensor_fusion::node::hypervisor {
namespace {

TEST(ShareClaims, never_decreases_when_a_process_dies_or_its_slot_is_taken_anew) {
  FakeTenant a;
  ShareClaims claims;
  std::vector<pool::ShareStretch> stretches;
  claims.read(*a.claim.page, 0, kMs, stretches);
  a.row().launched_ns = 5 * kMs;
  EXPECT_EQ(claims.read(*a.claim.page, 0, 2 * kMs, stretches).launched_ns, 5 * kMs);
  a.claim.page->processes[0].state = contract::kSlotFree;
  EXPECT_EQ(claims.read(*a.claim.page, 0, 3 * kMs, stretches).launched_ns, 5 * kMs);
  a.row().launched_ns = 2 * kMs;
  a.claim.page->processes[0].pid = 101;
  a.claim.page->processes[0].state = contract::kSlotLive;
  EXPECT_EQ(claims.read(*a.claim.page, 0, 4 * kMs, stretches).launched_ns, 7 * kMs);
}

TEST(ShareClaims, count_on_where_a_process_executes_another_program_in_its_place) {
  FakeTenant a;
  ShareClaims claims;
  std::vector<pool::ShareStretch> stretches;
  claims.read(*a.claim.page, 0, kMs, stretches);
  std::uint64_t now = 1000 * kMs, launched = 0;
  for (unsigned program = 0; program < 10; ++program, now += 150 * kMs) {
    a.row().launched_ns = a.row().launches = a.row().marker_count = 0;
    for (unsigned step = 0; step < 10 - program; ++step) {
      a.launch(now, kMs);
      ++a.row().launches;
      a.tell(now += 2 * kMs);
      launched += kMs;
      EXPECT_EQ(claims.read(*a.claim.page, 0, now, stretches).launched_ns, launched);
      EXPECT_EQ(stretches.size(), 1u);
    }
  }
  EXPECT_EQ(claims.shrunk(), 0u);
}

TEST(ShareClaims, count_on_where_another_process_has_the_slot_before_it_was_seen_free) {
  FakeTenant a;
  ShareClaims claims;
  std::vector<pool::ShareStretch> stretches;
  claims.read(*a.claim.page, 0, kMs, stretches);
  for (std::uint32_t pid = 100; pid < 110; ++pid) {
    a.claim.page->processes[0].pid = pid;
    a.row().launched_ns = (110 - pid) * kMs;
    claims.read(*a.claim.page, 0, (pid - 98) * kMs, stretches);
  }
  EXPECT_EQ(claims.shrunk(), 0u);
}

TEST(ShareClaims, believe_no_process_that_executes_another_program_all_the_time) {
  FakeTenant a;
  ShareClaims claims;
  std::vector<pool::ShareStretch> stretches;
  claims.read(*a.claim.page, 0, kMs, stretches);
  for (std::uint64_t now = 1000 * kMs; now < 1100 * kMs; now += 2 * kMs) {
    a.row().launched_ns = a.row().launches = now / kMs % 4;
    claims.read(*a.claim.page, 0, now, stretches);
  }
  EXPECT_GE(claims.shrunk(), 3u);
}

TEST(ShareClaims, what_stood_there_before_is_not_charged_again) {
  FakeTenant a;
  a.row().launched_ns = 900 * kMs;
  a.row().marker_count = 20;
  ShareClaims claims;
  std::vector<pool::ShareStretch> stretches;
  EXPECT_EQ(claims.read(*a.claim.page, 0, kMs, stretches).launched_ns, 0u);
  EXPECT_TRUE(stretches.empty());
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
