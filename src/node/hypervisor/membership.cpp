#include "node/hypervisor/membership.h"

#include <unistd.h>

#include <unordered_map>

#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr int kMaxAncestors = 256;  // deeper than any shell goes; ends a chain that changes under us

bool acceptable_user(pid_t pid, const TenantRecord& record) {
  if (record.user == 0) return true;
  const auto user = system::process_user(pid);
  return user && *user == record.user;
}

}  // namespace

std::uint64_t private_mount_namespace(const TenantRecord& record, pid_t root) {
  const std::uint64_t theirs = system::namespace_inode(root, "mnt");
  const bool shared = theirs == system::namespace_inode(::getpid(), "mnt") ||
                      theirs == system::namespace_inode(1, "mnt") || theirs == record.outer_namespace;
  // Without knowing where the request came from nothing tells a namespace of its own from one that many share.
  return shared || record.outer_namespace == 0 ? 0 : theirs;
}

bool in_namespace_of(const TenantRecord& record, pid_t pid) {
  return record.mount_namespace != 0 && system::namespace_inode(pid, "mnt") == record.mount_namespace;
}

bool descends_from(const TenantRecord& record, pid_t pid) {
  if (!record.started()) return false;
  for (int step = 0; step < kMaxAncestors && pid > 1; ++step) {
    const auto stat = system::process_stat(pid);
    if (!stat) return false;
    if (pid == record.root_pid) return stat->start_ticks == record.root_ticks;
    pid = stat->parent;
  }
  return false;
}

std::optional<pid_t> host_pid_of(const SlotView& slot, const TenantRecord& record) {
  const auto pid = static_cast<pid_t>(slot.pid);
  if (pid <= 0) return std::nullopt;
  const std::uint64_t ours = system::namespace_inode(::getpid(), "pid");
  const auto fits = [&](pid_t candidate) {
    const auto stat = system::process_stat(candidate);
    return stat && !stat->dead() && stat->start_ticks == slot.start_ticks && acceptable_user(candidate, record);
  };
  if (slot.pid_namespace == 0 || slot.pid_namespace == ours) return fits(pid) ? std::optional(pid) : std::nullopt;
  for (const pid_t candidate : system::all_processes()) {
    if (!fits(candidate)) continue;
    const auto names = system::namespace_pids(candidate);
    if (names.size() < 2 || names.back() != pid) continue;
    if (system::namespace_inode(candidate, "pid") == slot.pid_namespace) return candidate;
  }
  return std::nullopt;
}

std::vector<pid_t> members_of(const TenantRecord& record) {
  // One pass for the parents, then each chain is followed in memory.
  std::unordered_map<pid_t, system::ProcessStat> table;
  for (const pid_t pid : system::all_processes())
    if (auto stat = system::process_stat(pid); stat && !stat->dead()) table.emplace(pid, *std::move(stat));
  const auto descends = [&](pid_t pid) {
    for (int step = 0; step < kMaxAncestors; ++step) {
      const auto found = table.find(pid);
      if (found == table.end()) return false;
      if (pid == record.root_pid) return found->second.start_ticks == record.root_ticks;
      pid = found->second.parent;
    }
    return false;
  };
  std::vector<pid_t> members;
  for (const auto& [pid, stat] : table)
    if ((record.started() && descends(pid)) || in_namespace_of(record, pid)) members.push_back(pid);
  return members;
}

}  // namespace tensor_fusion::node::hypervisor
