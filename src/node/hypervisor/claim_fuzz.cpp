// A claim page of any bytes: every reader and every repair stays within its bounds. The input is spread over the head
// of the page and the first slots, where the fields are.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "node/hypervisor/claim_view.h"
#include "node/hypervisor/reclaim.h"

using namespace tensor_fusion;
using namespace tensor_fusion::node::hypervisor;

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static auto* bytes = static_cast<unsigned char*>(std::aligned_alloc(4096, sizeof(contract::ClaimPage)));
  auto& page = *reinterpret_cast<contract::ClaimPage*>(bytes);
  constexpr std::size_t kHead = 128 + 64 * contract::kMaxDevices;
  constexpr std::size_t kSlots = 4096;
  std::memset(bytes, 0, kHead);
  std::memset(bytes + kSlots, 0, 4 * sizeof(contract::ClaimProcess));
  std::memcpy(bytes, data, size < kHead ? size : kHead);
  if (size > kHead)
    std::memcpy(bytes + kSlots, data + kHead, std::min(size - kHead, 4 * sizeof(contract::ClaimProcess)));
  constexpr std::uint64_t kMemory = 80ull << 30;
  well_formed(page);
  if (taken_slots(page, slot_count(page, 0)).size() > contract::kMaxProcesses) std::abort();
  for (std::uint32_t device = 0; device < contract::kMaxDevices; ++device) {
    const DeviceView view = device_view(page, slot_count(page, 0), device, kMemory);
    if (view.ledger_bytes > kMemory || view.used_bytes > kMemory || view.peak_bytes > kMemory) std::abort();
  }
  const auto is_gone = [&](std::uint32_t, std::uint32_t holder) { return holder % 2 == 1; };
  for (std::uint32_t slot = 0; slot < 4; ++slot) reap_slot(page, slot_count(page, 0), slot, {}, is_gone);
  for (std::uint32_t device = 0; device < contract::kMaxDevices; ++device) {
    repair_lock(page, slot_count(page, 0), device, is_gone);
    rebalance(page, slot_count(page, 0), device);
  }
  return 0;
}
