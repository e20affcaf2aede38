// The memory limit under fire: 64 processes of 4 threads race at it by every path, then a million random operations
// must leave the ledger equal to the card's own account, then processes are killed and their memory must come back.
// Exit 1 when a bar is missed, which is named.
//   memory_bench [OPERATIONS | --card]     --card: on this machine's own card, real or simulated, what needs no account
//   of
//                                          its own: right answers under fire, and that everything comes back of the
//                                          killed
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <thread>

#include "guest/limiter/testing/bench.h"
#include "tests/limiter/machine.h"

using namespace tensor_fusion;
using namespace tensor_fusion::tests;
using guest::limiter::testing::Job;
using guest::limiter::testing::Outcome;
using guest::limiter::testing::TestSlice;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// Starts `count` tenants, waits until each has done its work, and leaves them alive with their books open.
std::vector<std::unique_ptr<Talk>> work(LimitedMachine& machine, int count, std::size_t operations, std::size_t& wrong,
                                        std::size_t& refused) {
  std::vector<std::unique_ptr<Talk>> tenants;
  for (int i = 0; i < count; ++i)
    tenants.push_back(
        std::make_unique<Talk>(machine.tenant({"churn", std::to_string(operations), "4", std::to_string(i)})));
  for (auto& tenant : tenants) tenant->line();  // ready
  for (auto& tenant : tenants) tenant->go();
  for (auto& tenant : tenants) {
    std::string line;
    do line = tenant->line();
    while (!line.empty() && line.find("taken=") == std::string::npos);
    if (line.empty()) {
      ++wrong;
      continue;
    }
    wrong += std::strtoull(line.c_str() + line.find("wrong=") + 6, nullptr, 10);
    refused += std::strtoull(line.c_str() + line.find("refused=") + 8, nullptr, 10);
  }
  return tenants;
}

void end(std::vector<std::unique_ptr<Talk>>& tenants) {
  for (auto& tenant : tenants) tenant->go();
  tenants.clear();
}

bool holds(const char* bar, double figure, double most) {
  if (figure <= most) return true;
  std::fprintf(stderr, "missed: %s is %.0f, may be %.0f\n", bar, figure, most);
  return false;
}

Job tenant(const guest::limiter::testing::BenchDriver& driver, const TestSlice* slice,
           std::vector<std::string> arguments) {
  Job job = guest::limiter::testing::load(driver, slice, {});
  job.command = {guest::limiter::testing::kBuild + "/programs/limiter_tenant"};
  job.command.insert(job.command.end(), arguments.begin(), arguments.end());
  return job;
}

