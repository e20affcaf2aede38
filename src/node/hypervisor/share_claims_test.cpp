// What is read from a claim, over processes that come and go.
#include "node/hypervisor/share_claims.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "node/hypervisor/fake_tenant.h"

namespace tensor_fusion::node::hypervisor {
namespace {

class ShareClaimsTest : public ::testing::Test {
 protected:
  auto read(std::uint64_t now_ns) { return claims.read(*a.claim.page, 0, now_ns, stretches); }

  FakeTenant a;
  ShareClaims claims;
  std::vector<pool::ShareStretch> stretches;
};

TEST_F(ShareClaimsTest, never_decreases_when_a_process_dies_or_its_slot_is_taken_anew) {
  read(kMs);
  a.row().launched_ns = 5 * kMs;
  EXPECT_EQ(read(2 * kMs).launched_ns, 5 * kMs);
  a.claim.page->processes[0].state = contract::kSlotFree;
  EXPECT_EQ(read(3 * kMs).launched_ns, 5 * kMs);
  a.row().launched_ns = 2 * kMs;
  a.claim.page->processes[0].pid = 101;
  a.claim.page->processes[0].state = contract::kSlotLive;
  EXPECT_EQ(read(4 * kMs).launched_ns, 7 * kMs);
}

TEST_F(ShareClaimsTest, count_on_where_a_process_executes_another_program_in_its_place) {
  read(kMs);
  std::uint64_t now = 1000 * kMs, launched = 0;
  for (unsigned program = 0; program < 10; ++program, now += 150 * kMs) {
    a.row().launched_ns = a.row().launches = a.row().marker_count = 0;
    for (unsigned step = 0; step < 10 - program; ++step) {
      a.launch(now, kMs);
      ++a.row().launches;
      a.tell(now += 2 * kMs);
      launched += kMs;
      EXPECT_EQ(read(now).launched_ns, launched);
      EXPECT_EQ(stretches.size(), 1u);
    }
  }
  EXPECT_EQ(claims.shrunk(), 0u);
}

TEST_F(ShareClaimsTest, count_on_where_another_process_has_the_slot_before_it_was_seen_free) {
  read(kMs);
  for (std::uint32_t pid = 100; pid < 110; ++pid) {
    a.claim.page->processes[0].pid = pid;
    a.row().launched_ns = (110 - pid) * kMs;
    read((pid - 98) * kMs);
  }
  EXPECT_EQ(claims.shrunk(), 0u);
}

TEST_F(ShareClaimsTest, believe_no_process_that_executes_another_program_all_the_time) {
  read(kMs);
  for (std::uint64_t now = 1000 * kMs; now < 1100 * kMs; now += 2 * kMs) {
    a.row().launched_ns = a.row().launches = now / kMs % 4;
    read(now);
  }
  EXPECT_GE(claims.shrunk(), 3u);
}

TEST_F(ShareClaimsTest, tell_once_for_a_process_that_has_ended_what_it_had_outstanding) {
  read(kMs);
  a.launch(5 * kMs, 3 * kMs);
  read(6 * kMs);
  a.launch(7 * kMs, 2 * kMs);  // and is not seen again
  a.row().completed_ns = kMs;
  a.claim.page->processes[0].state = contract::kSlotReaping;
  read(90 * kMs);
  EXPECT_TRUE(stretches.empty()) << "its slot is not returned yet";
  a.claim.page->processes[0].state = contract::kSlotFree;
  const pool::ShareClaim claim = read(100 * kMs);
  EXPECT_EQ(claim.launched_ns, 5 * kMs);
  EXPECT_EQ(claim.open_since_ns, pool::kNever);
  ASSERT_EQ(stretches.size(), 1u);
  EXPECT_TRUE(stretches[0].untold);
  EXPECT_EQ(stretches[0].start_ns, 5 * kMs);
  EXPECT_EQ(stretches[0].end_ns, 100 * kMs);
  EXPECT_EQ(stretches[0].estimated_ns, 4 * kMs);
  read(110 * kMs);
  EXPECT_TRUE(stretches.empty());
}

TEST_F(ShareClaimsTest, tell_of_markers_that_were_written_over_what_they_were_estimated_at) {
  read(kMs);
  std::uint64_t now = 2 * kMs;
  for (std::size_t i = 0; i < 2 * contract::kMarkers; ++i, now += 2 * kMs) {
    a.launch(now, kMs);
    a.tell(now + 2 * kMs);
  }
  a.row().completed_ns = 2 * contract::kMarkers * kMs;
  read(now);
  std::uint64_t told = 0, placed = 0;
  for (const pool::ShareStretch& stretch : stretches) {
    told += stretch.estimated_ns;
    placed += stretch.end_ns != 0 ? stretch.estimated_ns : 0;
  }
  EXPECT_EQ(told, 2 * contract::kMarkers * kMs);
  EXPECT_LT(placed, told);
  read(now + kMs);
  EXPECT_TRUE(stretches.empty()) << "once";
}

TEST_F(ShareClaimsTest, tell_what_nobody_had_measured_as_a_guess) {
  read(kMs);
  a.launch(2 * kMs, kMs);
  a.tell(4 * kMs);
  a.row().markers[0].estimated_ns = kMs | contract::kMarkerGuessed;
  read(5 * kMs);
  ASSERT_EQ(stretches.size(), 1u);
  EXPECT_TRUE(stretches[0].guessed);
  EXPECT_EQ(stretches[0].estimated_ns, kMs);
}

TEST_F(ShareClaimsTest, tell_nothing_for_one_that_ended_when_its_work_was_over) {
  read(kMs);
  a.launch(5 * kMs, 3 * kMs);
  read(6 * kMs);
  a.tell(9 * kMs);
  a.claim.page->processes[0].state = contract::kSlotFree;
  read(10 * kMs);
  ASSERT_EQ(stretches.size(), 1u) << "its last marker";
  EXPECT_FALSE(stretches[0].untold);
  EXPECT_EQ(stretches[0].end_ns, 8 * kMs);
  read(11 * kMs);
  EXPECT_TRUE(stretches.empty());
}

TEST_F(ShareClaimsTest, tell_for_one_whose_slot_another_has_already) {
  read(kMs);
  for (std::uint64_t now = 10 * kMs; now <= 100 * kMs; now += 10 * kMs) {
    a.launch(now, kMs);
    read(now + kMs);
    contract::begin_counting(a.row());
    a.running.clear();
    a.claim.page->processes[0].state = now % (20 * kMs) == 0 ? contract::kSlotClaimed : contract::kSlotLive;
    a.claim.page->processes[0].pid = static_cast<std::uint32_t>(now / kMs);
    read(now + 5 * kMs);
    ASSERT_EQ(stretches.size(), 1u) << now;
    EXPECT_TRUE(stretches[0].untold);
    EXPECT_EQ(stretches[0].end_ns, now + 5 * kMs);
    a.claim.page->processes[0].state = contract::kSlotLive;
    read(now + 6 * kMs);
    EXPECT_TRUE(stretches.empty());
  }
  EXPECT_EQ(claims.shrunk(), 0u);
}

TEST_F(ShareClaimsTest, tell_for_one_that_executes_another_program_amid_its_work) {
  read(kMs);
  a.launch(200 * kMs, kMs);
  a.row().launches = 1;
  read(201 * kMs);
  contract::begin_counting(a.row());
  read(300 * kMs);
  ASSERT_EQ(stretches.size(), 1u);
  EXPECT_TRUE(stretches[0].untold);
  EXPECT_EQ(stretches[0].start_ns, 200 * kMs);
}

TEST_F(ShareClaimsTest, tell_for_one_that_came_and_ended_unseen) {
  a.claim.page->processes[0].state = contract::kSlotFree;
  a.launch(kMs, kMs);
  read(10 * kMs);
  EXPECT_TRUE(stretches.empty()) << "before the hypervisor came";
  for (std::uint64_t now = 100 * kMs; now < 200 * kMs; now += 50 * kMs) {
    a.running.clear();
    contract::begin_counting(a.row());
    a.launch(now, 2 * kMs);
    const std::uint64_t launched = read(now + 30 * kMs).launched_ns;
    EXPECT_EQ(launched, now / (50 * kMs) * 2 * kMs - 2 * kMs);
    ASSERT_EQ(stretches.size(), 1u);
    EXPECT_EQ(stretches[0].start_ns, now);
    EXPECT_EQ(stretches[0].end_ns, now + 30 * kMs);
  }
}

TEST_F(ShareClaimsTest, believe_nothing_that_stands_in_slots_nobody_has) {
  read(kMs);
  std::mt19937_64 random(3);
  for (contract::ClaimProcess& process : a.claim.page->processes) {
    if (&process == &a.claim.page->processes[0]) continue;
    auto& row = process.devices[0];
    for (auto* word : {&row.launched_ns, &row.completed_ns, &row.launches, &row.held_ns, &row.marker_count,
                       &row.open_since_ns, &row.progress_ns})
      *word = random();
  }
  a.claim.page->process_high = contract::kMaxProcesses;
  EXPECT_EQ(read(1000 * kMs).launched_ns, 0u);
  EXPECT_TRUE(stretches.empty());
  for (contract::ClaimProcess& process : a.claim.page->processes) process.devices[0].open_since_ns = 500 * kMs;
  EXPECT_EQ(read(2000 * kMs).launched_ns, 0u) << "work that began before it was looked at last would have been seen";
  EXPECT_TRUE(stretches.empty());
}

TEST_F(ShareClaimsTest, what_stood_there_before_is_not_charged_again) {
  a.row().launched_ns = 900 * kMs;
  a.row().marker_count = 20;
  EXPECT_EQ(read(kMs).launched_ns, 0u);
  EXPECT_TRUE(stretches.empty());
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
