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
#include <vector>

#include "node/hypervisor/share_tenant.h"

namespace tensor_fusion::node::hypervisor {

class ShareLoop {
 public:
  ShareLoop();
  ~ShareLoop();  // stops the thread

  void start();
  void stop();

  void add_tenant(ShareTenantId id, ShareTenant tenant);
  void update_tenant(ShareTenantId id, const std::vector<ShareDevice>& devices);  // new shares; takes effect at once
  void remove_tenant(ShareTenantId id);
  // A process of this tenant has ended: what it had outstanding ran until now, and not until somebody rings.
  void look(ShareTenantId id);
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
