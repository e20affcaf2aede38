#include "guest/limiter/core/long_turn.h"

#include "guest/limiter/core/neighbours.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint64_t kStillWaitsNs = 250'000'000;  // who waits says so again well within that

using contract::long_turn_owner;

const contract::ClaimProcess* live(std::uint32_t owner) {
  if (owner == 0 || owner > contract::kMaxProcesses) return nullptr;
  const contract::ClaimProcess& process = g_shared.slice.claim->processes[owner - 1];
  return process.state.load(kRelaxed) == contract::kSlotLive ? &process : nullptr;
}

std::uint32_t owner_of(const Device& device) {
  const auto first = reinterpret_cast<std::uintptr_t>(g_shared.slice.claim->processes);
  return static_cast<std::uint32_t>((reinterpret_cast<std::uintptr_t>(device.mine) - first) /
                                    sizeof(contract::ClaimProcess)) +
         1;
}

bool holds(std::uint64_t word, std::uint64_t now) {
  const std::uint64_t until = contract::long_turn_until_ns(word);
  return until > now && until < now + kTurnMostNs && live(long_turn_owner(word)) != nullptr;
}

bool neighbour_waits(const Device& device, std::uint32_t me, std::uint64_t now) {
  return any_process(device, [me, now](std::uint32_t owner, const contract::ClaimProcessDevice& row) {
    const std::uint64_t asked = owner == me ? 0 : row.turn_asked_ns.load(kRelaxed);
    return asked + kStillWaitsNs > now && asked < now + kStillWaitsNs;
  });
}

}  // namespace

bool LongTurn::take(const Device& device, std::uint64_t now, std::uint64_t until_ns, bool outstanding, bool more) {
  if (g_shared.slice.claim == nullptr) return true;
  const std::uint32_t me = owner_of(device);
  std::atomic<std::uint64_t>& turn = device.claim->long_turn;
  std::uint64_t word = turn.load(std::memory_order_acquire);
  for (;;) {
    const bool had = long_turn_owner(word) == me;
    if (had && !(mine_ && outstanding && more) && neighbour_waits(device, me, now)) {
      if (!mine_ || !outstanding) give_back(device);
      return false;
    }
    if (!had && holds(word, now)) {
      device.mine->turn_asked_ns.store(now, kRelaxed);
      return false;
    }
    if (turn.compare_exchange_weak(word, contract::long_turn(until_ns, me), std::memory_order_acq_rel)) break;
  }
  if (device.mine->turn_asked_ns.load(kRelaxed) != 0) device.mine->turn_asked_ns.store(0, kRelaxed);
  if (!mine_ || !outstanding) since_ns_ = now;
  return mine_ = true;
}

void LongTurn::change(const Device& device, std::uint64_t until_ns) {
  const std::uint32_t me = owner_of(device);
  std::atomic<std::uint64_t>& turn = device.claim->long_turn;
  std::uint64_t word = turn.load(std::memory_order_acquire);
  while (long_turn_owner(word) == me)
    if (turn.compare_exchange_weak(word, contract::long_turn(until_ns, me), std::memory_order_acq_rel)) return;
  mine_ = false;  // it lapsed, and another has it
}

void LongTurn::keep(const Device& device, std::uint64_t until_ns) {
  if (g_shared.slice.claim == nullptr) return;
  change(device, until_ns < since_ns_ + kTurnWholeNs ? until_ns : since_ns_ + kTurnWholeNs);
}

void LongTurn::give_back(const Device& device) {
  if (g_shared.slice.claim == nullptr) return;
  change(device, 0);
  mine_ = false;
}

std::uint64_t LongTurn::ends_ns(const Device& device, std::uint64_t now) {
  if (g_shared.slice.claim == nullptr) return 0;
  const contract::ClaimProcess* process = live(long_turn_owner(device.claim->long_turn.load(kRelaxed)));
  if (process == nullptr) return 0;
  const std::uint64_t ends = process->devices[device.index].progress_ns.load(kRelaxed);
  return ends > now ? ends : 0;
}

void LongTurn::ask_on(const Device& device, std::uint64_t now) {
  if (device.mine->turn_asked_ns.load(kRelaxed) != 0) device.mine->turn_asked_ns.store(now, kRelaxed);
}

}  // namespace tensor_fusion::guest::limiter
