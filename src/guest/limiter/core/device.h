#pragma once
// One device of the slice as this process sees it: the driver's ordinal joined (by UUID, never by index) with its rows
// of the grant and claim pages. Made once at attach and never moved, so a reference stays good for the life of the
// process; all fields except the atomics behind the pointers are constant afterwards.
#include <atomic>
#include <cstdint>

#include "contract/claim.h"
#include "contract/cuda.h"
#include "contract/grant.h"

namespace tensor_fusion::guest::limiter {

using namespace tensor_fusion::cuda;  // the driver's own names, throughout the limiter

struct alignas(64) Device {                                 // so that its number is found by a shift
  CUdevice ordinal;                                         // as the real driver numbers it
  std::uint32_t index;                                      // row in the grant and claim pages, < contract::kMaxDevices
  const contract::GrantDevice* grant;                       // read-only mapping; re-read at every decision
  const contract::GrantPage* grant_page;                    // for the heartbeat
  contract::ClaimDevice* claim;                             // the tenant's total
  contract::ClaimProcessDevice* mine;                       // this process's row
  const std::atomic<std::uint32_t>* close_looks = nullptr;  // CloseLooks of this process
};

}  // namespace tensor_fusion::guest::limiter
