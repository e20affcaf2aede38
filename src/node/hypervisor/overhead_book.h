#pragma once
// What a context costs on each device: learned from a process that has one and is at rest, kept for the next
// hypervisor, posted in every tenant's grant, and doubted where others are shown with less (overhead_doubt.h). One
// thread.
#include <cstdint>
#include <map>
#include <string>

#include "node/hypervisor/bulletin.h"
#include "node/hypervisor/device_table.h"
#include "node/hypervisor/overhead_doubt.h"
#include "node/hypervisor/overhead_store.h"
#include "node/hypervisor/tenant_table.h"

namespace tensor_fusion::node::hypervisor {

class OverheadBook {
 public:
  OverheadBook(DeviceTable& devices, TenantTable& tenants) : devices_(devices), tenants_(tenants) {}

  void keep_in(const std::string& file) { store_.open(file); }
  void recall();  // of devices that were met before
  // From a reading that has ended: the tenant's claim as it was before, and what the driver showed.
  void learn(Tenant& tenant, const BeforeReading& before, const ShownMemory& shown);

 private:
  void take_from(const Tenant& tenant, const BeforeReading& before, const ShownMemory& shown, std::uint32_t row,
                 Device& device) const;
  void doubt(const Tenant& tenant, const BeforeReading& before, const ShownMemory& shown, std::uint32_t row,
             Device& device);
  void publish(const Device& device);

  DeviceTable& devices_;
  TenantTable& tenants_;
  OverheadStore store_;
  std::map<std::string, OverheadDoubt> doubts_;  // by device
};

}  // namespace tensor_fusion::node::hypervisor
