// A claim page of any content: every reader and every repair stays within its bounds. The input is a row of changes to
// a well-formed page.
#include <cstdlib>

#include "contract/page_patch.h"
#include "node/hypervisor/claim_view.h"
#include "node/hypervisor/reclaim.h"
#include "tools/fuzz/seeds.h"

using namespace tensor_fusion;
using namespace tensor_fusion::node::hypervisor;

namespace {

constexpr std::uint64_t kMemory = 80ull << 30;

void read(const contract::ClaimPage& page) {
  well_formed(page);
  const std::uint32_t slots = slot_count(page, 0);
  if (slots > contract::kMaxProcesses || taken_slots(page, slots).size() > slots) std::abort();
  for (std::uint32_t device = 0; device < contract::kMaxDevices; ++device) {
    const DeviceView view = device_view(page, slots, device, kMemory);
    if (view.ledger_bytes > kMemory || view.used_bytes > kMemory || view.peak_bytes > kMemory) std::abort();
    for (std::uint32_t slot = 0; slot < contract::kPatchedSlots; ++slot) {
      if (ledger_of(page, slot, device, kMemory) > kMemory) std::abort();
      static_cast<void>(contexts_of(page, slot, device));
    }
  }
}

// Of the holders that a page may name, the odd ones are gone.
bool is_gone(std::uint32_t, std::uint32_t holder) { return holder % 2 == 1; }

void put_right(contract::ClaimPage& page) {
  const std::uint32_t slots = slot_count(page, 0);
  for (std::uint32_t slot = 0; slot < contract::kPatchedSlots; ++slot) {
    const SlotView seen = slot_view(page, slot);
    const bool was_live = seen.state == contract::kSlotLive;
    if (reap_slot(page, slots, slot, {seen.pid, seen.start_ticks}, is_gone) && was_live && seen.pid != 0 &&
        page.processes[slot].state.load() == contract::kSlotLive)
      std::abort();  // what was returned is nobody's
  }
  for (std::uint32_t device = 0; device < contract::kMaxDevices; ++device) {
    const std::uint32_t holder = page.devices[device].lock.load() & ~contract::kLockWaiters;
    const bool repaired = repair_lock(page, slots, device, is_gone);
    if (repaired && holder != contract::kHypervisorHolder && !is_gone(device, holder))
      std::abort();  // who lives keeps its lock
    rebalance(page, slots, device);
    if (rebalance(page, slots, device)) std::abort();  // once is enough
  }
}

}  // namespace

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using enum contract::ClaimPlace;
  contract::PatchSeed two_processes, held_lock;
  two_processes.change(head, 0, 0, contract::kProcessHighWord, 2);
  for (std::uint32_t i = 0; i < 2; ++i)
    two_processes.change(slot, i, 0, contract::kStateWord, contract::kSlotLive)
        .change(slot, i, 0, contract::kPidWord, 100 + i)
        .change(counter, i, 0, contract::kLedgerWord, 1 << 20);
  held_lock = two_processes;
  two_processes.change(device, 0, 0, 2, 2 << 20);
  held_lock.change(device, 0, 0, 0, contract::kLockWaiters | 1).change(device, 0, 1, 0, 2);
  return {two_processes.bytes(), held_lock.bytes()};
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static auto* page = static_cast<contract::ClaimPage*>(std::aligned_alloc(4096, sizeof(contract::ClaimPage)));
  contract::begin_page(*page);
  for (contract::PatchInput input(data, size); !input.is_over();) contract::patch(*page, input);
  read(*page);
  put_right(*page);
  read(*page);
  return 0;
}
