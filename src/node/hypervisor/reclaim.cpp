#include "node/hypervisor/reclaim.h"

#include <algorithm>

#include "node/hypervisor/claim_view.h"
#include "system/futex.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using contract::ClaimPage;
using contract::kHypervisorHolder;
using contract::kLockWaiters;

// The lock of one device for the length of a scope, or not at all.
class TryLock {
 public:
  TryLock(ClaimPage& page, std::uint32_t device, const HolderIsGone& is_gone)
      : device_(page.devices[device % contract::kMaxDevices]) {
    std::uint32_t seen = device_.lock.load(std::memory_order_acquire);
    const std::uint32_t holder = seen & ~kLockWaiters;
    if (holder != 0) {
      // Our own name is left from a hypervisor that died here: there is only one at a time.
      if (holder != kHypervisorHolder && !(is_gone && is_gone(device, holder))) return;
      took_over_ = true;
    }
    const std::uint32_t ours = kHypervisorHolder | (seen & kLockWaiters);
    held_ = device_.lock.compare_exchange_strong(seen, ours, std::memory_order_acq_rel);
    if (held_ && took_over_) device_.repairs.fetch_add(1, std::memory_order_relaxed);
  }
  TryLock(const TryLock&) = delete;
  TryLock& operator=(const TryLock&) = delete;
  ~TryLock() {
    if (!held_) return;
    if (device_.lock.exchange(0, std::memory_order_acq_rel) & kLockWaiters) system::futex_wake_all(device_.lock);
  }
  bool held() const { return held_; }
  bool took_over() const { return held_ && took_over_; }

 private:
  contract::ClaimDevice& device_;
  bool held_ = false;
  bool took_over_ = false;
};

std::uint64_t sum_of_live(const ClaimPage& page, std::uint32_t slots, std::uint32_t device) {
  constexpr std::uint64_t kMost = 1ull << 62;
  std::uint64_t sum = 0;
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    if (page.processes[slot].state.load(std::memory_order_acquire) != contract::kSlotLive) continue;
    sum = std::min(kMost, sum + ledger_of(page, slot, device, kMost));
  }
  return sum;
}

}  // namespace

bool reap_slot(ClaimPage& page, std::uint32_t slots, std::uint32_t slot, const SlotOwner& owner,
               const HolderIsGone& is_gone) {
  contract::ClaimProcess& process = page.processes[slot % contract::kMaxProcesses];
  const auto given_away = [&] {
    const std::uint32_t pid = process.pid.load(std::memory_order_acquire);
    return pid != 0 && (pid != owner.pid || process.start_ticks.load(std::memory_order_acquire) != owner.start_ticks);
  };
  const std::uint32_t before = process.state.load(std::memory_order_acquire);
  if (before == contract::kSlotFree || given_away()) return true;
  std::uint32_t state = before;
  if (state != contract::kSlotReaping && !process.state.compare_exchange_strong(state, contract::kSlotReaping))
    return false;
  if (before != contract::kSlotReaping && given_away()) {
    // Another returned it since we looked, and a living process has it. The totals are set right in passing.
    state = contract::kSlotReaping;
    process.state.compare_exchange_strong(state,
                                          before == contract::kSlotLive ? contract::kSlotLive : contract::kSlotFree);
    return true;
  }
  bool all = true;
  for (std::uint32_t device = 0; device < contract::kMaxDevices; ++device) {
    const std::uint32_t holder = page.devices[device].lock.load(std::memory_order_acquire) & ~kLockWaiters;
    if (process.devices[device].ledger_bytes.load(std::memory_order_relaxed) == 0 && holder != slot + 1) continue;
    const TryLock lock(page, device, is_gone);
    if (!lock.held()) {
      all = false;
      continue;
    }
    page.devices[device].used_bytes.store(sum_of_live(page, slots, device), std::memory_order_relaxed);
    process.devices[device].ledger_bytes.store(0, std::memory_order_relaxed);
  }
  if (!all) return false;
  for (auto& device : process.devices) {
    // What says "it waits" or "it has work" must not outlive it.
    for (auto* word : {&device.blocked, &device.contexts, &device.streams})
      if (word->load(std::memory_order_relaxed) != 0) word->store(0, std::memory_order_relaxed);
    if (device.wanted_since_ns.load(std::memory_order_relaxed) != 0)
      device.wanted_since_ns.store(0, std::memory_order_relaxed);
  }
  contract::forget_owner(process, owner.pid, owner.start_ticks);
  state = contract::kSlotReaping;
  process.state.compare_exchange_strong(state, contract::kSlotFree, std::memory_order_release);
  return true;
}

bool repair_lock(ClaimPage& page, std::uint32_t slots, std::uint32_t device, const HolderIsGone& is_gone) {
  if ((page.devices[device % contract::kMaxDevices].lock.load(std::memory_order_acquire) & ~kLockWaiters) == 0)
    return false;
  const TryLock lock(page, device, is_gone);
  if (!lock.took_over()) return false;
  page.devices[device].used_bytes.store(sum_of_live(page, slots, device), std::memory_order_relaxed);
  return true;
}

bool rebalance(ClaimPage& page, std::uint32_t slots, std::uint32_t device) {
  const auto wrong = [&] {
    return page.devices[device].used_bytes.load(std::memory_order_acquire) != sum_of_live(page, slots, device);
  };
  if (page.devices[device].lock.load(std::memory_order_acquire) != 0 || !wrong()) return false;
  const TryLock lock(page, device, {});
  if (!lock.held() || !wrong()) return false;  // it was in the middle of a change when we looked first
  page.devices[device].used_bytes.store(sum_of_live(page, slots, device), std::memory_order_relaxed);
  return true;
}

}  // namespace tensor_fusion::node::hypervisor
