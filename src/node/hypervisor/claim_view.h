#pragma once
// The hypervisor's eyes on a claim page. Any bytes may stand there: every index is bounded, every number is capped by
// what the device has, and nothing is read twice to mean the same thing. Pure; reads only.
#include <cstdint>
#include <vector>

#include "contract/claim.h"

namespace tensor_fusion::node::hypervisor {

struct SlotView {
  std::uint32_t index = 0;
  std::uint32_t state = 0;
  std::uint32_t pid = 0;
  std::uint64_t start_ticks = 0;
  std::uint64_t pid_namespace = 0;
  std::uint64_t self_test = 0;
  std::uint32_t limiter_version = 0;
  std::uint32_t flags = 0;
};

bool well_formed(const contract::ClaimPage& page);
// Slots worth looking at: as many as were ever seen taken, whatever the page says now.
std::uint32_t slot_count(const contract::ClaimPage& page, std::uint32_t known);
SlotView slot_view(const contract::ClaimPage& page, std::uint32_t slot);
std::vector<SlotView> taken_slots(const contract::ClaimPage& page, std::uint32_t slots);  // every one that is not free

struct DeviceView {
  std::uint64_t used_bytes = 0;    // as the page has it
  std::uint64_t ledger_bytes = 0;  // the sum over live slots
  std::uint64_t peak_bytes = 0;
  std::uint64_t refused = 0;
  std::uint64_t held_launches = 0;
  std::uint64_t launches = 0;
  std::uint32_t contexts = 0;
  std::uint32_t blocked = 0;
};
DeviceView device_view(const contract::ClaimPage& page, std::uint32_t slots, std::uint32_t device,
                       std::uint64_t device_memory_bytes);
std::uint64_t ledger_of(const contract::ClaimPage& page, std::uint32_t slot, std::uint32_t device,
                        std::uint64_t device_memory_bytes);
std::uint32_t contexts_of(const contract::ClaimPage& page, std::uint32_t slot, std::uint32_t device);

}  // namespace tensor_fusion::node::hypervisor
