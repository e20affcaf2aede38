#include "guest/limiter/core/ledger.h"

#include <optional>

#include "guest/limiter/core/fault.h"
#include "guest/limiter/core/ledger_lock.h"
#include "guest/limiter/core/log.h"
#include "guest/limiter/core/os.h"
#include "guest/limiter/core/process.h"

namespace tensor_fusion::guest::limiter {
namespace {

using contract::ClaimDevice;
using contract::ClaimPage;
using contract::ClaimProcess;
using contract::kLockWaiters;
using contract::kMaxDevices;
using contract::kMaxProcesses;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint64_t kTurnPauseNs = 2'000'000;

std::uint64_t add_saturating(std::uint64_t left, std::uint64_t right) {
  std::uint64_t result;
  return __builtin_add_overflow(left, right, &result) ? ~std::uint64_t{0} : result;
}

// Changes by read-modify-write although the lock is held: a holder that lost the lock while stopped then still cannot
// undo what others did meanwhile.
void subtract_saturating(std::atomic<std::uint64_t>& total, std::uint64_t bytes) {
  std::uint64_t now = total.load(kRelaxed);
  while (!total.compare_exchange_weak(now, now >= bytes ? now - bytes : 0, kRelaxed)) {
  }
}

// Whose it is, of a slot that is kSlotClaimed.
void name_slot(ClaimPage& page, std::uint32_t slot, std::uint32_t pid, std::uint64_t start_ticks,
               std::uint64_t pid_namespace) {
  ClaimProcess& process = page.processes[slot];
  process.pid.store(pid, kRelaxed);
  process.start_ticks.store(start_ticks, kRelaxed);
  process.pid_namespace.store(pid_namespace, kRelaxed);
  std::uint32_t high = page.process_high.load(kRelaxed);
  while (high <= slot && !page.process_high.compare_exchange_weak(high, slot + 1, kRelaxed)) {
  }
}

}  // namespace

bool Ledger::holder_is_dead(std::uint32_t holder) const {
  if (holder == contract::kSweeperHolder || holder == contract::kHypervisorHolder) return false;  // patience decides
  if (holder == 0 || holder > kMaxProcesses) return true;  // nobody has this name
  const ClaimProcess& process = page_->processes[holder - 1];
  const std::uint64_t space = process.pid_namespace.load(kRelaxed);
  if (space != pid_namespace_ || space == 0) return false;
  return !may_be_alive(process.pid.load(kRelaxed), process.start_ticks.load(kRelaxed));
}

std::uint64_t Ledger::sum(std::uint32_t device) const {
  std::uint32_t high = page_->process_high.load(kRelaxed);
  if (high > kMaxProcesses || high <= slot_) high = kMaxProcesses;
  std::uint64_t total = 0;
  for (std::uint32_t slot = 0; slot < high; ++slot) {
    const ClaimProcess& process = page_->processes[slot];
    if (process.state.load(std::memory_order_acquire) == contract::kSlotLive)
      total = add_saturating(total, process.devices[device].ledger_bytes.load(kRelaxed));
  }
  return total;
}

Room Ledger::reserve(const Device& device, std::uint64_t bytes) {
  const Growth::Verdict verdict = try_reserve(device, bytes, {.believe = ask_ == nullptr});
  if (__builtin_expect(verdict != Growth::Verdict::unsure, 1))
    return verdict == Growth::Verdict::fits ? Room::fits : Room::full;
  return ask_and_reserve(device, bytes);
}

// One thread asks at a time, and till it is answered the process does not grow elsewhere: what the driver shows of it
// then lies between two figures that are soon the same. With nobody to ask the ledger decides, as always.
Room Ledger::ask_and_reserve(const Device& device, std::uint64_t bytes) {
  Guard guard(asks_[device.index]);
  std::atomic<std::uint32_t>& asking = asking_[device.index];
  asking.store(1, kRelaxed);
  const std::uint64_t end = os::monotonic_ns() + patience_.turn_ns;
  const std::uint32_t word = 0;
  Try way{.asker = true};
  Growth::Verdict verdict;
  bool unlisted = false;
  std::uint64_t lost_since = 0, unlisted_since = 0;
  while ((verdict = try_reserve(device, bytes, way)) == Growth::Verdict::unsure) {
    const std::uint64_t now = os::monotonic_ns();
    unlisted = is_unlisted(device, way.fresh, now, unlisted_since);
    if (unlisted || now >= end || has_lost_its_slot(now, lost_since)) break;
    if (way.fresh) os::futex_wait(&word, 0, kTurnPauseNs, false);  // somebody else's turn
    way.fresh = ask_(device);
    way.believe = !way.fresh;
  }
  asking.store(0, kRelaxed);
  if (unlisted) return Room::unlisted;
  return verdict == Growth::Verdict::fits ? Room::fits : Room::full;
}

Growth::Verdict Ledger::try_reserve(const Device& device, std::uint64_t bytes, const Try& way) {
  const contract::GrantDevice& grant = *device.grant;
  ClaimDevice& total = *device.claim;
  LedgerLock lock(*this, device.index);
  const std::uint64_t own = held(device).load(kRelaxed);
  std::uint64_t before = total.used_bytes.load(kRelaxed);
  if (before < own) {  // forged: put back what we know
    total.used_bytes.store(before = own, kRelaxed);
    device.mine->ledger_bytes.store(own, kRelaxed);
    was_wrong_[device.index].store(true, kRelaxed);
  }
  std::uint64_t after = 0;
  const bool turns_over = __builtin_add_overflow(before, bytes, &after);
  if (turns_over) after = ~std::uint64_t{0};
  if (turns_over ||
      ((grant.flags.load(kRelaxed) & contract::kMemoryUnlimited) == 0 &&
       add_saturating(after, grant.unledgered_bytes.load(kRelaxed)) > grant.memory_limit_bytes.load(kRelaxed)))
    return Growth::Verdict::full;
  Growth& growth = growth_[device.index];
  if (!way.asker && asking_[device.index].load(kRelaxed) != 0) return Growth::Verdict::unsure;
  if (!way.believe) {
    const Growth::Verdict verdict = growth.judge(grant, *device.grant_page, own, bytes, slot_ + 1, pid_, way.fresh);
    if (verdict != Growth::Verdict::fits) return verdict;
  }
  growth.before_change(grant, own);
  held(device).store(own + bytes, kRelaxed);
  growth.after_change(own + bytes);
  total.changes.fetch_add(1, kRelaxed);
  device.mine->ledger_bytes.fetch_add(bytes, kRelaxed);
  fault(FaultPoint::ledger_half);
  total.used_bytes.fetch_add(bytes, kRelaxed);
  if (after > total.peak_bytes.load(kRelaxed)) total.peak_bytes.store(after, kRelaxed);
  fault(FaultPoint::ledger_done);
  return Growth::Verdict::fits;
}

void Ledger::count_refusal(const Device& device) { device.claim->refused.fetch_add(1, kRelaxed); }

// Whether to wait on. Who once waited in vain waits no more till what it waited for has come.
bool Ledger::is_worth_waiting(std::atomic<bool>& in_vain, std::uint64_t now, std::uint64_t& since,
                              std::uint64_t patience_ns) {
  if (since == 0) since = now;
  if (!in_vain.load(kRelaxed) && now - since < patience_ns) return true;
  in_vain.store(true, kRelaxed);
  return false;
}

bool Ledger::has_lost_its_slot(std::uint64_t now, std::uint64_t& since) {
  if (keep_slot()) {
    since = 0;
    slot_in_vain_.store(false, kRelaxed);
    return false;
  }
  if (is_worth_waiting(slot_in_vain_, now, since, patience_.slot_ns)) return false;
  say("another process has this one's slot of the claim page");
  return true;
}

// The hypervisor lists a process within a second of its claim, and goes on reading without it if it never does: then
// waiting for one's part is in vain. A list that was not read since the request tells only that one is on it.
bool Ledger::is_unlisted(const Device& device, bool fresh, std::uint64_t now, std::uint64_t& since) {
  if (!fresh && !list_in_vain_.load(kRelaxed)) return false;
  std::optional<bool> listed;
  {
    LedgerLock lock(*this, device.index);
    listed = growth_[device.index].is_listed(*device.grant_page, pid_);
  }
  if (listed.value_or(false)) {
    since = 0;
    list_in_vain_.store(false, kRelaxed);
  }
  if (listed.value_or(true) || !fresh) return false;
  if (is_worth_waiting(list_in_vain_, now, since, patience_.listed_ns)) return false;
  complain("the hypervisor does not count this process among its slice's; start it with tensor-fusion run");
  return true;
}

bool Ledger::put_right(const Device& device) {
  LedgerLock lock(*this, device.index);
  const std::uint64_t own = held(device).load(kRelaxed);
  const bool wrong = device.mine->ledger_bytes.load(kRelaxed) != own;
  if (wrong) {
    device.mine->ledger_bytes.store(own, kRelaxed);
    device.claim->used_bytes.store(sum(device.index), kRelaxed);
  }
  return was_wrong_[device.index].exchange(false, kRelaxed) || wrong;
}

bool Ledger::keep_slot() {
  if (ask_ == nullptr) return true;  // not a process of a slice
  ClaimProcess& process = page_->processes[slot_];
  if (process.state.load(std::memory_order_acquire) == contract::kSlotLive && process.pid.load(kRelaxed) == pid_)
    return true;
  std::uint32_t state = contract::kSlotFree;
  if (!process.state.compare_exchange_strong(state, contract::kSlotClaimed)) return false;
  name_slot(*page_, slot_, pid_, process_status(pid_).start_ticks, pid_namespace_);
  for (std::uint32_t device = 0; device < kMaxDevices; ++device) {
    contract::begin_counting(process.devices[device]);
    process.devices[device].ledger_bytes.store(std::atomic_ref(held_[device]).load(kRelaxed), kRelaxed);
  }
  state = contract::kSlotClaimed;
  return process.state.compare_exchange_strong(state, contract::kSlotLive, std::memory_order_release, kRelaxed);
}

void Ledger::change_held(const Device& device, std::uint64_t bytes) {
  growth_[device.index].before_change(*device.grant, held(device).load(kRelaxed));
  held(device).store(bytes, kRelaxed);
  growth_[device.index].after_change(bytes);
}

void Ledger::charge(const Device& device, std::uint64_t bytes) {
  if (bytes == 0) return;
  ClaimDevice& total = *device.claim;
  LedgerLock lock(*this, device.index);
  change_held(device, add_saturating(held(device).load(kRelaxed), bytes));
  total.changes.fetch_add(1, kRelaxed);
  device.mine->ledger_bytes.fetch_add(bytes, kRelaxed);
  fault(FaultPoint::ledger_half);
  const std::uint64_t after = total.used_bytes.fetch_add(bytes, kRelaxed) + bytes;
  if (after > total.peak_bytes.load(kRelaxed)) total.peak_bytes.store(after, kRelaxed);
}

void Ledger::release(const Device& device, std::uint64_t bytes) {
  if (bytes == 0) return;
  LedgerLock lock(*this, device.index);
  const std::uint64_t own = held(device).load(kRelaxed);
  change_held(device, own > bytes ? own - bytes : 0);
  device.claim->changes.fetch_add(1, kRelaxed);
  subtract_saturating(device.mine->ledger_bytes, bytes);
  fault(FaultPoint::ledger_half);
  subtract_saturating(device.claim->used_bytes, bytes);
  fault(FaultPoint::ledger_done);
}

std::uint64_t Ledger::surplus(const Device& device) {
  LedgerLock lock(*this, device.index);
  return growth_[device.index].surplus(*device.grant, *device.grant_page, held(device).load(kRelaxed), pid_);
}

bool Ledger::is_one_of_several(const Device& device) {
  LedgerLock lock(*this, device.index);
  return growth_[device.index].is_one_of_several(*device.grant_page, pid_);
}

std::uint64_t Ledger::used(const Device& device) {
  return add_saturating(device.claim->used_bytes.load(kRelaxed), device.grant->unledgered_bytes.load(kRelaxed));
}

Ledger::View Ledger::view(const Device& device) {
  const contract::GrantDevice& grant = *device.grant;
  View view;
  view.unlimited = (grant.flags.load(kRelaxed) & contract::kMemoryUnlimited) != 0;
  view.limit = grant.memory_limit_bytes.load(kRelaxed);
  view.used = used(device);
  if (view.used > view.limit) view.used = view.limit;
  return view;
}

void Ledger::recount() {
  for (std::uint32_t device = 0; device < kMaxDevices; ++device) {
    LedgerLock lock(*this, device);
    page_->devices[device].used_bytes.store(sum(device), kRelaxed);
  }
}

bool Ledger::sweep() {
  std::uint32_t high = page_->process_high.load(kRelaxed);
  if (high > kMaxProcesses) high = kMaxProcesses;
  bool found = false;
  for (std::uint32_t slot = 0; slot < high; ++slot) {
    ClaimProcess& process = page_->processes[slot];
    std::uint32_t state = process.state.load(std::memory_order_acquire);
    if (slot == slot_ || (state != contract::kSlotLive && state != contract::kSlotReaping)) continue;
    const std::uint64_t space = process.pid_namespace.load(kRelaxed);
    if (space == 0 || space != pid_namespace_) continue;
    const std::uint32_t pid = process.pid.load(kRelaxed);
    const std::uint64_t start_ticks = process.start_ticks.load(kRelaxed);
    // Live and without a name: the dead one's slot was returned since we looked, and is being given to another.
    if (pid == 0 ? state == contract::kSlotLive : may_be_alive(pid, start_ticks)) continue;
    if (state == contract::kSlotLive && !process.state.compare_exchange_strong(state, contract::kSlotReaping)) continue;
    if (state == contract::kSlotLive &&
        (process.pid.load(kRelaxed) != pid || process.start_ticks.load(kRelaxed) != start_ticks)) {
      // Another has returned the dead one's slot since we looked, and a living process has it.
      state = contract::kSlotReaping;
      if (process.state.compare_exchange_strong(state, contract::kSlotLive)) recount();
      continue;
    }
    fault(FaultPoint::slot_reaping);
    for (std::uint32_t device = 0; device < kMaxDevices; ++device) {
      // One that died in its first lock holds nothing yet, and nobody could tell that it is dead once it has no name.
      const bool locked = (page_->devices[device].lock.load(kRelaxed) & ~kLockWaiters) == slot + 1;
      if (!locked && process.devices[device].ledger_bytes.load(kRelaxed) == 0) continue;
      LedgerLock lock(*this, device);
      page_->devices[device].used_bytes.store(sum(device), kRelaxed);
    }
    contract::forget_owner(process, pid, start_ticks);
    state = contract::kSlotReaping;
    process.state.compare_exchange_strong(state, contract::kSlotFree);
    found = true;
  }
  return found;
}

std::uint32_t Ledger::take_over_slot(ClaimPage& page, std::uint32_t pid, std::uint64_t start_ticks,
                                     std::uint64_t pid_namespace) {
  std::uint32_t high = page.process_high.load(kRelaxed);
  if (high > kMaxProcesses) high = kMaxProcesses;
  for (std::uint32_t slot = 0; slot < high; ++slot) {
    ClaimProcess& process = page.processes[slot];
    if (process.state.load(std::memory_order_acquire) != contract::kSlotLive || process.pid.load(kRelaxed) != pid ||
        process.start_ticks.load(kRelaxed) != start_ticks || process.pid_namespace.load(kRelaxed) != pid_namespace)
      continue;
    const Ledger ledger(&page, slot, pid_namespace);
    for (std::uint32_t device = 0; device < kMaxDevices; ++device) {
      auto& word = page.devices[device].lock;
      std::uint32_t held = word.load(kRelaxed);  // by a thread that the exec ended
      const bool left = (held & ~kLockWaiters) == slot + 1 && word.compare_exchange_strong(held, 0);
      if (left) os::futex_wake(&word, 1, true);
      if (!left && process.devices[device].ledger_bytes.load(kRelaxed) == 0) {
        contract::begin_counting(process.devices[device]);
        continue;
      }
      LedgerLock lock(ledger, device);
      contract::begin_counting(process.devices[device]);
      page.devices[device].used_bytes.store(ledger.sum(device), kRelaxed);
    }
    process.self_test.store(0, kRelaxed);
    return slot;
  }
  return kMaxProcesses;
}

namespace {

// Fills a slot that is kSlotClaimed; false when it was taken away meanwhile.
bool fill_slot(ClaimPage& page, std::uint32_t slot, std::uint32_t pid, std::uint64_t start_ticks,
               std::uint64_t pid_namespace) {
  ClaimProcess& process = page.processes[slot];
  name_slot(page, slot, pid, start_ticks, pid_namespace);
  fault(FaultPoint::slot_claimed);
  process.self_test.store(0, kRelaxed);
  process.flags.store(0, kRelaxed);
  for (auto& device : process.devices) {
    contract::begin_counting(device);
    if (device.settle_request.load(kRelaxed) != 0) device.settle_request.store(0, kRelaxed);
  }
  std::uint32_t state = contract::kSlotClaimed;
  return process.state.compare_exchange_strong(state, contract::kSlotLive, std::memory_order_release, kRelaxed);
}

}  // namespace

std::uint32_t take_slot(ClaimPage& page, std::uint32_t pid, std::uint64_t start_ticks, std::uint64_t pid_namespace) {
  for (std::uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
    auto& state = page.processes[slot].state;
    for (std::uint32_t free = contract::kSlotFree;
         state.load(kRelaxed) == contract::kSlotFree && state.compare_exchange_strong(free, contract::kSlotClaimed);
         free = contract::kSlotFree)
      if (fill_slot(page, slot, pid, start_ticks, pid_namespace)) return slot;
  }
  return kMaxProcesses;
}

}  // namespace tensor_fusion::guest::limiter
