#include "node/hypervisor/membership.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node/hypervisor/view_mount.h"
#include "system/clock.h"
#include "system/fd.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kFirstReadNs = 50'000'000;  // of a list longer than any that is read at once

std::optional<SeenProcess> without_namespace(pid_t pid) {
  const auto stat = system::process_stat(pid);
  return stat ? std::optional(SeenProcess{pid, stat->parent, stat->start_ticks, 0}) : std::nullopt;
}

}  // namespace

View view_of(const TenantRecord& record, pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/mnt";
  View view;
  system::Fd kept(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (!kept || ::fstat(kept.get(), &info) != 0) return view;
  const auto number = static_cast<std::uint64_t>(info.st_ino);
  if (number == system::namespace_inode(::getpid(), "mnt") || number == system::namespace_inode(1, "mnt")) return view;
  const Mounts mounts = mounts_of_first_thread(pid, system::thread_cpu_ns() + kFirstReadNs);
  if (!mounts.whole || !has_mount(mounts.text, record.grant_mount)) return view;
  // It may have gone elsewhere meanwhile.
  if (::stat(path.c_str(), &info) == 0 && static_cast<std::uint64_t>(info.st_ino) == number)
    view = {number, std::move(kept)};
  return view;
}

View private_view(const TenantRecord& record, pid_t root) {
  // Without knowing where the request came from nothing tells a namespace of its own from one that many share.
  if (record.outer_namespace == 0) return {};
  View view = view_of(record, root);
  return view.number == record.outer_namespace ? View{} : std::move(view);
}

bool in_view_of(const TenantRecord& record, pid_t pid) {
  const ProcessTable table = ProcessTable::look_at(pid, {&record});
  const SeenProcess* process = table.find(pid);
  return process && table.in_view(record, process->mount_namespace) == InView::kYes;
}

std::vector<SeenProcess> with_ancestors(const SeenProcess& process) {
  std::vector<SeenProcess> line;
  static_cast<void>(any_of_line(process, without_namespace, [&](const SeenProcess& one) {
    line.push_back(one);
    return false;
  }));
  return line;
}

bool descends_from(const TenantRecord& record, pid_t pid) {
  const auto process = record.started() ? without_namespace(pid) : std::nullopt;
  return process && any_of_line(*process, without_namespace, [&](const SeenProcess& one) {
           return one.pid == record.root_pid && one.start_ticks == record.root_ticks;
         });
}

// As kill(2) says: by its real or saved user, or with all rights in a user namespace that the user has made.
Signalled may_reach(uid_t user, pid_t pid) {
  const auto users = system::process_users(pid);
  if (!users) return system::is_gone(pid) ? Signalled::kGone : Signalled::kNotAllowed;
  if (users->real == user || users->saved == user) return Signalled::kYes;
  const std::string path = "/proc/" + std::to_string(system::living_thread(pid)) + "/ns/user";
  const bool made = system::maker_of(system::Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC))) == user;
  return made ? Signalled::kYes : Signalled::kNotAllowed;
}

Signalled signal_seen(const SeenProcess& process, int number, std::optional<uid_t> user) {
  const auto pidfd = system::open_pidfd(process.pid);
  if (!pidfd || system::start_ticks(process.pid) != process.start_ticks) return Signalled::kGone;
  if (const Signalled how = user ? may_reach(*user, process.pid) : Signalled::kYes; how != Signalled::kYes) return how;
  return system::signal_process(pidfd->get(), number) ? Signalled::kYes : Signalled::kGone;
}

}  // namespace tensor_fusion::node::hypervisor
