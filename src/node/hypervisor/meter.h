#pragma once
// What the devices show: asks the provider for processes, sets them against the tenants' ledgers, and has the outcome
// posted in the grants (bulletin.h) and those without a live limiter watched (unlimited_watch.h).
// NVML's pid need not be a tenant's: a server shared by tenants (MPS), or a pid that is not to be seen from here, is
// one account for many, held against all their ledgers together. One reading is under way at a time; who asks meanwhile
// gets the next. One thread.
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "device/provider_process.h"
#include "node/hypervisor/bulletin.h"
#include "node/hypervisor/device_table.h"
#include "node/hypervisor/event_ring.h"
#include "node/hypervisor/overhead_book.h"
#include "node/hypervisor/tenant_table.h"
#include "node/hypervisor/unlimited_watch.h"

namespace tensor_fusion::node::hypervisor {

class Meter {
 public:
  Meter(system::Loop& loop, device::ProviderProcess& provider, DeviceTable& devices, TenantTable& tenants,
        ShareLoop& share, EventRing& events);

  OverheadBook& overheads() { return overheads_; }
  void read_now(std::function<void()> done = {});  // done is called after the next whole reading, or its failure
  void settle(Tenant& tenant);                     // reads if one of its processes asks for it
  void read_periodically(std::uint64_t now_ns);    // also measures shares of time
  void look_at_shares(std::uint64_t now_ns);       // so does this, for who is about to show them
  void read_metrics(std::function<void()> done);   // of the devices: utilisation, temperature, power
  const std::vector<UnlimitedProcess>& unlimited() const { return unlimited_.list(); }
  std::uint64_t readings() const { return readings_; }
  const ShownMemory& observed() const { return observed_; }

 private:
  static bool asks(const Tenant& tenant);
  void begin();
  void finish(const std::vector<ProcessInformation>& processes);
  BeforeReading begin_with(const Tenant& tenant) const;
  void account(const std::vector<ProcessInformation>& processes);
  void apply(Tenant& tenant, const BeforeReading& before);
  void measure_shares(std::uint64_t now_ns);
  void show_possible_shares();  // of slices whose accounts have more than their card gives
  std::uint64_t unmeasured_launches(const Tenant& tenant, std::uint32_t row) const;
  void read_use();
  void look_at_use_in(std::uint64_t ns);

  system::Loop& loop_;
  device::ProviderProcess& provider_;
  DeviceTable& devices_;
  TenantTable& tenants_;
  ShareLoop& share_;
  EventRing& events_;
  bool reading_ = false;
  bool again_ = false;
  bool periodic_ = false;
  bool closely_ = false;       // somebody's use is to be looked at again soon
  bool looks_at_use_ = false;  // ... and will be
  std::uint64_t shares_at_ns_ = 0;
  std::uint64_t used_at_ns_ = 0;  // when use was read last
  std::minstd_rand random_;
  std::uint64_t settle_at_ns_ = 0;  // the next look at who asks; 0: none is due
  std::uint64_t begun_ns_ = 0;
  std::map<std::string, BeforeReading> before_;  // by tenant id
  std::vector<std::function<void()>> waiting_, served_;
  ShownMemory observed_;
  UnlimitedWatch unlimited_;
  OverheadBook overheads_;
  std::map<std::pair<std::string, std::uint32_t>, std::uint64_t> unmeasured_;  // launches, by tenant and row
  std::uint64_t readings_ = 0;
};

}  // namespace tensor_fusion::node::hypervisor
