// The ledger against the simulated card: what a tenant is charged is what it really took, by every path, and over the
// limit every path answers the one code that programs know how to handle.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "guest/limiter/core/fault.h"
#include "tests/limiter/machine.h"

namespace tensor_fusion::tests {
namespace {

using guest::limiter::FaultPoint;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kGiB = 1 << 30;

std::uint64_t number_after(const std::string& line, const std::string& key) {
  const std::size_t at = line.find(key + "=");
  return at == std::string::npos ? ~std::uint64_t{0} : std::strtoull(line.c_str() + at + key.size() + 1, nullptr, 10);
}

// Reported: usage lower than real with pools and the asynchronous allocator, frees not credited, context memory not
// booked, arrays counted wrongly or not at all, custom pools unbooked.
TEST(EveryPath, is_charged_exactly_what_it_took_and_credited_when_given_back) {
  LimitedMachine machine(40 * kGiB);
  Talk tenant(machine.tenant({"steps"}));
  int states = 0;
  for (std::string line; !(line = tenant.line()).empty(); ++states) {
    EXPECT_EQ(number_after(line, "code"), 0u) << line;
    EXPECT_EQ(machine.ledger(), machine.tenants_real_bytes()) << line;
    if (line.find("_given") != std::string::npos || line.find("start") != std::string::npos) {
      EXPECT_EQ(machine.ledger(), machine.overhead()) << line;
    }
    tenant.go();
  }
  EXPECT_EQ(states, 1 + 13 * 3 * 2);
}

// Reported: an unknown error code that no framework recognises as out of memory.
TEST(EveryPath, answers_out_of_memory_and_nothing_else_over_the_limit) {
  LimitedMachine machine(0);
  machine.slice().grant().devices[0].flags = contract::kComputeUnlimited;
  machine.slice().grant().devices[0].memory_limit_bytes = machine.overhead() + 256 * kMiB;
  const auto outcome = guest::limiter::testing::run(machine.tenant({"huge", std::to_string(kGiB)}));
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  for (const char* path : {"alloc", "pitch", "managed", "async", "async_own", "own_pool", "physical", "mapped", "array",
                           "line", "mipmap", "graph", "captured"})
    EXPECT_EQ(outcome.value(path), "2") << path;
  EXPECT_LE(machine.memory().peak_bytes, machine.memory().capacity_bytes);
}

TEST(Contexts, take_all_they_held_with_them) {
  LimitedMachine machine(40 * kGiB);
  Talk tenant(machine.tenant({"contexts"}));
  int states = 0;
  for (std::string line; !(line = tenant.line()).empty(); ++states) {
    EXPECT_EQ(number_after(line, "code"), 0u) << line;
    EXPECT_EQ(machine.ledger(), machine.tenants_real_bytes()) << line;
    if (line.find("destroyed") != std::string::npos) {
      EXPECT_EQ(machine.ledger(), machine.overhead());
    }
    tenant.go();
  }
  EXPECT_EQ(states, 9);
}

TEST(Race, of_processes_and_threads_ends_with_nothing_owed) {
  LimitedMachine machine(0);
  const std::uint64_t limit = 4 * machine.overhead() + 300 * kMiB;
  machine.slice().grant().devices[0].flags = contract::kComputeUnlimited;
  machine.slice().grant().devices[0].memory_limit_bytes = limit;
  const std::uint64_t before = machine.memory().used_bytes;
  machine.reset_peak();
  {
    std::vector<std::unique_ptr<Talk>> tenants;
    for (int i = 0; i < 4; ++i)
      tenants.push_back(std::make_unique<Talk>(machine.tenant({"churn", "150", "3", std::to_string(i)})));
    for (auto& tenant : tenants) EXPECT_EQ(tenant->line(), "ready");
    for (auto& tenant : tenants) tenant->go();
    for (auto& tenant : tenants) {
      const std::string line = tenant->line();
      EXPECT_EQ(number_after(line, "wrong"), 0u) << line;
      EXPECT_GT(number_after(line, "taken"), 0u) << line;
    }
    EXPECT_EQ(machine.ledger(), machine.tenants_real_bytes());
    EXPECT_EQ(machine.ledger(), 4 * machine.overhead());
    for (auto& tenant : tenants) tenant->go();
  }
  EXPECT_LE(machine.memory().peak_bytes - before, limit);
}

// Where a process may end at the worst instant: every place that the limiter names, so that a new one is tried, too.
class KilledAt : public ::testing::TestWithParam<FaultPoint> {
 protected:
  LimitedMachine machine{0};

