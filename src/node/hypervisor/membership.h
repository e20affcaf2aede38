#pragma once
// Whose process is this? By its mount namespace, which a tenant started in one of its own can leave only for another
// with the same mounts and more, unless it gives itself another root; else by descent from the tenant's first process;
// else by the tenant's own claim, where nothing stronger speaks against it. Of one process each; ProcessTable answers
// for many. Reads /proc and signals; no state.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "node/hypervisor/process_table.h"
#include "node/hypervisor/tenant_record.h"
#include "system/fd.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {

// A mount namespace of which the slice's grant is one of the mounts, by its number and a descriptor that keeps it: the
// kernel gives the numbers of those that nobody has any more to the next ones.
struct View {
  std::uint64_t number = 0;  // 0: there is none
  system::Fd kept;
};
// Where this process's first thread is, when the grant is mounted there: others may have stayed behind, in a namespace
// that many share. None for ours (a service may have one of its own) and for the machine's.
View view_of(const TenantRecord& record, pid_t pid);
// The same of the tenant's first process, and none for that of who asked: it is the tenant's own.
View private_view(const TenantRecord& record, pid_t root);

// In the tenant's view, or in a mount namespace that was made within it.
bool in_view_of(const TenantRecord& record, pid_t pid);
std::vector<SeenProcess> with_ancestors(const SeenProcess& process);  // itself, its parent, and so on; no namespaces
bool descends_from(const TenantRecord& record, pid_t pid);

enum class Signalled { kYes, kGone, kNotAllowed };
// Whether the kernel would let this user signal it, by the user's own kill(2).
Signalled may_reach(uid_t user, pid_t pid);
inline bool may_signal(uid_t user, pid_t pid) { return may_reach(user, pid) == Signalled::kYes; }
// Behind its pidfd, since its number may be another process's by now. `user`: who asks, where it is a stranger.
Signalled signal_seen(const SeenProcess& process, int number, std::optional<uid_t> user);

}  // namespace tensor_fusion::node::hypervisor
