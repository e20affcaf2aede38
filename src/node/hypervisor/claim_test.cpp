// Claims as they may be read at any instant, and reclaiming from them.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>

#include "node/hypervisor/claim_view.h"
#include "node/hypervisor/lock_watch.h"
#include "node/hypervisor/reclaim.h"
#include "node/hypervisor/reconcile.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using contract::ClaimPage;

constexpr std::uint64_t kMemory = 80ull << 30;

struct Page {
  Page() : bytes(static_cast<char*>(std::aligned_alloc(4096, sizeof(ClaimPage)))) {
    std::fill(bytes, bytes + sizeof(ClaimPage), '\0');
    page().process_high.store(4);
  }
  ~Page() { std::free(bytes); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  ClaimPage& page() { return *reinterpret_cast<ClaimPage*>(bytes); }
  void hold(std::uint32_t slot, std::uint64_t ledger) {
    page().processes[slot].state.store(contract::kSlotLive);
    page().processes[slot].devices[0].ledger_bytes.store(ledger);
    page().devices[0].used_bytes.fetch_add(ledger);
  }
  char* bytes;
};

bool nobody(std::uint32_t, std::uint32_t) { return false; }

TEST(Claim, counts_no_more_than_the_device_has) {
  Page claim;
  claim.hold(0, ~0ull);
  claim.hold(1, ~0ull);
  claim.page().process_high.store(~0u);
  claim.page().devices[0].peak_bytes.store(~0ull);
  const DeviceView view = device_view(claim.page(), slot_count(claim.page(), 0), 0, kMemory);
  EXPECT_EQ(view.ledger_bytes, kMemory);
  EXPECT_EQ(view.peak_bytes, kMemory);
  EXPECT_EQ(slot_count(claim.page(), 0), contract::kMaxProcesses);
}

TEST(Claim, is_safe_to_read_whatever_stands_in_it) {
  Page claim;
  std::mt19937_64 random(3);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < sizeof(ClaimPage); i += 8) {
      const std::uint64_t word = random();
      std::copy_n(reinterpret_cast<const char*>(&word), 8, claim.bytes + i);
    }
    for (std::uint32_t device = 0; device < contract::kMaxDevices; ++device) {
      EXPECT_LE(device_view(claim.page(), slot_count(claim.page(), 0), device, kMemory).ledger_bytes, kMemory);
    }
    EXPECT_LE(taken_slots(claim.page(), slot_count(claim.page(), 0)).size(), contract::kMaxProcesses);
    for (std::uint32_t slot = 0; slot < 20; ++slot)
      reap_slot(claim.page(), slot_count(claim.page(), 0), slot, {},
                [](std::uint32_t, std::uint32_t holder) { return holder % 2 == 0; });
    for (std::uint32_t device = 0; device < contract::kMaxDevices; ++device) {
      repair_lock(claim.page(), slot_count(claim.page(), 0), device, [](std::uint32_t, std::uint32_t) { return true; });
      rebalance(claim.page(), slot_count(claim.page(), 0), device);
    }
  }
}

TEST(Reclaim, gives_back_a_dead_slot_and_keeps_the_others) {
  Page claim;
  claim.hold(0, 100);
  claim.hold(1, 30);
  EXPECT_TRUE(reap_slot(claim.page(), slot_count(claim.page(), 0), 1, {}, nobody));
  EXPECT_EQ(claim.page().devices[0].used_bytes.load(), 100u);
  EXPECT_EQ(claim.page().processes[1].state.load(), contract::kSlotFree);
  EXPECT_EQ(claim.page().devices[0].lock.load(), 0u);
}

TEST(Reclaim, leaves_the_slot_to_the_process_that_has_taken_it_since) {
  Page claim;
  claim.hold(1, 30);
  claim.page().processes[1].pid.store(8);
  claim.page().processes[1].start_ticks.store(80);
  EXPECT_TRUE(reap_slot(claim.page(), slot_count(claim.page(), 0), 1, {7, 70}, nobody));
  EXPECT_EQ(claim.page().processes[1].state.load(), contract::kSlotLive);
  EXPECT_EQ(claim.page().devices[0].used_bytes.load(), 30u);
  EXPECT_TRUE(reap_slot(claim.page(), slot_count(claim.page(), 0), 1, {8, 80}, nobody));
  EXPECT_EQ(claim.page().processes[1].state.load(), contract::kSlotFree);
  EXPECT_EQ(claim.page().processes[1].pid.load(), 0u);
  EXPECT_EQ(claim.page().processes[1].start_ticks.load(), 0u);
}

TEST(Reclaim, waits_for_no_lock) {
  Page claim;
  claim.hold(0, 100);
  claim.hold(1, 30);
  claim.page().devices[0].lock.store(1);  // slot 0, alive
  EXPECT_FALSE(reap_slot(claim.page(), slot_count(claim.page(), 0), 1, {}, nobody));
  EXPECT_EQ(claim.page().devices[0].used_bytes.load(), 130u);
  claim.page().devices[0].lock.store(0);
  EXPECT_TRUE(reap_slot(claim.page(), slot_count(claim.page(), 0), 1, {}, nobody)) << "the same step again";
  EXPECT_EQ(claim.page().devices[0].used_bytes.load(), 100u);
}

