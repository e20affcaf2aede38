#include "sim/device/process_state.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "sim/device/clock.h"
#include "sim/device/memory_domain.h"
#include "sim/device/state.h"

namespace tensor_fusion::sim::device {

std::vector<std::uint32_t> places_of(const Machine& machine, std::uint32_t pid) {
  State& state = machine.state();
  std::vector<std::uint32_t> places;
  for (std::uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
    const std::uint64_t bit = std::uint64_t{1} << (slot & 63);
    if ((state.process_live[slot >> 6].load(std::memory_order_acquire) & bit) == 0) continue;
    if (state.processes[slot].pid.load() == pid && machine.process_alive(slot)) places.push_back(slot);
  }
  return places;
}

std::uint32_t held_state(const Machine& machine, std::uint32_t place) {
  return machine.state().processes[place].held.load(std::memory_order_acquire);
}

bool change_held_state(Machine& machine, std::uint32_t place, std::uint32_t from, std::uint32_t to) {
  auto& word = machine.state().processes[place].held;
  if (!word.compare_exchange_strong(from, to)) return false;
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  return true;
}

void await_running(Machine& machine) {
  auto& word = machine.state().processes[machine.process_slot()].held;
  for (std::uint32_t seen = word.load(std::memory_order_acquire); seen != 0; seen = word.load()) [[unlikely]]
    ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, nullptr, nullptr, 0);
}

bool work_is_over(Machine& machine, std::uint32_t place) {
  for (ContextRecord& context : machine.state().contexts) {
    if (context.state.load(std::memory_order_acquire) != kSlotLive || context.process.load() != place) continue;
    machine.advance(context.engine.load());
    for (unsigned lane = 0; lane < kLanes; ++lane)
      if (context.completed[lane].load(std::memory_order_acquire) < context.tails[lane].load()) return false;
  }
  return true;
}

void park_memory(Machine& machine, std::uint32_t place) {
  for (std::uint32_t domain = 0; domain < kMaxEngines; ++domain)
    (void)move_memory(machine.state(), place, domain, true);
}

std::expected<void, Error> unpark_memory(Machine& machine, std::uint32_t place) {
  for (std::uint32_t domain = 0; domain < kMaxEngines; ++domain) {
    if (move_memory(machine.state(), place, domain, false)) continue;
    while (domain-- > 0) (void)move_memory(machine.state(), place, domain, true);
    return std::unexpected(Error{Errc::out_of_memory, "others have taken the device memory meanwhile"});
  }
  return {};
}

}  // namespace tensor_fusion::sim::device
