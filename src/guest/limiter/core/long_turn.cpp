#include "guest/limiter/core/long_turn.h"

#include "guest/limiter/core/attachment.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint64_t kStillWaitsNs = 20'000'000;  // a neighbour that waits looks far more often than that

using contract::long_turn_owner;

contract::ClaimProcess* live(contract::ClaimPage& claim, std::uint32_t owner) {
  if (owner == 0 || owner > contract::kMaxProcesses) return nullptr;
  contract::ClaimProcess& process = claim.processes[owner - 1];
  return process.state.load(kRelaxed) == contract::kSlotLive ? &process : nullptr;
}

std::uint32_t owner_of(const contract::ClaimPage& claim, const Device& device) {
  const auto row = reinterpret_cast<std::uintptr_t>(device.mine);
  return static_cast<std::uint32_t>((row - reinterpret_cast<std::uintptr_t>(claim.processes)) /
                                    sizeof(contract::ClaimProcess)) +
         1;
}

bool holds(contract::ClaimPage& claim, std::uint64_t word, std::uint64_t now) {
  const std::uint64_t until = contract::long_turn_until_ns(word);
  return until > now && until < now + kTurnMostNs && live(claim, long_turn_owner(word)) != nullptr;
}

bool neighbour_waits(contract::ClaimPage& claim, const Device& device, std::uint32_t me, std::uint64_t now) {
  std::uint32_t high = claim.process_high.load(kRelaxed);
  if (high > contract::kMaxProcesses) high = contract::kMaxProcesses;
  for (std::uint32_t owner = 1; owner <= high; ++owner) {
    const contract::ClaimProcess* process = owner == me ? nullptr : live(claim, owner);
    if (process == nullptr) continue;
    const std::uint64_t asked = process->devices[device.index].turn_asked_ns.load(kRelaxed);
    if (asked != 0 && asked + kStillWaitsNs > now) return true;
  }
  return false;
}

}  // namespace

bool LongTurn::take(const Device& device, std::uint64_t now, std::uint64_t until_ns, bool goes_on) {
  contract::ClaimPage* claim = g_shared.slice.claim;
  if (claim == nullptr) return true;
  const std::uint32_t me = owner_of(*claim, device);
  std::atomic<std::uint64_t>& turn = device.claim->long_turn;
  std::uint64_t word = turn.load(std::memory_order_acquire);
  for (;;) {
    const bool had = long_turn_owner(word) == me;
    const bool leaves = had && !(mine_ && goes_on) && neighbour_waits(*claim, device, me, now);
    if (leaves || (!had && holds(*claim, word, now))) {
      if (leaves) give_back(device);
      device.mine->turn_asked_ns.store(leaves ? 0 : now, kRelaxed);
      return false;
    }
    if (turn.compare_exchange_weak(word, contract::long_turn(until_ns, me), std::memory_order_acq_rel)) break;
  }
  if (device.mine->turn_asked_ns.load(kRelaxed) != 0) device.mine->turn_asked_ns.store(0, kRelaxed);
  if (!mine_) since_ns_ = now;
  return mine_ = true;
}

void LongTurn::keep(const Device& device, std::uint64_t until_ns) {
  contract::ClaimPage* claim = g_shared.slice.claim;
  if (claim == nullptr) return;
  const std::uint32_t me = owner_of(*claim, device);
  std::atomic<std::uint64_t>& turn = device.claim->long_turn;
  std::uint64_t word = turn.load(std::memory_order_acquire);
  mine_ = until_ns != 0;
  while (long_turn_owner(word) == me)
    if (turn.compare_exchange_weak(word, contract::long_turn(until_ns, me), std::memory_order_acq_rel)) return;
  mine_ = false;  // it lapsed, and another has it
}

std::uint64_t LongTurn::ends_ns(const Device& device, std::uint64_t now) {
  contract::ClaimPage* claim = g_shared.slice.claim;
  if (claim == nullptr) return 0;
  const contract::ClaimProcess* process = live(*claim, long_turn_owner(device.claim->long_turn.load(kRelaxed)));
  if (process == nullptr) return 0;
  const std::uint64_t ends = process->devices[device.index].progress_ns.load(kRelaxed);
  return ends > now ? ends : 0;
}

}  // namespace tensor_fusion::guest::limiter
