#pragma once
// The devices of this node as the provider shows them. A device keeps its ordinal for the daemon's life; one that is no
// longer listed stays, as lost, for tenants may still hold it. One that was lost before anybody saw it has no name: it
// stands for whatever has its index. One thread.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "contract/accelerator.h"
#include "pool/place.h"

namespace tensor_fusion::node::hypervisor {

struct Device {
  std::string uuid;         // canonical
  std::string native_uuid;  // as the provider spells it
  bool nameless = false;
  std::uint32_t ordinal = 0;
  int index = 0;
  std::string vendor, model, driver, node;
  int numa = -1;
  std::uint64_t memory_bytes = 0;
  double tflops = 0;
  std::string trouble;                       // why nothing new is placed here; empty = healthy
  std::string also_shared_by;                // another hypervisor that gives out this one, too; empty = none
  std::vector<std::string> files;            // device files a process needs for this one
  std::uint64_t context_overhead_bytes = 0;  // learned; 0 = not yet
  std::uint64_t outside_bytes = 0;           // used by processes of no tenant
  std::uint64_t shared_bytes = 0;            // of processes that cannot be told apart from here
  std::uint64_t memory_used_bytes = 0;
  unsigned utilisation_percent = 0;
  double temperature_celsius = 0, power_watts = 0;
};

struct DeviceChange {
  std::string uuid;
  std::string message;
};

class DeviceTable {
 public:
  bool known() const { return known_; }  // the provider has answered at least once
  std::vector<DeviceChange> update(std::span<const ExtendedDeviceInfo> devices);
  Device* find(const std::string& uuid);  // any spelling
  std::vector<Device>& all() { return devices_; }
  const std::vector<Device>& all() const { return devices_; }
  std::vector<pool::PlaceDevice> places() const;

 private:
  Device* counterpart(const ExtendedDeviceInfo& info);
  std::vector<Device> devices_;
  bool known_ = false;
};

std::string also_shared_text(const Device& device);  // one sentence

// Whether an Xid means that the device itself is broken, not the program that ran on it.
bool xid_condemns(std::uint64_t xid);

}  // namespace tensor_fusion::node::hypervisor
