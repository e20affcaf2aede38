#include "guest/limiter/core/ledger.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "guest/limiter/core/fault.h"
#include "guest/limiter/core/os.h"
#include "guest/limiter/core/process.h"

namespace tensor_fusion::guest::limiter {
namespace {

template <class Page>
struct Shared {
  Shared()
      : page(static_cast<Page*>(
            mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Shared() { munmap(page, sizeof(Page)); }
  Page* page;
};

// Two pages in memory shared with children, and one device.
class LedgerPages : public ::testing::Test {
 protected:
  LedgerPages() {
    grant.page->devices[0].memory_limit_bytes = 1000;
    slot = take();
  }
  std::uint32_t take() {
    return take_slot(*claim.page, os::process_id(), process_status(os::process_id()).start_ticks, os::pid_namespace());
  }
  Ledger ledger_of(std::uint32_t number) { return Ledger(claim.page, number, os::pid_namespace()); }
  Device device_of(std::uint32_t number) {
    Device device{};
    device.grant = &grant.page->devices[0];
    device.grant_page = grant.page;
    device.claim = &claim.page->devices[0];
    device.mine = &claim.page->processes[number].devices[0];
    return device;
  }
  std::uint64_t used() const { return claim.page->devices[0].used_bytes.load(); }

  // Runs in a child with a slot of its own; true when the child died by SIGKILL.
  template <class Body>
  bool child_is_killed(Body body) {
    const pid_t child = fork();
    if (child == 0) {
      body(take());
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }

  Shared<contract::GrantPage> grant;
  Shared<contract::ClaimPage> claim;
  std::uint32_t slot = 0;
};

TEST_F(LedgerPages, reserves_up_to_the_last_byte_and_not_one_more) {
  Ledger ledger = ledger_of(slot);
  const Device device = device_of(slot);
  EXPECT_TRUE(ledger.reserve(device, 999));
  EXPECT_TRUE(ledger.reserve(device, 1));
  EXPECT_FALSE(ledger.reserve(device, 1));
  EXPECT_EQ(used(), 1000u);
  EXPECT_EQ(claim.page->devices[0].refused.load(), 0u) << "who turns a program away counts it";
  Ledger::count_refusal(device);
  EXPECT_EQ(claim.page->devices[0].refused.load(), 1u);
  ledger.release(device, 1000);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(device.mine->ledger_bytes.load(), 0u);
}

TEST_F(LedgerPages, counts_what_the_driver_took_beyond_the_ledger) {
  grant.page->devices[0].unledgered_bytes = 900;
  Ledger ledger = ledger_of(slot);
  EXPECT_FALSE(ledger.reserve(device_of(slot), 101));
  EXPECT_TRUE(ledger.reserve(device_of(slot), 100));
  EXPECT_EQ(ledger.view(device_of(slot)).used, 1000u);
}

// A usage below zero once showed as 17 million gigabytes and a false refusal.
TEST_F(LedgerPages, what_a_program_held_is_free_for_the_one_that_it_executes) {
  const std::uint32_t other = take();
  claim.page->processes[other].start_ticks = 1;  // somebody else
  EXPECT_TRUE(ledger_of(other).reserve(device_of(other), 100));
  EXPECT_TRUE(ledger_of(slot).reserve(device_of(slot), 900));
  claim.page->devices[0].lock = slot + 1;  // by a thread of it that ended with the exec
  const auto take_over = [&](std::uint64_t start_ticks) {
    return Ledger::take_over_slot(*claim.page, os::process_id(), start_ticks, os::pid_namespace());
  };
  const std::uint64_t start_ticks = process_status(os::process_id()).start_ticks;
  EXPECT_EQ(take_over(start_ticks + 1), contract::kMaxProcesses);
  EXPECT_EQ(take_over(start_ticks), slot);
  EXPECT_EQ(claim.page->devices[0].lock.load(), 0u);
  EXPECT_EQ(used(), 100u);
  EXPECT_TRUE(ledger_of(slot).reserve(device_of(slot), 900));
}

TEST_F(LedgerPages, usage_never_goes_below_zero) {
  Ledger ledger = ledger_of(slot);
  const Device device = device_of(slot);
  ASSERT_TRUE(ledger.reserve(device, 10));
  ledger.release(device, 4000);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(device.mine->ledger_bytes.load(), 0u);
  EXPECT_TRUE(ledger.reserve(device, 1000));
}

TEST_F(LedgerPages, a_page_forged_to_zero_gives_a_process_no_more_than_its_limit) {
  Ledger ledger = ledger_of(slot);
  const Device device = device_of(slot);
  ASSERT_TRUE(ledger.reserve(device, 900));
  claim.page->devices[0].used_bytes = 0;
  claim.page->processes[slot].devices[0].ledger_bytes = 0;
  EXPECT_FALSE(ledger.reserve(device, 200));
  EXPECT_EQ(used(), 900u) << "and the page is put right";
  EXPECT_TRUE(ledger.reserve(device, 100));
  ledger.release(device, 1000);
  EXPECT_EQ(used(), 0u);
  EXPECT_TRUE(ledger.reserve(device, 1000));
}

TEST_F(LedgerPages, a_page_overwritten_with_anything_is_told_again_what_a_process_holds) {
  Ledger ledger = ledger_of(slot);
  ledger.set_ask([](const Device&) { return false; }, claim.page->processes[slot].pid);
  const Device device = device_of(slot);
  ASSERT_TRUE(ledger.reserve(device, 600));
  EXPECT_FALSE(ledger.put_right(device));
  EXPECT_TRUE(ledger.keep_slot());
  for (const int letter : {0, 0xa5}) {
    std::memset(static_cast<void*>(claim.page), letter, sizeof *claim.page);
    EXPECT_EQ(ledger.keep_slot(), letter == 0) << "what is nobody's is taken again";
    if (letter != 0) claim.page->processes[slot].state = contract::kSlotFree;  // as a hypervisor leaves it
    EXPECT_TRUE(ledger.keep_slot());
    EXPECT_EQ(device.mine->launched_ns.load(), 0u) << "nothing that was not launched is charged";
    EXPECT_TRUE(ledger.put_right(device) || letter == 0);
    EXPECT_FALSE(ledger.put_right(device));
    EXPECT_EQ(device.mine->ledger_bytes.load(), 600u);
    EXPECT_TRUE(ledger.reserve(device, 400));
    EXPECT_FALSE(ledger.reserve(device, 1));
    ledger.release(device, 400);
    EXPECT_EQ(used(), 600u);
  }
  claim.page->processes[slot].pid.fetch_add(1);
  EXPECT_FALSE(ledger.keep_slot()) << "another's is left alone";
}

TEST_F(LedgerPages, a_request_near_the_largest_number_is_refused) {
  Ledger ledger = ledger_of(slot);
  ASSERT_TRUE(ledger.reserve(device_of(slot), 512));
  EXPECT_FALSE(ledger.reserve(device_of(slot), ~std::uint64_t{0}));
  EXPECT_FALSE(ledger.reserve(device_of(slot), ~std::uint64_t{0} - 511));
  EXPECT_EQ(used(), 512u);
  grant.page->devices[0].flags = contract::kMemoryUnlimited;  // nor does it turn the sum over where nothing is limited
  EXPECT_FALSE(ledger.reserve(device_of(slot), ~std::uint64_t{0} - 511));
  EXPECT_EQ(used(), 512u);
  EXPECT_EQ(claim.page->processes[slot].devices[0].ledger_bytes.load(), 512u);
}

TEST_F(LedgerPages, a_limit_lowered_below_use_refuses_and_shows_nothing_left) {
  Ledger ledger = ledger_of(slot);
  ASSERT_TRUE(ledger.reserve(device_of(slot), 800));
  grant.page->devices[0].memory_limit_bytes = 500;
  EXPECT_FALSE(ledger.reserve(device_of(slot), 1));
  const Ledger::View view = ledger.view(device_of(slot));
  EXPECT_EQ(view.limit, 500u);
  EXPECT_EQ(view.used, 500u);
  grant.page->devices[0].memory_limit_bytes = 801;  // a changed limit holds at once, in a running process
  EXPECT_TRUE(ledger.reserve(device_of(slot), 1));
}

TEST_F(LedgerPages, an_unlimited_device_counts_and_never_refuses) {
  grant.page->devices[0].flags = contract::kMemoryUnlimited;
  EXPECT_TRUE(ledger_of(slot).reserve(device_of(slot), 5000));
  EXPECT_EQ(used(), 5000u);
}

TEST_F(LedgerPages, processes_that_race_never_pass_the_limit) {
  constexpr int kChildren = 4;
  std::vector<pid_t> children;
  for (int child = 0; child < kChildren; ++child) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    const std::uint32_t mine = take();
    Ledger ledger = ledger_of(mine);
    const Device device = device_of(mine);
    std::mt19937 random(static_cast<unsigned>(child));
    std::uint64_t held = 0;
    for (int i = 0; i < 20000; ++i) {
      const std::uint64_t bytes = random() % 200;
      if (random() % 2 == 0) {
        if (ledger.reserve(device, bytes)) held += bytes;
      } else if (held > 0) {
        const std::uint64_t back = bytes < held ? bytes : held;
        ledger.release(device, back);
        held -= back;
      }
    }
    ledger.release(device, held);
    _exit(device.mine->ledger_bytes.load() == 0 ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_LE(claim.page->devices[0].peak_bytes.load(), 1000u);
  EXPECT_GT(claim.page->devices[0].peak_bytes.load(), 900u);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(claim.page->devices[0].repairs.load(), 0u);
}

class DeathInside : public LedgerPages, public ::testing::WithParamInterface<FaultPoint> {};
INSTANTIATE_TEST_SUITE_P(FaultPoints, DeathInside,
                         ::testing::Values(FaultPoint::lock_held, FaultPoint::ledger_half, FaultPoint::ledger_done),
                         [](const auto& point) {
                           return point.param == FaultPoint::lock_held     ? "lock_held"
                                  : point.param == FaultPoint::ledger_half ? "ledger_half"
                                                                           : "ledger_done";
                         });

// One killed with the lock in its hand once stopped all others for minutes.
TEST_P(DeathInside, of_the_lock_blocks_nobody_and_loses_no_byte) {
  Ledger ledger = ledger_of(slot);
  const Device device = device_of(slot);
  ASSERT_TRUE(ledger.reserve(device, 100));
  ASSERT_TRUE(child_is_killed([&](std::uint32_t mine) {
    ledger_of(mine).reserve(device_of(mine), 50);
    arm_faults(std::to_string(static_cast<unsigned>(GetParam())).c_str());
    ledger_of(mine).reserve(device_of(mine), 200);
  }));
  const std::uint64_t start = os::monotonic_ns();
  EXPECT_TRUE(ledger.reserve(device, 1));
  EXPECT_LT(os::monotonic_ns() - start, 1'000'000'000u);
  EXPECT_EQ(claim.page->devices[0].repairs.load(), 1u);
  // What the dead held still counts until its slot is returned; then exactly the living's remains.
  EXPECT_GE(used(), 101u);
  EXPECT_TRUE(ledger.sweep());
  EXPECT_EQ(used(), 101u);
  EXPECT_EQ(claim.page->processes[1].state.load(), contract::kSlotFree);
  EXPECT_EQ(claim.page->processes[1].pid.load(), 0u) << "who takes it next would be known by the dead one's name";
  EXPECT_EQ(claim.page->processes[1].start_ticks.load(), 0u);
}

TEST_F(LedgerPages, one_that_died_in_its_first_lock_is_returned_with_the_lock) {
  ASSERT_TRUE(child_is_killed([&](std::uint32_t mine) {
    arm_faults("1");
    ledger_of(mine).reserve(device_of(mine), 70);
  }));
  EXPECT_EQ(claim.page->devices[0].lock.load(), 2u);
  EXPECT_TRUE(ledger_of(slot).sweep());
  EXPECT_EQ(claim.page->devices[0].lock.load(), 0u) << "till patience ends, all others would wait for nobody";
  EXPECT_TRUE(ledger_of(slot).reserve(device_of(slot), 1000));
}

TEST_F(LedgerPages, a_sweeper_that_dies_halfway_is_finished_by_the_next) {
  ASSERT_TRUE(child_is_killed([&](std::uint32_t mine) {
    ledger_of(mine).reserve(device_of(mine), 70);
    kill(getpid(), SIGKILL);
  }));
  ASSERT_TRUE(child_is_killed([&](std::uint32_t mine) {
    arm_faults("7");
    ledger_of(mine).sweep();
  }));
  EXPECT_EQ(claim.page->processes[1].state.load(), contract::kSlotReaping);
  EXPECT_EQ(used(), 70u);
  EXPECT_TRUE(ledger_of(slot).sweep());
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(claim.page->processes[1].state.load(), contract::kSlotFree);
}

TEST_F(LedgerPages, a_forged_holder_is_passed_in_bounded_time) {
  Ledger ledger = ledger_of(slot);
  for (const std::uint32_t forged : {0x7fffffffu, 0x80000000u | 700u, 0xffffffffu}) {
    claim.page->devices[0].lock = forged;
    const std::uint64_t start = os::monotonic_ns();
    EXPECT_TRUE(ledger.reserve(device_of(slot), 1));
    EXPECT_LT(os::monotonic_ns() - start, 1'000'000'000u);
  }
  // Even one that names a living process, this one itself.
  claim.page->devices[0].lock = slot + 1;
  EXPECT_TRUE(ledger.reserve(device_of(slot), 1));
}

TEST_F(LedgerPages, a_lock_held_by_one_without_a_slot_is_lost_to_patience_alone) {
  for (const std::uint32_t holder : {contract::kSweeperHolder, contract::kHypervisorHolder}) {
    claim.page->devices[0].lock = holder;
    const std::uint64_t start = os::monotonic_ns();
    EXPECT_TRUE(ledger_of(slot).reserve(device_of(slot), 1));
    EXPECT_GT(os::monotonic_ns() - start, 1'500'000'000u);
  }
}

TEST_F(LedgerPages, a_live_slot_without_a_name_is_being_given_to_another_and_not_reaped) {
  claim.page->processes[1].state = contract::kSlotLive;
  claim.page->processes[1].pid_namespace = os::pid_namespace();
  claim.page->process_high = 2;
  EXPECT_FALSE(ledger_of(slot).sweep());
  EXPECT_EQ(claim.page->processes[1].state.load(), contract::kSlotLive);
}

TEST_F(LedgerPages, a_slot_reaped_while_it_was_being_filled_is_not_taken_by_two) {
  // One fills slot 1 again and again; the other takes it away whenever it sees that, as if it were reaped and given on.
  std::atomic<std::uint32_t>& state = claim.page->processes[1].state;
  std::atomic<bool> stolen{false};
  std::atomic<bool> done{false};
  std::thread thief([&] {
    while (!done.load()) {
      std::uint32_t seen = contract::kSlotClaimed;
      if (stolen.load() || !state.compare_exchange_strong(seen, contract::kSlotReaping)) continue;
      stolen = true;
      state = contract::kSlotLive;
    }
  });
  int shared = 0;
  int thefts = 0;
  const std::uint64_t end = os::monotonic_ns() + 60'000'000'000;
  while (thefts < 20 && os::monotonic_ns() < end) {
    const std::uint32_t mine = take_slot(*claim.page, 7, 7, 7);
    shared += mine == 1 && stolen.load() ? 1 : 0;
    claim.page->processes[mine].state = contract::kSlotFree;
    if (!stolen.load()) continue;
    ++thefts;
    state = contract::kSlotFree;
    stolen = false;
  }
  done = true;
  thief.join();
  EXPECT_EQ(thefts, 20);
  EXPECT_EQ(shared, 0);
}

TEST_F(LedgerPages, forged_numbers_neither_crash_nor_raise_the_limit) {
  Ledger ledger = ledger_of(slot);
  std::mt19937_64 random(1);
  auto* words = reinterpret_cast<std::uint64_t*>(claim.page);
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 50; ++i) {
      const std::size_t at = 16 + random() % ((4096 + 3 * sizeof(contract::ClaimProcess)) / 8 - 16);
      words[at] = random() >> (random() % 64);
    }
    claim.page->devices[0].lock = 0;
    ledger.reserve(device_of(slot), random() % 2000);
    ledger.release(device_of(slot), random() % 2000);
    ledger.sweep();
    EXPECT_LE(ledger.view(device_of(slot)).used, 1000u);
  }
  EXPECT_EQ(grant.page->devices[0].memory_limit_bytes.load(), 1000u);
}

TEST_F(LedgerPages, a_slot_is_taken_once_and_its_old_numbers_are_gone) {
  claim.page->processes[1].devices[3].ledger_bytes = 77;
  claim.page->processes[1].devices[3].launches = 5;
  EXPECT_EQ(take(), 1u);
  EXPECT_EQ(take(), 2u);
  EXPECT_EQ(claim.page->process_high.load(), 3u);
  EXPECT_EQ(claim.page->processes[1].devices[3].ledger_bytes.load(), 0u);
  EXPECT_EQ(claim.page->processes[1].devices[3].launches.load(), 0u);
  for (std::size_t more = 3; more < contract::kMaxProcesses; ++more) EXPECT_EQ(take(), more);
  EXPECT_EQ(take(), contract::kMaxProcesses);
}

TEST(Rounding, goes_up_to_the_drivers_unit) {
  EXPECT_EQ(rounded(1), 512u);
  EXPECT_EQ(rounded(512), 512u);
  EXPECT_EQ(rounded(513), 1024u);
  EXPECT_EQ(rounded(~std::uint64_t{0}), ~std::uint64_t{0});
}

TEST(ProcessStat, tells_the_dead_from_the_living) {
  const auto parse = [](const char* text) {
    return parse_stat(text, static_cast<long>(std::char_traits<char>::length(text)));
  };
  const ProcessStatus running = parse("7 (a (b) c) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 12345 1 2 3");
  EXPECT_TRUE(running.found);
  EXPECT_FALSE(running.dead);
  EXPECT_EQ(running.start_ticks, 12345u);
  EXPECT_TRUE(parse("7 (x) Z 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1").dead);
  // The first thread has ended, others run on.
  EXPECT_FALSE(parse("7 (x) Z 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 2 0 12345 1").dead);
  EXPECT_FALSE(parse("").found);
  EXPECT_FALSE(parse("7 (x").found);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
