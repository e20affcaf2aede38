// How a daemon finds the tenants that outlived the one before it.
#include <unistd.h>

#include "base/id.h"
#include "node/hypervisor/lost_record.h"
#include "node/hypervisor/tenant_table.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {

void TenantTable::restore() {
  for (const std::string& name : system::list_directory(state_.records())) {
    const std::string id = name.substr(0, name.find('.'));
    if (!base::is_short_id(id)) continue;  // not ours: somebody else's to keep or to remove
    if (name == id + ".json")
      restore_one(id);
    else if (name.starts_with(id + ".json.new."))
      ::unlink((state_.records() + "/" + name).c_str());  // half of a write that was under way
  }
  // Pages without a record: a start or an end was under way, or somebody has deleted it under a slice that lives.
  for (const std::string& id : ids_with_pages(state_))
    if (base::is_short_id(id) && !tenants_.contains(id)) restore_one(id);
}

void TenantTable::restore_one(const std::string& id) {
  const bool had_record = system::exists(state_.record(id));
  const auto forget = [&](const std::string& why) {
    ::unlink(state_.record(id).c_str());
    TenantPages::remove(state_.tenant(id), hidden(id));
    if (had_record) events_.add({.kind = "recovered", .tenant = id, .device = "", .message = why});
  };
  auto record = load_record(state_.record(id));
  if (record && record->id != id) record = base::fail(base::ErrorCode::kProtocol, "its record names another tenant");
  if (!record) {
    const std::string lost = had_record ? record.error().message : "its record was gone";
    record = rebuild_record(state_, id);
    if (!record) return forget("given up: " + lost + ", and " + record.error().message);
    events_.add({.kind = "recovered",
                 .tenant = record->name,
                 .device = "",
                 .message = "limits taken from the grant page, for " + lost});
    static_cast<void>(save_record(state_.record(id), *record));
  }
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

}  // namespace tensor_fusion::node::hypervisor