TEST(Reclaim, takes_the_lock_of_a_dead_holder_with_its_waiters) {
  Page claim;
  claim.hold(2, 50);
  claim.page().devices[0].lock.store(3 | contract::kLockWaiters);
  claim.page().devices[0].used_bytes.store(75);  // it died in the middle
  EXPECT_FALSE(repair_lock(claim.page(), slot_count(claim.page(), 0), 0, nobody));
  EXPECT_TRUE(repair_lock(claim.page(), slot_count(claim.page(), 0), 0,
                          [](std::uint32_t, std::uint32_t holder) { return holder == 3; }));
  EXPECT_EQ(claim.page().devices[0].lock.load(), 0u);
  EXPECT_EQ(claim.page().devices[0].used_bytes.load(), 50u);
  claim.page().devices[0].lock.store(contract::kHypervisorHolder);
  EXPECT_TRUE(repair_lock(claim.page(), slot_count(claim.page(), 0), 0, nobody)) << "left by a hypervisor that died";
}

TEST(Reclaim, takes_a_lock_that_a_dead_sweeper_left_when_patience_is_over) {  // its slots stayed taken for ever
  constexpr std::uint64_t kMs = 1'000'000, kPatience = LockWatch::kPatienceNs;
  Page claim;
  LockWatch watch;
  claim.hold(1, 30);
  claim.page().processes[1].state.store(contract::kSlotReaping);
  claim.page().devices[0].lock.store(contract::kSweeperHolder | contract::kLockWaiters);
  std::uint64_t now = 1000 * kMs;
  const auto gone = [&](std::uint32_t device, std::uint32_t) { return watch.abandoned(claim.page(), device, now); };
  const auto reap = [&] { return reap_slot(claim.page(), slot_count(claim.page(), 0), 1, {}, gone); };
  EXPECT_FALSE(reap()) << "never looked at";
  watch.look(claim.page(), now);
  now += 2 * kPatience;
  EXPECT_FALSE(reap()) << "one look is none";
  for (const std::uint32_t name : {contract::kSweeperHolder, contract::kHypervisorHolder + 5}) {
    claim.page().devices[0].lock.store(0);
    watch.look(claim.page(), now);  // it was let go meanwhile: the time begins anew
    claim.page().devices[0].lock.store(name);
    const std::uint64_t end = now + kPatience;
    for (; now < end; now += 100 * kMs) {
      watch.look(claim.page(), now);
      EXPECT_FALSE(reap());
    }
    watch.look(claim.page(), now);
  }
  now += 100 * kMs;
  watch.look(claim.page(), now);
  EXPECT_TRUE(reap());
  EXPECT_EQ(claim.page().processes[1].state.load(), contract::kSlotFree);
  EXPECT_EQ(claim.page().devices[0].lock.load(), 0u);
  EXPECT_EQ(claim.page().devices[0].used_bytes.load(), 0u);
  claim.page().devices[0].lock.store(2);  // the name of a slot: it lives or it does not
  for (int i = 0; i < 100; ++i, now += 100 * kMs) watch.look(claim.page(), now);
  EXPECT_FALSE(watch.abandoned(claim.page(), 0, now));
}

TEST(Reclaim, sets_a_wrong_total_right_only_while_nobody_changes_it) {
  Page claim;
  claim.hold(0, 100);
  EXPECT_FALSE(rebalance(claim.page(), slot_count(claim.page(), 0), 0));
  claim.page().devices[0].used_bytes.store(0);
  claim.page().devices[0].lock.store(1);
  EXPECT_FALSE(rebalance(claim.page(), slot_count(claim.page(), 0), 0));
  claim.page().devices[0].lock.store(0);
  EXPECT_TRUE(rebalance(claim.page(), slot_count(claim.page(), 0), 0));
  EXPECT_EQ(claim.page().devices[0].used_bytes.load(), 100u);
}

TEST(Reconcile, trusts_a_rise_at_rest_at_once_and_in_motion_the_second_time) {
  EXPECT_EQ(unledgered({100, 100, 150}, 0).bytes, 50u);
  EXPECT_EQ(unledgered({100, 120, 150}, 0).bytes, 0u) << "it moved: once is no proof";
  EXPECT_EQ(unledgered({100, 120, 150}, 30).bytes, 30u);
  EXPECT_EQ(unledgered({100, 120, 150}, 90).bytes, 30u) << "downwards at once";
  EXPECT_EQ(unledgered({100, 100, 150, false}, 0).bytes, 0u) << "up and down again in between is no rest";
  EXPECT_EQ(unledgered({200, 100, 150}, 90).bytes, 0u) << "the larger ledger counts: it was freed in between";
}

TEST(Reconcile, learns_what_a_context_costs_from_a_process_with_one) {
  EXPECT_EQ(overhead_from({10, 10, 300}, 1, kMemory), 290u);
  EXPECT_EQ(overhead_from({10, 10, 300}, 2, kMemory), 0u);
  EXPECT_EQ(overhead_from({10, 20, 300}, 1, kMemory), 0u);
  EXPECT_EQ(overhead_from({10, 10, 300, false}, 1, kMemory), 0u);
  EXPECT_EQ(overhead_from({0, 0, kMemory / 2}, 1, kMemory), 0u) << "that is no context";
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
