#pragma once
// In the first of a ClaimProcessDevice's reserved bytes: how much of its ledger_bytes is a guess, for the one context
// whose cost is yet to be seen. Zero: nothing. A claim like any other.
#include <atomic>
#include <cstdint>

#include "contract/claim.h"

namespace tensor_fusion::contract {

inline std::atomic_ref<std::uint64_t> guessed_bytes(const ClaimProcessDevice& device) {
  static_assert(offsetof(ClaimProcessDevice, reserved) % alignof(std::uint64_t) == 0);
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(device.reserved)));
}

}  // namespace tensor_fusion::contract
