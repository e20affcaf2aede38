#include "node/hypervisor/claim_view.h"

#include <algorithm>

namespace tensor_fusion::node::hypervisor {
namespace {

using contract::ClaimPage;
using contract::ClaimProcess;
using contract::ClaimProcessDevice;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint64_t kMostContexts = 4096;       // of one process; a larger figure is no figure
constexpr std::uint64_t kMostCounted = 1ull << 62;  // sums of 512 such would overflow: capped again below

std::uint64_t add(std::uint64_t a, std::uint64_t b) { return std::min(a + b, kMostCounted); }

bool holds_something(std::uint32_t state) { return state == contract::kSlotLive || state == contract::kSlotReaping; }

const ClaimProcessDevice& row(const ClaimPage& page, std::uint32_t slot, std::uint32_t device) {
  return page.processes[slot % contract::kMaxProcesses].devices[device % contract::kMaxDevices];
}

}  // namespace

bool well_formed(const ClaimPage& page) {
  return page.magic == contract::kClaimMagic && page.abi == contract::kClaimAbi && page.size_bytes == sizeof(ClaimPage);
}

std::uint32_t slot_count(const ClaimPage& page, std::uint32_t known) {
  return std::min<std::uint32_t>(std::max(known, page.process_high.load(std::memory_order_acquire)),
                                 contract::kMaxProcesses);
}

SlotView slot_view(const ClaimPage& page, std::uint32_t slot) {
  const ClaimProcess& process = page.processes[slot % contract::kMaxProcesses];
  SlotView view;
  view.index = slot;
  view.state = process.state.load(std::memory_order_acquire);
  view.pid = process.pid.load(kRelaxed);
  view.start_ticks = process.start_ticks.load(kRelaxed);
  view.pid_namespace = process.pid_namespace.load(kRelaxed);
  view.self_test = process.self_test.load(kRelaxed);
  view.limiter_version = process.limiter_version.load(kRelaxed);
  view.flags = process.flags.load(kRelaxed);
  return view;
}

std::vector<SlotView> taken_slots(const ClaimPage& page, std::uint32_t slots) {
  std::vector<SlotView> views;
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    const SlotView view = slot_view(page, slot);
    if (view.state != contract::kSlotFree) views.push_back(view);
  }
  return views;
}

std::uint64_t ledger_of(const ClaimPage& page, std::uint32_t slot, std::uint32_t device,
                        std::uint64_t device_memory_bytes) {
  return std::min(row(page, slot, device).ledger_bytes.load(kRelaxed), device_memory_bytes);
}

std::uint32_t contexts_of(const ClaimPage& page, std::uint32_t slot, std::uint32_t device) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(row(page, slot, device).contexts.load(kRelaxed), kMostContexts));
}

DeviceView device_view(const ClaimPage& page, std::uint32_t slots, std::uint32_t device,
                       std::uint64_t device_memory_bytes) {
  const contract::ClaimDevice& total = page.devices[device % contract::kMaxDevices];
  DeviceView view;
  view.used_bytes = std::min(total.used_bytes.load(std::memory_order_acquire), device_memory_bytes);
  view.peak_bytes = std::min(total.peak_bytes.load(kRelaxed), device_memory_bytes);
  view.refused = total.refused.load(kRelaxed);
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    if (!holds_something(page.processes[slot].state.load(std::memory_order_acquire))) continue;
    const ClaimProcessDevice& process = row(page, slot, device);
    view.ledger_bytes += std::min(process.ledger_bytes.load(kRelaxed), device_memory_bytes);
    view.held_launches = add(view.held_launches, std::min(process.held_launches.load(kRelaxed), kMostCounted));
    view.launches = add(view.launches, std::min(process.launches.load(kRelaxed), kMostCounted));
    view.contexts += contexts_of(page, slot, device);
    view.blocked += std::min<std::uint32_t>(process.blocked.load(kRelaxed), 1u << 20);
  }
  view.ledger_bytes = std::min(view.ledger_bytes, device_memory_bytes);
  return view;
}

}  // namespace tensor_fusion::node::hypervisor
