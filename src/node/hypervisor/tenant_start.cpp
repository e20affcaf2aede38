// How a tenant's first process is taken in, and where its view is.
#include <sys/epoll.h>

#include <algorithm>

#include "node/hypervisor/membership.h"
#include "node/hypervisor/tenant_table.h"
#include "system/clock.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using base::ErrorCode;

constexpr std::size_t kMostAsked = 8;  // processes, whether they are where a slice's grant is mounted
constexpr std::uint64_t kWatchAgainNs = 100'000'000;

}  // namespace

base::Result<void> TenantTable::started(Tenant& tenant, const system::ProcessStat& first) {
  const auto user = system::process_user(first.pid);
  if (!user) return base::fail(ErrorCode::kNotFound, "there is no process " + std::to_string(first.pid));
  if (tenant.record.started()) {
    if (tenant.record.root_pid == first.pid && tenant.record.root_ticks == first.start_ticks) {
      look_where_it_is(tenant);
      return {};
    }
    return base::fail(ErrorCode::kUsage, "tenant " + tenant.record.name + " has started already");
  }
  if (tenant.record.user != 0 && *user != tenant.record.user)
    return base::fail(ErrorCode::kPermission, "process " + std::to_string(first.pid) + " belongs to another user");
  TenantRecord record = tenant.record;
  record.root_pid = first.pid;
  record.root_ticks = first.start_ticks;
  View view = private_view(record, first.pid);
  record.mount_namespace = view.number;
  if (auto saved = save_record(state_.record(record.id), record); !saved) return saved;
  owners_.ask_anew();
  tenant.record = std::move(record);
  tenant.view = std::move(view.kept);
  tenant.lease = 0;
  watch_root(tenant);
  return {};
}

void TenantTable::watch_root(Tenant& tenant) {
  tenant.watched_ns = system::monotonic_ns();
  const std::string id = tenant.record.id;
  auto pidfd = system::open_pidfd(tenant.record.root_pid);
  const system::Life life = system::life_of(tenant.record.root_pid, tenant.record.root_ticks);
  if (life == system::Life::gone) {
    tenant.root_dead = true;
    guard_view(tenant);
    loop_.after(0, [this, id] {
      if (Tenant* found = find_by_id(id)) end_if_over(*found);
    });
    return;
  }
  if (life == system::Life::unknown || !pidfd) {
    // Descriptors are wanting, and nobody's end is told by that.
    loop_.after(kWatchAgainNs, [this, id] {
      Tenant* found = find_by_id(id);
      if (found && !found->root && !found->root_dead) watch_root(*found);
    });
    return;
  }
  tenant.root = *std::move(pidfd);
  guard_view(tenant);
  static_cast<void>(loop_.watch(tenant.root.get(), EPOLLIN, [this, id](std::uint32_t) {
    Tenant* found = find_by_id(id);
    if (!found) return;
    loop_.forget(found->root.get());
    found->root_ended = system::ended_with(found->root.get(), found->record.root_pid);
    found->root.reset();
    found->root_dead = true;
    scan(*found);
    end_if_over(*found);
  }));
}

// It may enter a namespace of its own only after `started` was said.
void TenantTable::look_where_it_is(Tenant& tenant) {
  if (tenant.record.mount_namespace != 0 || tenant.root_dead) return;
  View view = private_view(tenant.record, tenant.record.root_pid);
  if (view.number == 0) return;
  tenant.record.mount_namespace = view.number;
  tenant.view = std::move(view.kept);
  owners_.ask_anew();
  static_cast<void>(save_record(state_.record(tenant.record.id), tenant.record));
  guard_view(tenant);
}

// The first process, or those that live in the view when it has ended.
std::vector<pid_t> TenantTable::in_namespace(const Tenant& tenant) {
  if (system::is_alive(tenant.record.root_pid, tenant.record.root_ticks)) return {tenant.record.root_pid};
  if (!restoring_) {
    restoring_ = ProcessTable::look({}, 0);
    loop_.after(0, [this] { restoring_.reset(); });
  }
  std::vector<pid_t> pids;
  for (const auto& [pid, process] : restoring_->all())
    if (process.mount_namespace == tenant.record.mount_namespace) pids.push_back(pid);
  return pids;
}

// Nobody kept the namespace while no hypervisor ran: its number may be a stranger's by now. Who is where the grant is
// mounted belongs to the slice all the same.
void TenantTable::find_view(Tenant& tenant) {
  const auto pids = in_namespace(tenant);
  for (std::size_t i = 0; i < std::min(pids.size(), kMostAsked); ++i) {
    View view = view_of(tenant.record, pids[i]);
    if (view.number != tenant.record.mount_namespace) continue;
    tenant.view = std::move(view.kept);
    return;
  }
  tenant.record.mount_namespace = kNumberUnknown;
}

void TenantTable::guard_view(Tenant& tenant) {
  if (tenant.record.mount_namespace == 0 || tenant.guard) return;
  const std::string id = tenant.record.id;
  bool unsafe = false;
  for (const pid_t pid : in_namespace(tenant)) {
    tenant.guard = SliceGuard::make(
        loop_, pid, tenant.record.mount_namespace, tenant.pages.grant_file(),
        [this, id](const std::string& wrong) {
          if (Tenant* found = find_by_id(id)) note_tampering(*found, wrong);
        },
        &unsafe);
    if (tenant.guard) return;
  }
  if (unsafe)
    events_.add({.kind = "started",
                 .tenant = tenant.record.name,
                 .device = "",
                 .message = "its view lies on a file system that may keep who looks waiting: whether its mounts stay "
                            "is not watched",
                 .user = static_cast<std::int64_t>(tenant.record.user)});
}

}  // namespace tensor_fusion::node::hypervisor
