#include "node/hypervisor/membership.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "node/hypervisor/view_mount.h"
#include "system/clock.h"
#include "system/fd.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr int kMostLists = 16;                // ends on a machine where somebody starts processes without pause
constexpr std::size_t kMostNamespaces = 128;  // with mounts of their own, looked at in one look
constexpr int kMaxAncestors = 256;            // deeper than any shell goes; ends a chain that changes under us

bool acceptable_user(pid_t pid, const TenantRecord& record) {
  if (record.user == 0) return true;
  const auto user = system::process_user(pid);
  return user && *user == record.user;
}

// Who made the outermost of the user namespaces, below ours, that this mount namespace stands in. Nobody: it stands in
// ours, as what a service or a container of root has, or outside of it.
std::optional<uid_t> maker_of(int mount_namespace) {
  const std::uint64_t ours = system::namespace_inode(::getpid(), "user");
  std::optional<uid_t> maker;
  system::Fd at(::ioctl(mount_namespace, NS_GET_USERNS));
  for (struct stat info{}; at && ::fstat(at.get(), &info) == 0 && info.st_ino != ours;) {
    uid_t user = 0;
    if (::ioctl(at.get(), NS_GET_OWNER_UID, &user) == 0) maker = user;
    at = system::Fd(::ioctl(at.get(), NS_GET_PARENT));
  }
  return maker;
}

enum class Made { kWithin, kElsewhere, kUnknown, kEnded };

// Which mount namespaces were made within the tenant's view. Each is looked at until one of its processes shows it
// whole: another may have a root that hides the mounts.
class MadeInView {
 public:
  explicit MadeInView(const TenantRecord& record) : record_(record) {
    for (const std::uint64_t shared : {system::namespace_inode(::getpid(), "mnt"), system::namespace_inode(1, "mnt"),
                                       record.outer_namespace, std::uint64_t{0}})
      answers_[shared] = false;
  }
  Made ask(pid_t pid, std::uint64_t mount_namespace) {
    if (record_.mount_namespace == 0 || record_.grant_mount.empty()) return Made::kElsewhere;
    const auto known = answers_.find(mount_namespace);
    if (known != answers_.end()) return known->second ? Made::kWithin : Made::kElsewhere;
    if (answers_.size() < kMostNamespaces) {
      const Mounts mounts = mounts_of(pid);
      const bool within = has_mount(mounts.text, record_.grant_mount);
      if (within || mounts.whole) {
        unknown_.erase(mount_namespace);
        return (answers_[mount_namespace] = within) ? Made::kWithin : Made::kElsewhere;
      }
    }
    return ask_for_maker(pid, mount_namespace);
  }
  bool knows_all() const { return unknown_.empty(); }

 private:
  // Who has given up the right to mount needs a user namespace of its own for this, and a stranger's is no reason to
  // keep a slice.
  Made ask_for_maker(pid_t pid, std::uint64_t mount_namespace) {
    const std::string path = "/proc/" + std::to_string(system::living_thread(pid)) + "/ns/mnt";
    const system::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info{};
    if (!file || ::fstat(file.get(), &info) != 0 || info.st_ino != mount_namespace) return Made::kEnded;
    if (maker_of(file.get()) != record_.user) return Made::kElsewhere;
    unknown_.insert(mount_namespace);
    return Made::kUnknown;
  }

  const TenantRecord& record_;
  std::unordered_map<std::uint64_t, bool> answers_;
  std::unordered_set<std::uint64_t> unknown_;
};

struct Members {
  std::vector<pid_t> pids;
  bool complete = false;  // nobody can have been missed
};

// A process that forks and exits while the others are looked at leaves its child to the next list: so lists again until
// all who were new in one have been seen alive. Who is in the view is told of at once: it may be about to fork.
Members look_for_members(const TenantRecord& record, const std::function<void(pid_t)>& found = {}) {
  Members members;
  MadeInView made_in_view(record);
  std::unordered_set<pid_t> seen, in_view;
  std::unordered_map<pid_t, system::ProcessStat> table;
  for (int list = 0; !members.complete && list < kMostLists; ++list) {
    members.complete = true;
    for (const pid_t pid : system::all_processes()) {
      if (!seen.insert(pid).second) continue;
      const std::uint64_t view = system::namespace_inode(pid, "mnt");
      auto stat = system::process_stat(pid);
      const bool alive = stat && !stat->dead();
      Made made = !alive || view == 0 ? Made::kEnded : Made::kWithin;
      if (made == Made::kWithin && view != record.mount_namespace) made = made_in_view.ask(pid, view);
      if (made == Made::kWithin) {
        in_view.insert(pid);
        if (found) found(pid);
      }
      if (alive) table.emplace(pid, *std::move(stat));
      if (made == Made::kEnded) members.complete = false;
    }
  }
  members.complete = members.complete && made_in_view.knows_all();
  // Each chain of parents is followed in memory.
  const auto descends = [&](pid_t pid) {
    for (int step = 0; step < kMaxAncestors; ++step) {
      const auto at = table.find(pid);
      if (at == table.end()) return false;
      if (pid == record.root_pid) return at->second.start_ticks == record.root_ticks;
      pid = at->second.parent;
    }
    return false;
  };
  for (const auto& [pid, stat] : table)
    if ((record.started() && descends(pid)) || in_view.contains(pid)) members.pids.push_back(pid);
  return members;
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

bool in_view_of(const TenantRecord& record, pid_t pid) {
  return in_namespace_of(record, pid) ||
         MadeInView(record).ask(pid, system::namespace_inode(pid, "mnt")) == Made::kWithin;
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

bool signal_member(const TenantRecord& record, pid_t pid, int number) {
  if (!is_member(record, pid)) return false;
  const auto pidfd = system::open_pidfd(pid);
  // Looked at again behind the pidfd: the number may be another process's by now.
  return pidfd && is_member(record, pid) && system::signal_process(pidfd->get(), number);
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

std::vector<pid_t> members_of(const TenantRecord& record) { return look_for_members(record).pids; }

bool is_empty(const TenantRecord& record) {
  const Members found = look_for_members(record);
  return found.complete && found.pids.empty();
}

bool end_members(const TenantRecord& record, std::uint64_t for_ns) {
  const std::uint64_t begin_ns = system::monotonic_ns();
  std::unordered_set<pid_t> signalled;
  const auto end = [&](pid_t pid) { return signalled.insert(pid).second && signal_member(record, pid, SIGKILL); };
  for (bool any = true; any && system::monotonic_ns() - begin_ns < for_ns;) {
    const Members found = look_for_members(record, end);
    if (found.pids.empty()) return found.complete;
    any = std::ranges::count_if(found.pids, end) > 0 || !found.complete;
  }
  return false;
}

}  // namespace tensor_fusion::node::hypervisor
