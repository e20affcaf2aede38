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

// One that has waited for longer than since `since_ns`.
bool neighbour_waits(const Device& device, std::uint32_t me, std::uint64_t since_ns, std::uint64_t now) {
  return any_process(device, [=](std::uint32_t owner, const contract::ClaimProcessDevice& row) {
    const std::uint64_t asked = owner == me ? 0 : row.turn_asked_ns.load(kRelaxed);
    const std::uint64_t since = row.turn_since_ns.load(kRelaxed);
    const bool waits = asked + kStillWaitsNs > now && asked < now + kStillWaitsNs;
    return waits && (since < since_ns || (since == since_ns && owner < me));
  });
}

void ask(const Device& device, std::uint64_t now) {
  if (device.mine->turn_since_ns.load(kRelaxed) == 0) device.mine->turn_since_ns.store(now, kRelaxed);
  device.mine->turn_asked_ns.store(now, kRelaxed);
}

}  // namespace

bool LongTurn::take(const Device& device, std::uint64_t now, std::uint64_t until_ns, std::uint64_t look_ns,
                    bool outstanding, bool more) {
  if (g_shared.slice.claim == nullptr) return true;
  const std::uint32_t me = owner_of(device);
  const std::uint64_t asks = device.mine->turn_since_ns.load(kRelaxed), since = asks != 0 ? asks : now;
  std::atomic<std::uint64_t>& turn = device.claim->long_turn;
  std::uint64_t word = turn.load(std::memory_order_acquire);
  for (;;) {
    const bool had = long_turn_owner(word) == me;
    if (had && mine_ && outstanding) {
      if (!more && neighbour_waits(device, me, UINT64_MAX, now)) return false;
    } else if (had && holds(word, now)) {
      give_back(device, now);  // of who had this slot before, or was over
      word = turn.load(std::memory_order_acquire);
      continue;
    } else {
      const std::uint64_t free_ns = contract::long_turn_until_ns(word);
      const bool held = !had && holds(word, now);
      if (held || (free_ns + 2 * look_ns > now && free_ns <= now && neighbour_waits(device, me, since, now))) {
        ask(device, now);
        return false;
      }
    }
    if (turn.compare_exchange_weak(word, contract::long_turn(until_ns, me), std::memory_order_acq_rel)) break;
  }
  for (auto* told : {&device.mine->turn_asked_ns, &device.mine->turn_since_ns})
    if (told->load(kRelaxed) != 0) told->store(0, kRelaxed);
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

void LongTurn::give_back(const Device& device, std::uint64_t now) {
  if (g_shared.slice.claim == nullptr) return;
  change(device, now);
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
