#include "sim/device/memory.h"

#include <algorithm>
#include <bit>
#include <string>

#include "sim/device/kill_point.h"
#include "sim/device/memory_domain.h"
#include "sim/device/reaper.h"
#include "sim/device/robust_lock.h"

namespace tensor_fusion::sim::device {
namespace {

template <typename Visit>
void for_each_process(State& state, Visit visit) {
  for (unsigned word = 0; word < kMaxProcesses / 64; ++word) {
    for (std::uint64_t bits = state.process_live[word].load(std::memory_order_acquire); bits != 0; bits &= bits - 1) {
      visit(word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits)));
    }
  }
}

// What each process holds is the truth; the sum is a cache that a dead holder of the lock may have left wrong.
void recount(State& state, std::uint32_t domain) {
  std::uint64_t sum = 0;
  for_each_process(
      state, [&](std::uint32_t slot) { sum += state.processes[slot].used[domain].load(std::memory_order_relaxed); });
  state.domains[domain].used.store(sum, std::memory_order_release);
}

class DomainLock {
 public:
  DomainLock(State& state, std::uint32_t domain) : lock_(state.domains[domain].lock, [&] { recount(state, domain); }) {}

 private:
  RobustLock lock_;
};

}  // namespace

std::expected<void, Error> reserve_memory(Machine& machine, std::uint32_t domain, std::uint64_t bytes) {
  State& state = machine.state();
  DomainRecord& record = state.domains[domain];
  auto& mine = state.processes[machine.process_slot()].used[domain];
  DomainLock lock(state, domain);
  const std::uint64_t used = record.used.load(std::memory_order_relaxed);
  const std::uint64_t capacity = record.capacity.load(std::memory_order_relaxed);
  if (bytes > capacity || used > capacity - bytes) {
    record.refused.fetch_add(1, std::memory_order_relaxed);
    return std::unexpected(
        Error{Errc::out_of_memory, "out of device memory: " + std::to_string(bytes) + " bytes asked, " +
                                       std::to_string(capacity - std::min(used, capacity)) + " free"});
  }
  kill_point();
  mine.store(mine.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  kill_point();
  record.used.store(used + bytes, std::memory_order_relaxed);
  kill_point();
  if (used + bytes > record.peak.load(std::memory_order_relaxed))
    record.peak.store(used + bytes, std::memory_order_relaxed);
  return {};
}

void take_over_memory(Machine& machine, std::uint32_t domain, std::uint64_t bytes) {
  State& state = machine.state();
  DomainRecord& record = state.domains[domain];
  auto& mine = state.processes[machine.process_slot()].used[domain];
  DomainLock lock(state, domain);
  mine.store(mine.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  kill_point();
  const std::uint64_t used = record.used.load(std::memory_order_relaxed) + bytes;
  record.used.store(used, std::memory_order_relaxed);
  kill_point();
  if (used > record.peak.load(std::memory_order_relaxed)) record.peak.store(used, std::memory_order_relaxed);
}

std::expected<void, Error> release_memory(Machine& machine, std::uint32_t domain, std::uint64_t bytes) {
  State& state = machine.state();
  DomainRecord& record = state.domains[domain];
  auto& mine = state.processes[machine.process_slot()].used[domain];
  DomainLock lock(state, domain);
  const std::uint64_t held = mine.load(std::memory_order_relaxed);
  if (bytes > held) return std::unexpected(Error{Errc::invalid, "more device memory released than this process holds"});
  mine.store(held - bytes, std::memory_order_relaxed);
  kill_point();
  record.used.store(record.used.load(std::memory_order_relaxed) - bytes, std::memory_order_relaxed);
  return {};
}

MemoryInfo memory_info(Machine& machine, std::uint32_t domain) {
  State& state = machine.state();
  reap_lately(machine);
  DomainRecord& record = state.domains[domain];
  DomainLock lock(state, domain);
  return {record.capacity.load(), record.used.load(), record.peak.load(), record.refused.load()};
}

void reset_memory_peak(Machine& machine, std::uint32_t domain) {
  State& state = machine.state();
  DomainLock lock(state, domain);
  state.domains[domain].peak.store(state.domains[domain].used.load());
}

void release_all_memory(State& state, std::uint32_t slot) {
  for (std::uint32_t domain = 0; domain < kMaxEngines; ++domain) {
    state.processes[slot].parked[domain].store(0, std::memory_order_relaxed);
    if (state.processes[slot].used[domain].load(std::memory_order_relaxed) == 0) continue;
    DomainLock lock(state, domain);
    state.processes[slot].used[domain].store(0, std::memory_order_relaxed);
    kill_point();
    recount(state, domain);
  }
}

bool move_memory(State& state, std::uint32_t slot, std::uint32_t domain, bool park) {
  ProcessRecord& process = state.processes[slot];
  auto& from = park ? process.used[domain] : process.parked[domain];
  auto& to = park ? process.parked[domain] : process.used[domain];
  if (from.load(std::memory_order_relaxed) == 0) return true;
  DomainLock lock(state, domain);
  DomainRecord& record = state.domains[domain];
  const std::uint64_t bytes = from.load(std::memory_order_relaxed);
  const std::uint64_t used = record.used.load(std::memory_order_relaxed);
  const std::uint64_t capacity = record.capacity.load(std::memory_order_relaxed);
  if (!park && (used > capacity || bytes > capacity - used)) return false;
  to.store(bytes, std::memory_order_relaxed);  // a checkpointed process holds nothing else
  kill_point();
  from.store(0, std::memory_order_relaxed);
  kill_point();
  recount(state, domain);
  return true;
}

void init_domain(DomainRecord& domain, std::uint64_t capacity_bytes) {
  init_robust(domain.lock);
  domain.capacity.store(capacity_bytes);
}

void set_domain_capacity(State& state, std::uint32_t domain, std::uint64_t capacity_bytes) {
  DomainLock lock(state, domain);
  state.domains[domain].capacity.store(capacity_bytes);
  state.domains[domain].peak.store(state.domains[domain].used.load());
}

std::vector<ProcessMemory> memory_by_process(Machine& machine, std::uint32_t domain) {
  State& state = machine.state();
  reap_lately(machine);
  std::vector<ProcessMemory> list;
  const auto line_of = [&](std::uint32_t pid) -> ProcessMemory& {
    for (ProcessMemory& line : list) {
      if (line.pid == pid) return line;
    }
    return list.emplace_back(ProcessMemory{pid, 0, 0});
  };
  DomainLock lock(state, domain);
  for_each_process(state, [&](std::uint32_t slot) {
    const std::uint64_t used = state.processes[slot].used[domain].load(std::memory_order_relaxed);
    if (used != 0) line_of(state.processes[slot].pid.load(std::memory_order_relaxed)).used_bytes += used;
  });
  const unsigned first = domain / kEnginesPerDevice * kEnginesPerDevice;
  for (unsigned e = first; e < first + kEnginesPerDevice; ++e) {
    const EngineRecord& engine = state.engines[e];
    if (engine.exists.load(std::memory_order_acquire) == 0 || engine.info.memory_domain != domain) continue;
    for (const auto& member : engine.members) {
      const std::uint32_t entry = member.load(std::memory_order_acquire);
      if (entry != 0) ++line_of(state.contexts[entry - 1].pid.load(std::memory_order_relaxed)).contexts;
    }
  }
  return list;
}

}  // namespace tensor_fusion::sim::device