int on_own_card() {
  constexpr std::uint64_t kLimit = 8192 * kMiB;  // of each of nine processes the contexts, too
  constexpr int kRounds = 3, kVictims = 8;
  const guest::limiter::testing::BenchDriver driver(guest::limiter::testing::BenchDriver::Which::card);
  if (driver.uuid().empty()) {
    std::printf("no driver here shows a card\n");
    return guest::limiter::testing::kCannotRun;
  }
  const Outcome plain = run(tenant(driver, nullptr, {"race", "2000", "4", "1"}));
  if (plain.status != 0 || plain.value("wrong") != "0") {
    std::printf("without the limiter the driver here gives other answers already: %s\n", plain.out.c_str());
    return guest::limiter::testing::kCannotRun;
  }
  TestSlice slice({{driver.uuid(), kLimit, 0, true, 10000}});
  slice.start_hypervisor();
  std::size_t wrong = 0;
  std::uint64_t left = 0;
  for (int round = 0; round < kRounds; ++round) {
    {
      std::vector<std::unique_ptr<Talk>> victims;
      for (int i = 0; i < kVictims; ++i)
        victims.push_back(
            std::make_unique<Talk>(tenant(driver, &slice, {"churn", "10000000", "4", std::to_string(i)})));
      Talk survivor(tenant(driver, &slice, {"churn", "2000", "4", "99"}));
      // Only when all have their contexts: a slice filled by then has no room for another's.
      const auto await_ready = [&](Talk& talk) {
        if (const std::string line = talk.line(); line != "ready") {
          std::printf("one of them does not start: %s\n", line.c_str());
          ++wrong;
        }
      };
      for (auto& victim : victims) await_ready(*victim);
      await_ready(survivor);
      for (auto& victim : victims) victim->go();
      survivor.go();
      std::string line, said;
      do {
        line = survivor.line();
        said += line + "; ";
      } while (!line.empty() && line.find("taken=") == std::string::npos);
      if (line.find("wrong=0") == std::string::npos) {
        std::printf("the one that is not killed: %s\n", said.c_str());
        ++wrong;
      }
      for (auto& victim : victims) victim->kill();
      survivor.go();
    }
    const auto start = std::chrono::steady_clock::now();
    do left = slice.claim().devices[0].used_bytes.load();
    while (left != 0 && std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  }
  if (slice.claim().process_high.load() == 0) {
    std::fprintf(stderr, "the limiter was not in the measured programs\n");
    return 1;
  }
  std::printf(
      "bench memory: wrong_answers=%zu left_bytes=%llu slots_free_ms=%llu (not overshoot and drift, which only the "
      "simulated card's own account tells)\n",
      wrong, static_cast<unsigned long long>(left), static_cast<unsigned long long>(slice.reap_ms()));
  const bool held[] = {
      holds("wrong answers", static_cast<double>(wrong), 0),
      holds("bytes left of the killed", static_cast<double>(left), 0),
      holds("slots_free_ms", static_cast<double>(slice.reap_ms()), 1000),
  };
  return std::all_of(std::begin(held), std::end(held), [](bool one) { return one; }) ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && std::strcmp(arguments[1], "--card") == 0) return on_own_card();
  const std::size_t operations = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1'000'000;
  std::size_t wrong = 0;
  std::size_t refused = 0;

  LimitedMachine machine(0, "1xh200");
  contract::GrantDevice& grant = machine.slice().grant().devices[0];
  const std::uint64_t limit = 64 * machine.overhead() + 1024 * kMiB;
  grant.flags = contract::kComputeUnlimited;
  grant.memory_limit_bytes = limit;
  const std::uint64_t before = machine.memory().used_bytes;
  machine.reset_peak();
  auto tenants = work(machine, 64, 300, wrong, refused);
  const std::uint64_t peak = machine.memory().peak_bytes - before;
  const std::uint64_t overshoot = peak > limit ? peak - limit : 0;
  std::printf("race: 64 processes x 4 threads, peak %.1f MiB of %.1f MiB, %zu refused, %zu wrong answers\n",
              static_cast<double>(peak) / kMiB, static_cast<double>(limit) / kMiB, refused, wrong);
  end(tenants);

  tenants = work(machine, 4, operations / 16, wrong, refused);
  const std::uint64_t ledger = machine.ledger();
  const std::uint64_t real = machine.tenants_real_bytes();
  std::printf("drift: ledger %llu, card %llu bytes after %zu operations\n", static_cast<unsigned long long>(ledger),
              static_cast<unsigned long long>(real), operations);
  end(tenants);

  // Kill many in the middle of work, again and again, while one that is not killed works on among them.
  double reclaim_ms = 0;
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<Talk>> victims;
    Talk survivor(machine.tenant({"churn", "2000", "4", "99"}));
    survivor.line();
    survivor.go();
    for (int i = 0; i < 16; ++i)
      victims.push_back(std::make_unique<Talk>(machine.tenant({"race", "100000", "4", std::to_string(i)})));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // how long they work, not a wait for anything
    const auto start = std::chrono::steady_clock::now();
    for (auto& victim : victims) victim->kill();
    const std::string line = survivor.line();
    if (line.find("wrong=0") == std::string::npos) ++wrong;
    const auto returned = [&] {
      return machine.ledger() == machine.overhead() && machine.tenants_real_bytes() == machine.overhead();
    };
    while (!returned() && std::chrono::steady_clock::now() - start < std::chrono::seconds(10))
      std::this_thread::yield();
    if (!returned()) ++wrong;
    // The survivor's own work is part of this time: an upper bound.
    reclaim_ms = std::max(reclaim_ms,
                          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    survivor.go();
  }
  std::printf(
      "storm: 5 times 16 killed, all returned and a survivor done within %.0f ms (slots within %llu ms of a death)\n",
      reclaim_ms, static_cast<unsigned long long>(machine.slice().reap_ms()));
  std::printf("wrong answers: %zu\n", wrong);
  std::printf("bench memory: overshoot_bytes=%llu drift_bytes=%lld reclaim_ms=%.0f\n",
              static_cast<unsigned long long>(overshoot), static_cast<long long>(ledger) - static_cast<long long>(real),
              reclaim_ms);
  const bool held[] = {
      holds("wrong answers", static_cast<double>(wrong), 0),
      holds("overshoot_bytes", static_cast<double>(overshoot), 0),
      holds("drift_bytes", std::abs(static_cast<double>(ledger) - static_cast<double>(real)), 0),
      holds("reclaim_ms", reclaim_ms, 1000),
  };
  return std::all_of(std::begin(held), std::end(held), [](bool one) { return one; }) ? 0 : 1;
}
