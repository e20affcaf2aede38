#include "node/hypervisor/membership.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "node/hypervisor/view_mount.h"
#include "system/fd.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::size_t kMaxAncestors = 256;  // deeper than any shell goes; ends a chain that changes under us

bool acceptable_user(pid_t pid, const TenantRecord& record) {
  if (record.user == 0) return true;
  const auto user = system::process_user(pid);
  return user && *user == record.user;
}

}  // namespace

std::uint64_t private_mount_namespace(const TenantRecord& record, pid_t root) {
  struct stat info{};
  if (::stat(("/proc/" + std::to_string(root) + "/ns/mnt").c_str(), &info) != 0) return 0;
  const auto theirs = static_cast<std::uint64_t>(info.st_ino);
  const bool shared = theirs == system::namespace_inode(::getpid(), "mnt") ||
                      theirs == system::namespace_inode(1, "mnt") || theirs == record.outer_namespace;
  // Without knowing where the request came from nothing tells a namespace of its own from one that many share.
  if (shared || record.outer_namespace == 0) return 0;
  const Mounts mounts = mounts_of_first_thread(root);
  if (!mounts.whole || !has_mount(mounts.text, record.grant_mount)) return 0;
  // It may have gone elsewhere meanwhile.
  const bool stays = ::stat(("/proc/" + std::to_string(root) + "/ns/mnt").c_str(), &info) == 0 &&
                     static_cast<std::uint64_t>(info.st_ino) == theirs;
  return stays ? theirs : 0;
}

bool in_view_of(const TenantRecord& record, pid_t pid) {
  const ProcessTable table = ProcessTable::look_at(pid, {&record});
  const SeenProcess* process = table.find(pid);
  return process && table.in_view(record, process->mount_namespace) == InView::kYes;
}

std::vector<SeenProcess> with_ancestors(SeenProcess process) {
  std::vector<SeenProcess> chain;
  while (chain.size() < kMaxAncestors) {
    chain.push_back(process);
    const auto parent = process.parent > 1 ? system::process_stat(process.parent) : std::nullopt;
    if (!parent) break;
    process = {parent->pid, parent->parent, parent->start_ticks, 0};
  }
  return chain;
}

bool descends_from(const TenantRecord& record, pid_t pid) {
  const auto stat = record.started() ? system::process_stat(pid) : std::nullopt;
  if (!stat) return false;
  return std::ranges::any_of(with_ancestors({pid, stat->parent, stat->start_ticks, 0}), [&](const SeenProcess& one) {
    return one.pid == record.root_pid && one.start_ticks == record.root_ticks;
  });
}

bool is_member(const TenantRecord& record, pid_t pid) { return descends_from(record, pid) || in_view_of(record, pid); }

std::optional<pid_t> host_pid_of(const SlotView& slot, const TenantRecord& record) {
  const auto pid = static_cast<pid_t>(slot.pid);
  if (pid <= 0) return std::nullopt;
  const std::uint64_t ours = system::namespace_inode(::getpid(), "pid");
  const auto fits = [&](pid_t candidate) {
    const auto stat = system::process_stat(candidate);
    return stat && !stat->dead() && !stat->of_kernel && stat->start_ticks == slot.start_ticks &&
           acceptable_user(candidate, record);
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

// As kill(2) says: by its real or saved user, or with all rights in a user namespace that the user has made.
bool may_signal(uid_t user, pid_t pid) {
  const auto users = system::process_users(pid);
  if (users && (users->real == user || users->saved == user)) return true;
  const std::string path = "/proc/" + std::to_string(system::living_thread(pid)) + "/ns/user";
  return users && system::maker_of(system::Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC))) == user;
}

Signalled signal_seen(const SeenProcess& process, int number, std::optional<uid_t> user) {
  const auto pidfd = system::open_pidfd(process.pid);
  if (!pidfd || system::start_ticks(process.pid) != process.start_ticks) return Signalled::kGone;
  if (user && !may_signal(*user, process.pid)) return Signalled::kNotAllowed;
  return system::signal_process(pidfd->get(), number) ? Signalled::kYes : Signalled::kGone;
}

}  // namespace tensor_fusion::node::hypervisor
