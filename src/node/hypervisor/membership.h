#pragma once
// Whose process is this? By its mount namespace, which a tenant started in one of its own can leave only for another
// with the same mounts and more, unless it gives itself another root; else by descent from the tenant's first process;
// else by the tenant's own claim, where nothing stronger speaks against it. Reads /proc and signals; no state.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "node/hypervisor/claim_view.h"
#include "node/hypervisor/tenant_record.h"

namespace tensor_fusion::node::hypervisor {

// The mount namespace of the tenant's first process when it is the tenant's own: not ours (a service may have one of
// its own), not the machine's, not that of who asked. 0 otherwise.
std::uint64_t private_mount_namespace(const TenantRecord& record, pid_t root);

bool in_namespace_of(const TenantRecord& record, pid_t pid);
// In the tenant's view, or in a mount namespace that was made within it.
bool in_view_of(const TenantRecord& record, pid_t pid);
bool descends_from(const TenantRecord& record, pid_t pid);
inline bool is_member(const TenantRecord& record, pid_t pid) {
  return in_namespace_of(record, pid) || descends_from(record, pid) || in_view_of(record, pid);
}

// The process on this host that a claim slot speaks of: same pid namespace, same name in it, same start time, same user
// (or a tenant of root). Nothing when there is none: it has died, or the claim lies.
std::optional<pid_t> host_pid_of(const SlotView& slot, const TenantRecord& record);

// Every process that belongs to the tenant, by namespace or descent.
std::vector<pid_t> members_of(const TenantRecord& record);
// Nobody belongs to it, for certain: also where each forks the next and exits while we look, and where one may have
// hidden its mounts by changing its root.
bool is_empty(const TenantRecord& record);

// Signals it, if it is a member; whether it could.
bool signal_member(const TenantRecord& record, pid_t pid, int number);
// Kills all members that it finds, and those who come meanwhile, in about so much time. Whether nobody is left.
bool end_members(const TenantRecord& record, std::uint64_t for_ns);

}  // namespace tensor_fusion::node::hypervisor
