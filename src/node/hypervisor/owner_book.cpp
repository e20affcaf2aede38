#include "node/hypervisor/owner_book.h"

#include <algorithm>

#include "node/hypervisor/membership.h"
#include "node/hypervisor/process_table.h"
#include "system/clock.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr unsigned kEditionsKept = 8;  // of one that nobody asks about any more

}  // namespace

Tenant* OwnerBook::owner_of(pid_t pid, const std::vector<Tenant*>& tenants) {
  const auto stat = system::process_stat(pid);
  if (!stat) return nullptr;
  const std::uint64_t mounts = system::namespace_inode(pid, "mnt");
  const auto known = owners_.find(pid);
  const bool is_known = known != owners_.end() && known->second.start_ticks == stat->start_ticks &&
                        known->second.mount_namespace == mounts;
  if (is_known && known->second.edition == edition_) return known->second.tenant;
  const auto owner = look({pid, stat->parent, stat->start_ticks, mounts}, tenants);
  if (!owner) return is_known ? known->second.tenant : nullptr;
  if (mounts != 0) owners_[pid] = {stat->start_ticks, mounts, *owner, edition_};
  return *owner;
}

std::optional<Tenant*> OwnerBook::look(const SeenProcess& process, const std::vector<Tenant*>& tenants) {
  for (Tenant* tenant : tenants)
    if (tenant->record.mount_namespace != 0 && tenant->record.mount_namespace == process.mount_namespace) return tenant;
  for (const SeenProcess& ancestor : with_ancestors(process))
    for (Tenant* tenant : tenants)
      if (tenant->record.root_pid == ancestor.pid && tenant->record.root_ticks == ancestor.start_ticks &&
          tenant->record.started())
        return tenant;
  const auto users = system::process_users(process.pid);
  const std::uint64_t begin_ns = system::monotonic_ns();
  if (!users || !budget_.has_more(users->real, begin_ns)) return std::nullopt;
  const ProcessTable table = ProcessTable::look_at(process.pid, records_of(tenants));
  budget_.spend(users->real, begin_ns, system::monotonic_ns());
  const auto owner = std::ranges::find_if(tenants, [&](const Tenant* tenant) {
    return table.in_view(tenant->record, process.mount_namespace) == InView::kYes;
  });
  return owner == tenants.end() ? nullptr : *owner;
}

void OwnerBook::ask_anew() {
  ++edition_;
  std::erase_if(owners_, [this](const auto& entry) { return edition_ - entry.second.edition > kEditionsKept; });
}

void OwnerBook::forget(const Tenant& tenant) {
  std::erase_if(owners_, [&](const auto& entry) { return entry.second.tenant == &tenant; });
  ask_anew();
}

}  // namespace tensor_fusion::node::hypervisor
