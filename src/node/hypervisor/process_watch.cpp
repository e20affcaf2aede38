#include "node/hypervisor/process_watch.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>

#include "node/hypervisor/claim_repair.h"
#include "node/hypervisor/membership.h"
#include "node/hypervisor/reclaim.h"
#include "system/clock.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kClaimedForNs =
    1'000'000'000;                      // a slot still being filled after this belongs to a dead process
constexpr unsigned kNoticedAScan = 64;  // slots; the rest have their turn in the next ones

}  // namespace

void ProcessWatch::forget(const Tenant& tenant) {
  for (const LiveProcess& process : tenant.processes)
    if (process.pidfd) loop_.forget(process.pidfd.get());
}

void ProcessWatch::verify(Tenant& tenant) {
  contract::ClaimPage& page = tenant.pages.claim();
  const auto is_gone = [&](std::uint32_t device, std::uint32_t holder) {
    return holder_is_gone(tenant, device, holder);
  };
  for (std::uint32_t device = 0; device < tenant.record.devices.size(); ++device) {
    repair_lock(page, tenant.pages.slots(), device, is_gone);
    if (rebalance(page, tenant.pages.slots(), device) && !tenant.overwriting.is_told(system::monotonic_ns()))
      hooks_.tampered(tenant, "its ledger's total was not the sum of its processes");
  }
}

bool ProcessWatch::slot_is_dead(Tenant& tenant, std::uint32_t slot) {
  for (const LiveProcess& process : tenant.processes)
    if (process.slot == slot)
      return process.dead ||
             (process.host_pid != 0 && system::life_of(process.host_pid, process.start_ticks) == system::Life::gone);
  const std::uint64_t read_ns = system::monotonic_ns();
  const SlotView view = slot_view(tenant.pages.claim(), slot);
  return view.state == contract::kSlotFree || view.state == contract::kSlotReaping ||
         search_.find(view, read_ns, tenant.record, &tenant.searching).life == system::Life::gone;
}

bool ProcessWatch::holder_is_gone(Tenant& tenant, std::uint32_t device, std::uint32_t holder) {
  return holder <= contract::kMaxProcesses
             ? slot_is_dead(tenant, holder - 1)
             : tenant.locks.abandoned(tenant.pages.claim(), device, system::monotonic_ns());
}

void ProcessWatch::scan(Tenant& tenant) {
  if (repair_claim(tenant) && tenant.overwriting.tell(system::monotonic_ns()))
    hooks_.tampered(tenant, "claim was overwritten");
  tenant.locks.look(tenant.pages.claim(), system::monotonic_ns());
  unsigned noticed = 0;
  const std::uint64_t read_ns = system::monotonic_ns();
  for (const SlotView& slot : taken_slots(tenant.pages.claim(), tenant.pages.slots())) {
    const auto known = std::find_if(tenant.processes.begin(), tenant.processes.end(),
                                    [&](const LiveProcess& p) { return p.slot == slot.index; });
    if (known != tenant.processes.end()) {
      const bool same =
          static_cast<std::uint32_t>(known->tenant_pid) == slot.pid && known->start_ticks == slot.start_ticks;
      if (same && slot.state == contract::kSlotReaping && !known->dead) continue;  // a neighbour of it is at work
      const bool filled = known->pending && slot.state == contract::kSlotLive;
      const bool stale = known->pending && system::monotonic_ns() - known->seen_ns > kClaimedForNs;
      if (same && stale && !filled && !known->dead) {
        known->dead = true;  // its process died between taking the slot and filling it
        reap(tenant, slot.index);
      }
      if (same && !filled) continue;
      // Another process has the slot now: the first has died and a peer has returned what it held.
      if (known->pidfd) loop_.forget(known->pidfd.get());
      tenant.processes.erase(known);
    }
    // To find out who it is takes time, and a tenant may write into every slot as often as it likes.
    if (noticed++ < kNoticedAScan) take_notice_of(tenant, slot, read_ns);
  }
  const auto gone = std::remove_if(tenant.processes.begin(), tenant.processes.end(), [&](LiveProcess& process) {
    if (slot_view(tenant.pages.claim(), process.slot).state != contract::kSlotFree) return false;
    if (process.pidfd) loop_.forget(process.pidfd.get());
    return true;
  });
  if (gone == tenant.processes.end()) return;
  tenant.processes.erase(gone, tenant.processes.end());
  hooks_.changed(tenant);
}

