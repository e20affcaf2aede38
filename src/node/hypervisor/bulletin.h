#pragma once
// What a reading of the driver's account showed, posted in a tenant's grant page, where no process of the tenant can
// write: the figures, who is listed, whose turn it is, and that who asked is answered. What was asked after the reading
// began stays open for the next. Owns nothing. One thread.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "node/hypervisor/device_table.h"
#include "node/hypervisor/tenant.h"

namespace tensor_fusion::node::hypervisor {

// A tenant's claim as it was when the reading began.
struct BeforeReading {
  std::vector<std::uint64_t> used, changes;                                  // per row
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> settle;   // slot, row -> request
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> ledger;   // slot, row -> bytes
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> guessed;  // of these
};
using ShownMemory = std::map<pid_t, std::map<std::string, std::uint64_t>>;  // pid -> uuid -> bytes

void list_processes(Tenant& tenant);
void publish_reading(Tenant& tenant, const BeforeReading& before, const ShownMemory& shown, DeviceTable& devices);
// True: somebody has to wait for what the next reading shows, which should follow at once.
bool answer_requests(Tenant& tenant, const BeforeReading& before);

}  // namespace tensor_fusion::node::hypervisor
