#pragma once
// The fast loop of compute sharing: reads the claim pages, asks the pure arbiter of each device (pool/share.h) who may
// launch, and writes the answer into the grant pages (gate, window_ns, granted_ns, estimate_scale and the
// kComputeUnlimited bit of flags are written here only; so is heartbeat_ns; fallback_share also when pages are made).
// Everything read from a claim page is bounded first: a tenant's lies cost that tenant and nobody else.
//
// Two ways to drive it. Either call start(): it then runs in a thread of its own, woken by the bells and by its own
// deadlines, and every other method may be called from any thread. Or never call start() and call run_once(now) from
// one thread, whenever a bell rang or the time it last returned has come.
#include <cstdint>
#include <memory>
#include <string>
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
  std::uint64_t service_ns = 0;    // device time: measured where markers allow, else estimated
  std::uint64_t estimated_ns = 0;  // the same by the tenant's estimates alone
  std::uint64_t held_ns = 0;       // time its threads spent at the gate, as it claims
  std::uint64_t launches = 0;      // as it claims
  double scale = 1;                // k: measured time / estimated time
  double correction = 1;           // slow correction from NVML, >= 1
  bool admitted = false;
  bool wanting = false;
  bool bypass_suspected = false;  // NVML shows far more use than its claims: the limiter may not be in the way
};

class ShareLoop {
 public:
  ShareLoop();
  ~ShareLoop();  // stops the thread

  void start();
  void stop();

  void add_tenant(ShareTenantId id, ShareTenant tenant);
  void update_tenant(ShareTenantId id, const std::vector<ShareDevice>& devices);  // new shares; takes effect at once
  void remove_tenant(ShareTenantId id);
  // Slow input from NVML: this tenant's utilisation of one device over the last window, percent of the device.
  void observe_utilisation(ShareTenantId id, std::uint32_t device, double percent, std::uint64_t window_ns);

  ShareUsage usage(ShareTenantId id, std::uint32_t device) const;
  std::uint64_t cpu_ns() const;  // CPU time of the thread so far
  std::uint64_t passes() const;  // times a device's arbiter has decided
  int wait_fd() const;           // readable when a bell has rung: for those who call run_once themselves

  // One pass. Returns when the next is due (monotonic); never later than the heartbeat allows.
  std::uint64_t run_once(std::uint64_t now_ns);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tensor_fusion::node::hypervisor
