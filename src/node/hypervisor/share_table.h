#pragma once
// Who shares which device: the tenants' pages laid out by device, one arbiter (pool/share.h) each. Reads claims,
// decides and writes grants when asked to; waits for nothing and has no thread. Everything read from a claim page is
// bounded first. Time is an argument. One thread at a time.
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "node/hypervisor/share_claims.h"
#include "node/hypervisor/share_tenant.h"
#include "pool/share.h"

namespace tensor_fusion::node::hypervisor {

class ShareTable {
 public:
  void add(ShareTenantId id, ShareTenant pages, std::uint64_t now);
  void update(ShareTenantId id, const std::vector<ShareDevice>& devices, std::uint64_t now);
  void remove(ShareTenantId id, std::uint64_t now);

  void ring(ShareTenantId id, std::uint64_t now);  // its bell has been heard
  std::uint64_t run(std::uint64_t now);            // decides what is due; returns when the next is
  void beat(std::uint64_t now);                    // writes every heartbeat
  bool anyone() const;                             // some process held a slot when its page was read last

  void observe_utilisation(ShareTenantId id, std::uint32_t device, double percent, std::uint64_t window_ns,
                           std::uint64_t now);
  ShareUsage usage(ShareTenantId id, std::uint32_t device) const;
  std::uint64_t passes() const { return passes_; }
  std::size_t devices() const { return devices_.size(); }

 private:
  struct Place {  // one tenant on one device
    ShareTenantId tenant = 0;
    ShareDevice terms;
    contract::GrantDevice* grant = nullptr;
    const contract::ClaimPage* claim = nullptr;
    ShareClaims claims;
    pool::ShareClaim last;
    std::uint64_t read_ns = 0;
    std::uint64_t shrunk = 0;  // of its counters, as was noticed last
    bool admitted = false;
    bool rung = true;
  };
  struct Device {
    pool::Arbiter arbiter;
    std::vector<Place*> places;
    std::uint64_t due = 0;  // 0: at once
  };
  struct Tenant {
    ShareTenant pages;
    std::vector<std::unique_ptr<Place>> places;
    std::uint64_t outline = 0;
  };

  void place_on_device(ShareTenantId id, Tenant& tenant, const ShareDevice& terms, std::uint64_t now);
  void read(Place& place, Device& device, std::uint64_t now);
  void pass(Device& device, std::uint64_t now);
  static void write(Place& place, const pool::ShareGrant& grant);
  static void announce(Tenant& tenant);

  std::map<ShareTenantId, Tenant> tenants_;
  std::map<std::uint32_t, Device> devices_;
  std::vector<pool::ShareStretch> stretches_;
  std::uint64_t passes_ = 0;
  bool read_since_beat_ = true;
};

}  // namespace tensor_fusion::node::hypervisor