  KilledAt() {
    machine.slice().grant().devices[0].flags = contract::kComputeUnlimited;
    machine.slice().grant().devices[0].memory_limit_bytes = 4 * machine.overhead() + 300 * kMiB;
  }
  // A process that is killed when it comes there for the `time`-th time; false when it never does.
  bool dies(std::vector<std::string> work, int time) {
    auto job = machine.tenant(std::move(work));
    job.environment.push_back(std::string(guest::limiter::kFaultVariable) + "=" +
                              std::to_string(static_cast<std::uint32_t>(GetParam())) + ":" + std::to_string(time));
    const auto outcome = guest::limiter::testing::run(job);
    return outcome.status == 1009;
  }
  // The dead stay as they are till a living process needs their room.
  void collect_no_dead() { restart_hypervisor(false); }
  void collect_dead() { restart_hypervisor(true); }
  void others_go_on(int time) {
    const auto begin = std::chrono::steady_clock::now();
    const auto after = guest::limiter::testing::run(machine.tenant({"race", "50", "2", "2"}));
    EXPECT_EQ(after.status, 0) << "after one that died there the " << time << ". time";
    EXPECT_EQ(after.value("wrong"), "0");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
  }

 private:
  void restart_hypervisor(bool reaps) {
    machine.slice().stop_hypervisor();
    machine.slice().start_hypervisor([this](std::uint32_t card) { return machine.tenants_real_bytes(card); }, reaps);
  }
};

std::string name_of(FaultPoint point) {
  switch (point) {  // without a default: the compiler asks for the name of a new one
    case FaultPoint::none:
      return "nowhere";
    case FaultPoint::lock_held:
      return "lock_held";
    case FaultPoint::ledger_half:
      return "ledger_half";
    case FaultPoint::ledger_done:
      return "ledger_done";
    case FaultPoint::reserved:
      return "reserved";
    case FaultPoint::allocated:
      return "allocated";
    case FaultPoint::slot_claimed:
      return "slot_claimed";
    case FaultPoint::slot_reaping:
      return "slot_reaping";
  }
  return "unknown";
}

std::vector<FaultPoint> every_point() {
  std::vector<FaultPoint> all;
  for (std::uint32_t point = 1; point <= static_cast<std::uint32_t>(FaultPoint::last); ++point)
    all.push_back(static_cast<FaultPoint>(point));
  return all;
}
INSTANTIATE_TEST_SUITE_P(EveryPoint, KilledAt, ::testing::ValuesIn(every_point()),
                         [](const auto& tried) { return name_of(tried.param); });

// Reported: killed processes kept their memory booked, or left a lock that stopped all others for minutes.
TEST_P(KilledAt, tenants_are_returned_at_once_and_block_nobody) {
  if (GetParam() == FaultPoint::slot_reaping) {
    // Whoever finds no room looks for the dead: one is there, and who collects it dies of it.
    collect_no_dead();
    {
      Talk dead(machine.tenant({"churn", "20", "1", "3"}));
      ASSERT_EQ(dead.line(), "ready");
      dead.kill();
    }
    ASSERT_TRUE(dies({"huge", std::to_string(kGiB)}, 1)) << "no process came there";
    others_go_on(1);
    collect_dead();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (machine.ledger() != 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(machine.ledger(), 0u);
    for (const auto& process : machine.slice().claim().processes)
      ASSERT_EQ(process.state.load(), contract::kSlotFree) << "the next one finishes what the dead one had begun";
    return;
  }
  // A process takes one slot, and comes everywhere else again and again: at its start, and amid its work.
  const std::vector<int> times = GetParam() == FaultPoint::slot_claimed ? std::vector{1} : std::vector{1, 2, 3, 20, 50};
  for (const int time : times) {
    ASSERT_TRUE(dies({"race", "200", "2", "1"}, time)) << "no process came there a " << time << ". time";
    others_go_on(time);
  }
  EXPECT_LE(machine.slice().reap_ms(), 1000u);
}

bool dies_in_lock(LimitedMachine& machine, int time) {
  auto job = machine.tenant({"race", "30", "1", "1"});
  job.environment.push_back(std::string(guest::limiter::kFaultVariable) + "=1:" + std::to_string(time));
  return guest::limiter::testing::run(job).status == 1009;
}

// The lock is taken at many places: a short life is tried with an end inside each of its first times.
TEST(Killed, tenants_leave_nothing_behind_whichever_lock_they_held) {
  LimitedMachine machine(2 * kGiB);
  int time = 1;
  for (; time <= 40 && dies_in_lock(machine, time); ++time) {
    Talk after(machine.tenant({"churn", "10", "1", "2"}));
    ASSERT_EQ(after.line(), "ready") << "after one that died in the lock the " << time << ". time";
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (machine.ledger() != machine.overhead() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    ASSERT_EQ(machine.ledger(), machine.overhead()) << "after one that died in the lock the " << time << ". time";
    after.go();
    after.line();
    after.go();
  }
  EXPECT_GT(time, 10);
}

}  // namespace
}  // namespace tensor_fusion::tests
