#pragma once
// What compute sharing needs to know of a tenant, and what it tells about it.
#include <cstdint>
#include <vector>

#include "contract/claim.h"
#include "contract/grant.h"

namespace tensor_fusion::node::hypervisor {

using ShareTenantId = std::uint64_t;

struct ShareDevice {
  std::uint32_t slot = 0;       // row in the tenant's pages
  std::uint32_t device = 0;     // ordinal of the device in this node: tenants with the same ordinal share it
  std::uint32_t request = 0;    // basis points: the floor
  std::uint32_t limit = 10000;  // basis points: the cap
  bool latency = false;         // a latency class: admitted at once while it stays within its request
};

struct ShareTenant {
  contract::GrantPage* grant = nullptr;        // mapped writable; must stay mapped until remove_tenant has returned
  const contract::ClaimPage* claim = nullptr;  // the same; guarded against truncation by system::MappedPage
  int bell = -1;    // read end of the tenant's FIFO, non-blocking; read here, not closed here
  int notify = -1;  // eventfd, written when a ring was about more than compute: a slot was
                    // taken or left, or a settle request made. -1: nobody asks
  std::vector<ShareDevice> devices;
};

// What one tenant has had of one device, for `ps`, `top` and the metrics.
struct ShareUsage {
  std::uint64_t service_ns = 0;  // device time: measured where markers allow, else estimated
  std::uint64_t placed_ns = 0;   // of it, what the device's timeline has told so far: nothing in advance
  std::uint64_t placed_until_ns = ~std::uint64_t{0};  // ... up to when; the highest: until now
  std::uint64_t estimated_ns = 0;                     // service by the tenant's estimates alone
  std::uint64_t held_ns = 0;                          // time its threads spent at the gate, as it claims
  std::uint64_t launches = 0;                         // as it claims
  double scale = 1;                                   // k: measured time / estimated time
  bool admitted = false;
  bool wanting = false;
  unsigned doubt = 0;             // of what it says it wants, by what it made of its turns
  bool look_closely = false;      // its use should be read again soon
  bool bypass_suspected = false;  // NVML shows far more use than its claims: the limiter may not be in the way
};

}  // namespace tensor_fusion::node::hypervisor
