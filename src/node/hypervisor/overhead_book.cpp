#include "node/hypervisor/overhead_book.h"

#include <algorithm>

#include "node/hypervisor/claim_view.h"
#include "node/hypervisor/reconcile.h"

namespace tensor_fusion::node::hypervisor {

void OverheadBook::recall() {
  for (Device& device : devices_.all()) {
    if (device.context_overhead_bytes != 0) continue;
    const std::uint64_t kept = store_.of(device.uuid, device.driver);
    if (kept <= device.memory_bytes / 4) device.context_overhead_bytes = kept;
  }
}

void OverheadBook::learn(Tenant& tenant, const BeforeReading& before, const ShownMemory& shown) {
  for (std::uint32_t row = 0; row < tenant.record.devices.size(); ++row) {
    Device* device = devices_.find(tenant.record.devices[row].uuid);
    if (!device) continue;
    auto& word = tenant.pages.grant().devices[row].context_overhead_bytes;
    if (device->context_overhead_bytes != 0) {  // kept from before, and the page is older than the list of devices
      if (word.load() == 0) word.store(device->context_overhead_bytes, std::memory_order_release);
      doubt(tenant, before, shown, row, *device);
      continue;
    }
    // What an earlier hypervisor has learned stands in the page.
    const std::uint64_t known = word.load();
    if (known <= kMostOverheadBytes) device->context_overhead_bytes = known;
    if (device->context_overhead_bytes == 0) take_from(tenant, before, shown, row, *device);
    if (device->context_overhead_bytes == 0) continue;
    publish(*device);
  }
}

void OverheadBook::publish(const Device& device) {
  store_.keep(device.uuid, device.driver, device.context_overhead_bytes);
  for (Tenant* tenant : tenants_.all())
    for (std::size_t row = 0; row < tenant->record.devices.size(); ++row)
      if (tenant->record.devices[row].uuid == device.uuid)
        tenant->pages.grant().devices[row].context_overhead_bytes.store(device.context_overhead_bytes,
                                                                        std::memory_order_release);
}

// A context costs no more than all that the driver shows for a process that has one.
void OverheadBook::doubt(const Tenant& tenant, const BeforeReading& before, const ShownMemory& shown, std::uint32_t row,
                         Device& device) {
  const contract::ClaimPage& page = tenant.pages.claim();
  const std::uint64_t known = device.context_overhead_bytes;
  for (const LiveProcess& process : tenant.processes) {
    if (process.dead || process.host_pid == 0 || contexts_of(page, process.slot, row) != 1) continue;
    const auto seen = shown.find(process.host_pid);
    const auto ledger = before.ledger.find({process.slot, row});
    if (seen == shown.end() || !seen->second.contains(device.uuid) || ledger == before.ledger.end()) continue;
    const std::uint64_t bytes = seen->second.at(device.uuid);
    const bool holds_nothing_else = ledger->second <= known;
    if (bytes >= known && !holds_nothing_else) continue;  // that says nothing about its context
    const std::uint64_t less = doubts_[device.uuid].saw({process.host_pid, process.start_ticks}, bytes, known);
    if (less == 0) continue;
    device.context_overhead_bytes = less;
    return publish(device);
  }
}

void OverheadBook::take_from(const Tenant& tenant, const BeforeReading& before, const ShownMemory& shown,
                             std::uint32_t row, Device& device) const {
  const contract::ClaimPage& page = tenant.pages.claim();
  for (const LiveProcess& process : tenant.processes) {
    if (process.dead || process.host_pid == 0) continue;
    const auto seen = shown.find(process.host_pid);
    const auto ledger = before.ledger.find({process.slot, row});
    if (seen == shown.end() || ledger == before.ledger.end() || !seen->second.contains(device.uuid)) continue;
    const bool at_rest = page.devices[row].changes.load(std::memory_order_acquire) == before.changes[row];
    // What is paid for by guess is no cost. A process that holds nothing else, before and after, is at rest whatever
    // its neighbours do meanwhile.
    const std::uint64_t guess = before.guessed.at({process.slot, row});
    const std::uint64_t after = ledger_of(page, process.slot, row, device.memory_bytes);
    if (page.processes[process.slot].devices[row].guessed_bytes.load() != guess ||
        guess > std::min(ledger->second, after))
      continue;
    const bool waits = guess != 0 && ledger->second == guess && after == guess;
    const Reading reading{ledger->second - guess, after - guess, seen->second.at(device.uuid), at_rest || waits};
    device.context_overhead_bytes = overhead_from(reading, contexts_of(page, process.slot, row), device.memory_bytes);
    if (device.context_overhead_bytes != 0) break;
  }
}

}  // namespace tensor_fusion::node::hypervisor
