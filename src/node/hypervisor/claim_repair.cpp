#include "node/hypervisor/claim_repair.h"

#include "node/hypervisor/claim_view.h"
#include "system/clock.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

bool is_of(const SlotView& slot, const LiveProcess& process) {
  const bool taken = slot.state == contract::kSlotLive || slot.state == contract::kSlotReaping;
  return taken && slot.pid == static_cast<std::uint32_t>(process.tenant_pid) && slot.start_ticks == process.start_ticks;
}

void give_slot_back(contract::ClaimPage& page, const SlotView& said) {
  contract::ClaimProcess& process = page.processes[said.index % contract::kMaxProcesses];
  process.state.store(contract::kSlotClaimed);
  process.pid.store(said.pid, kRelaxed);
  process.start_ticks.store(said.start_ticks, kRelaxed);
  process.pid_namespace.store(said.pid_namespace, kRelaxed);
  process.self_test.store(said.self_test, kRelaxed);
  process.limiter_version.store(said.limiter_version, kRelaxed);
  process.flags.store(said.flags, kRelaxed);
  for (auto& device : process.devices) contract::begin_counting(device);
  process.state.store(contract::kSlotLive, std::memory_order_release);
}

// One more than the highest that is not free.
std::uint32_t slots_in_use(const contract::ClaimPage& page) {
  std::uint32_t slots = contract::kMaxProcesses;
  while (slots > 0 && page.processes[slots - 1].state.load() == contract::kSlotFree) --slots;
  return slots;
}

}  // namespace

// A slot is freed when its process has died: one that says otherwise of a process that lives was overwritten.
bool repair_claim(Tenant& tenant) {
  contract::ClaimPage& page = tenant.pages.claim();
  bool overwritten = tenant.pages.restore_claim_head();
  for (LiveProcess& process : tenant.processes) {
    if (process.host_pid == 0 || process.dead) continue;
    const SlotView now = slot_view(page, process.slot);
    if (is_of(now, process)) {
      process.said = now;
      continue;
    }
    if (!system::is_alive(process.host_pid, process.start_ticks)) continue;  // its pidfd will tell
    give_slot_back(page, process.said);
    overwritten = true;
  }
  // There may be something in any slot, and who writes over a page may still be at it when its head is put right. What
  // is no state was never one's whose memory counts: it is free at once, for who has had it and for new ones.
  if (!overwritten && !tenant.overwriting.is_told(system::monotonic_ns())) return false;
  for (contract::ClaimProcess& process : page.processes) {
    std::uint32_t state = process.state.load(std::memory_order_acquire);
    if (state > contract::kSlotReaping && process.state.compare_exchange_strong(state, contract::kSlotFree))
      overwritten = true;
  }
  // Also when nothing more is found wrong: what was written last may have been taken for a process that has died, whose
  // slot was given back.
  std::uint32_t slots = slots_in_use(page);
  if (!overwritten && slots == tenant.pages.slots()) return false;
  tenant.pages.set_slots(slots);
  // Who took a slot after we had looked there may have said so before we did.
  if (const std::uint32_t now = slots_in_use(page); now > slots) page.process_high.compare_exchange_strong(slots, now);
  return overwritten;
}

}  // namespace tensor_fusion::node::hypervisor
