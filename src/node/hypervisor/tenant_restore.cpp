// How a daemon finds the tenants that outlived the one before it.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "node/hypervisor/tenant_table.h"
#include "system/clock.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {

using base::ErrorCode;

void TenantTable::restore() {
  for (const std::string& name : system::list_directory(state_.records())) {
    if (!name.ends_with(".json")) {
      ::unlink((state_.records() + "/" + name).c_str());  // half of a write that was under way
      continue;
    }
    restore_one(name.substr(0, name.size() - 5));
  }
  for (const std::string& id : system::list_directory(state_.tenants())) {
    if (tenants_.contains(id)) continue;
    if (!system::exists(state_.record(id))) TenantPages::remove(state_.tenant(id), hidden(id));
  }
}

void TenantTable::restore_one(const std::string& id) {
  const auto forget = [&](const std::string& why) {
    ::unlink(state_.record(id).c_str());
    TenantPages::remove(state_.tenant(id), hidden(id));
    events_.add({.kind = "recovered", .tenant = id, .device = "", .message = why});
  };
  auto record = load_record(state_.record(id));
  if (!record) {
    const std::string torn = record.error().message;
    record = record_from_grant(id);
    if (!record) return forget("given up: " + torn);
    events_.add({.kind = "recovered",
                 .tenant = record->name,
                 .device = "",
                 .message = "limits taken from the grant page, for " + torn});
  }
  if (record->id != id) return forget("given up: its record names another tenant");
  if (record->boot != system::boot_id()) return forget("given up: it ran before this boot");
  std::vector<std::string> damage;
  auto tenant = std::make_unique<Tenant>();
  tenant->record = *std::move(record);
  auto pages = TenantPages::attach(state_.tenant(id), hidden(id), tenant->record, &damage);
  if (!pages) return forget("given up: " + pages.error().message);
  tenant->pages = *std::move(pages);
  Tenant& restored = *tenant;
  adopt(std::move(tenant));
  for (const std::string& wrong : damage) note_tampering(restored, wrong);
  events_.add(
      {.kind = "recovered", .tenant = restored.record.name, .device = "", .message = "its limits and shares go on"});
  scan(restored);
}

// The grant page holds all that keeps limits: a lost record costs the name of the command and the first process.
base::Result<TenantRecord> TenantTable::record_from_grant(const std::string& id) {
  auto page = system::MappedPage::attach(hidden(id) + "." + contract::kGrantFile, sizeof(contract::GrantPage), true);
  if (!page) return std::unexpected(page.error());
  const auto& grant = *page->as<contract::GrantPage>();
  if (grant.magic != contract::kGrantMagic || grant.abi != contract::kGrantAbi || grant.closed.load() != 0)
    return base::fail(ErrorCode::kProtocol, "the grant page makes no sense either");
  TenantRecord record;
  record.id = id;
  record.name = std::string(grant.tenant, ::strnlen(grant.tenant, sizeof grant.tenant));
  record.user = ::geteuid();
  record.created_ms = system::wall_ms();
  record.boot = system::boot_id();
  const std::uint32_t count = std::min<std::uint32_t>(grant.device_count.load(), contract::kMaxDevices);
  for (std::uint32_t i = 0; i < count; ++i) {
    const contract::GrantDevice& row = grant.devices[i];
    TenantDeviceRecord device;
    device.uuid = std::string(row.uuid, ::strnlen(row.uuid, sizeof row.uuid));
    device.index = static_cast<int>(row.device_index);
    device.device_memory_bytes = row.device_memory_bytes.load();
    device.memory_limit_bytes = row.memory_limit_bytes.load();
    device.request_share = row.request_share.load();
    device.limit_share = row.limit_share.load();
    record.devices.push_back(std::move(device));
  }
  return tenant_record_from(to_json(record));  // the same checks as for a file
}

}  // namespace tensor_fusion::node::hypervisor