void ProcessWatch::take_notice_of(Tenant& tenant, const SlotView& slot, std::uint64_t read_ns) {
  LiveProcess process;
  process.slot = slot.index;
  process.tenant_pid = static_cast<pid_t>(slot.pid);
  process.start_ticks = slot.start_ticks;
  process.said = slot;
  process.seen_ns = system::monotonic_ns();
  if (slot.state == contract::kSlotClaimed) {
    process.pending = true;
    tenant.processes.push_back(std::move(process));
    return;
  }
  // What cannot be told now the next scan asks again.
  const auto [life, host_pid] = search_.find(slot, read_ns, tenant.record, &tenant.searching);
  if (life == system::Life::unknown) return;
  if (life == system::Life::gone) {
    process.dead = true;
    tenant.processes.push_back(std::move(process));
    reap(tenant, slot.index);
    return;
  }
  auto pidfd = system::open_pidfd(host_pid);
  if (!pidfd && !system::is_gone(host_pid)) return;
  // Each of the questions below opens a file, and none can be answered without.
  if (pidfd && !system::Fd(::fcntl(pidfd->get(), F_DUPFD_CLOEXEC, 0))) return;
  bool is_own = descends_from(tenant.record, host_pid);
  if (!is_own) {
    if (!budget_.has_more(tenant.record.user, process.seen_ns)) return;
    is_own = in_view_of(tenant.record, host_pid);
    budget_.spend(tenant.record.user, process.seen_ns, system::monotonic_ns());
  }
  if (!is_own) {
    std::string foreign = hooks_.member_elsewhere(tenant, host_pid);
    if (!foreign.empty()) foreign = " of tenant " + foreign;
    // We have every claim page in our memory and belong to none of them.
    if (host_pid == ::getpid()) foreign = ", which is the hypervisor";
    if (foreign.empty()) {
      const auto mapped = tenant.maps.has_mapped(system::living_thread(host_pid), slot.start_ticks,
                                                 tenant.pages.claim_file(), contract::kClaimFile, process.seen_ns);
      if (mapped == MapReader::Answer::later) return;  // the next scan asks again
      if (mapped != MapReader::Answer::yes) foreign = ", which is not one of its own";
    }
    // One that has died meanwhile shows nothing: its slot is returned below.
    const system::Life now = system::life_of(host_pid, slot.start_ticks);
    if (now == system::Life::unknown) return;
    if (!foreign.empty() && now == system::Life::lives) {
      hooks_.tampered(tenant, "claims process " + std::to_string(host_pid) + foreign);
      tenant.processes.push_back(std::move(process));  // host_pid stays 0: not watched, not listed, not signalled
      return;
    }
  }
  process.host_pid = host_pid;
  if (!pidfd || system::life_of(host_pid, slot.start_ticks) == system::Life::gone) {
    process.dead = true;
    tenant.processes.push_back(std::move(process));
    reap(tenant, slot.index);
    return;
  }
  process.pidfd = *std::move(pidfd);
  const std::string id = tenant.record.id;
  const std::uint32_t index = slot.index;
  const std::uint64_t ticks = slot.start_ticks;
  static_cast<void>(loop_.watch(process.pidfd.get(), EPOLLIN, [this, id, index, ticks](std::uint32_t) {
    if (Tenant* found = hooks_.find(id)) on_death(*found, index, ticks);
  }));
  tenant.processes.push_back(std::move(process));
  hooks_.changed(tenant);
}

void ProcessWatch::on_death(Tenant& tenant, std::uint32_t slot, std::uint64_t start_ticks) {
  for (LiveProcess& process : tenant.processes) {
    if (process.slot != slot || process.start_ticks != start_ticks) continue;
    if (process.pidfd) loop_.forget(process.pidfd.get());
    process.pidfd.reset();
    process.dead = true;
    reap(tenant, slot);
    hooks_.died(tenant);
    return;
  }
}

void ProcessWatch::reap(Tenant& tenant, std::uint32_t slot) {
  contract::ClaimPage& page = tenant.pages.claim();
  const auto known = std::find_if(tenant.processes.begin(), tenant.processes.end(),
                                  [&](const LiveProcess& p) { return p.slot == slot; });
  if (known == tenant.processes.end() || !known->dead) return;
  const SlotView view = slot_view(page, slot);
  const bool same = view.pid == static_cast<std::uint32_t>(known->tenant_pid) && view.start_ticks == known->start_ticks;
  const auto is_gone = [&](std::uint32_t device, std::uint32_t holder) {
    return holder_is_gone(tenant, device, holder);
  };
  if (same && !reap_slot(page, tenant.pages.slots(), slot, {view.pid, view.start_ticks}, is_gone)) {
    reap_later(tenant.record.id, slot, 2'000'000);
    return;
  }
  tenant.processes.erase(known);
  hooks_.changed(tenant);
}

void ProcessWatch::reap_later(const std::string& id, std::uint32_t slot, std::uint64_t delay_ns) {
  loop_.after(delay_ns, [this, id, slot] {
    if (Tenant* tenant = hooks_.find(id)) reap(*tenant, slot);
  });
}

}  // namespace tensor_fusion::node::hypervisor
