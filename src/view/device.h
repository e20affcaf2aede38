#pragma once
// One GPU as people see it: what it is, how much of it is granted, how much is used, whether it is well. Read from the
// hypervisor's `devices` reply. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "view/table.h"

namespace tensor_fusion::view {

struct Device {
  std::string uuid;
  int index = 0;
  std::string model;
  std::string vendor;
  std::string node;  // its device file
  int numa = -1;
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_used_bytes = 0;
  std::uint64_t memory_reserved_bytes = 0;  // the sum of the slices' limits
  double tflops = 0;
  std::optional<double> utilization_percent;
  std::optional<double> temperature_celsius;
  std::optional<double> power_watts;
  bool healthy = true;
  std::string health;
  std::string also_shared_by;             // another hypervisor; empty: none
  std::uint32_t request_share_total = 0;  // basis points
  std::uint32_t limit_share_total = 0;
  std::vector<std::string> slices;
};

std::vector<Device> devices_from(const base::Json& reply);
base::Json to_json(const std::vector<Device>& devices);
std::string to_table(const std::vector<Device>& devices, const Style& style);

}  // namespace tensor_fusion::view
