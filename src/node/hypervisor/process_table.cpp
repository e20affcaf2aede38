#include "node/hypervisor/process_table.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ranges>
#include <string_view>

#include "node/hypervisor/view_mount.h"
#include "system/clock.h"
#include "system/fd.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

// In one look, of the namespaces of one maker. Reading them keeps everybody waiting, and who makes them decides how
// long.
constexpr std::size_t kMostReads = 256;
constexpr std::size_t kMostBytes = 8u << 20;  // a namespace of a service has some 5 KiB
constexpr std::uint64_t kMostReadNs = 20'000'000;
constexpr std::size_t kMostRoots = 8;       // of the processes of one namespace
constexpr std::size_t kBetweenClocks = 64;  // processes
// What a process that does not let itself be asked for its namespace stands in: one of its own.
constexpr std::uint64_t kUnreadable = 1ull << 63;

}  // namespace

ProcessTable::ProcessTable(const Slices& slices) {
  for (const TenantRecord* slice : slices) {
    if (slice->mount_namespace == 0) continue;
    if (!slice->grant_mount.empty()) grants_.emplace(slice->grant_mount, static_cast<unsigned>(grants_.size()));
    views_.insert(slice->mount_namespace);
    users_.insert(slice->user);
  }
  shared_ = {system::namespace_inode(::getpid(), "mnt"), system::namespace_inode(1, "mnt")};
}

ProcessTable ProcessTable::look(const Slices& slices, std::uint64_t for_ns, const Found& found) {
  ProcessTable table(slices);
  std::uint64_t end_ns = 0;
  std::unordered_set<pid_t> seen;
  bool enough = false;
  for (bool first = true; !table.complete_; first = false) {
    bool complete = true;
    std::size_t looked = 0;
    const auto list = system::all_processes();
    if (!list) {
      table.failed_ = true;
      return table;
    }
    for (const pid_t pid : std::views::reverse(*list)) {  // who has just come may have gone soonest
      if (!seen.insert(pid).second) continue;
      if (!first && looked++ % kBetweenClocks == 0 && system::monotonic_ns() > end_ns) return table;
      complete = table.take(pid, found, enough) && complete;
      if (enough) return table;
    }
    table.complete_ = complete;
    ++table.lists_;
    if (first) end_ns = system::monotonic_ns() + for_ns;
  }
  return table;
}

ProcessTable ProcessTable::look_at(pid_t pid, const Slices& slices) {
  ProcessTable table(slices);
  bool enough = false;
  static_cast<void>(table.take(pid, {}, enough));
  return table;
}

void ProcessTable::look_for_new() {
  bool enough = false;
  for (const pid_t pid : system::all_processes().value_or(std::vector<pid_t>()))
    if (!processes_.contains(pid)) static_cast<void>(take(pid, {}, enough));
}

// Whether it was seen alive, and where it is. One that has gone may have left others; what is there and is not to be
// read now says nothing, however often one lists again.
bool ProcessTable::take(pid_t pid, const Found& found, bool& enough) {
  const auto stat = system::process_stat(pid);
  if (!stat) failed_ = failed_ || !system::is_gone(pid);
  if (!stat || stat->dead()) return false;
  SeenProcess process{pid, stat->parent, stat->start_ticks, system::namespace_inode(pid, "mnt")};
  if (process.mount_namespace == 0) process.mount_namespace = where_unreadable(pid);
  const bool known = process.mount_namespace != 0 && look_into(pid, process.mount_namespace);
  processes_.insert_or_assign(pid, process);
  enough = found && found(*this, process);
  return known;
}

// One that runs what nobody may read (a program with root's rights, an agent with keys) hides its namespace from a
// daemon without these, but not its mounts. Others than the slices' users have nothing there.
std::uint64_t ProcessTable::where_unreadable(pid_t pid) const {
  struct stat info{};
  const std::string path = "/proc/" + std::to_string(system::living_thread(pid)) + "/ns/mnt";
  if (users_.empty() || ::stat(path.c_str(), &info) == 0 || errno != EACCES) return 0;  // it is ending
  const auto users = system::process_users(pid);
  return users && users_.contains(users->real) ? kUnreadable | static_cast<std::uint64_t>(pid) : 0;
}

bool ProcessTable::Spent::has_more() const { return reads < kMostReads && bytes < kMostBytes && ns < kMostReadNs; }

// By one process of each root that there is: who has another is shown other mounts. False: it has ended.
bool ProcessTable::look_into(pid_t pid, std::uint64_t mount_namespace) {
  if (shared_.contains(mount_namespace)) return true;
  Namespace& place = namespaces_[mount_namespace];
  if (views_.contains(mount_namespace)) place.whole = true;  // and of no other slice
  if (place.whole && place.roots.empty()) return true;
  if (grants_.empty()) return true;
  if (!place.asked && !ask_for_maker(pid, mount_namespace, place)) return false;
  const auto root = root_of(pid);
  if (!root) return false;
  if (std::ranges::find(place.roots, *root) != place.roots.end()) return true;
  if (place.roots.size() < kMostRoots && spent_[place.maker].has_more())
    return read_mounts(pid, mount_namespace, *root, place);
  place.left_out = true;
  return true;
}

bool ProcessTable::read_mounts(pid_t pid, std::uint64_t mount_namespace, const RootFolder& root, Namespace& place) {
  Spent& spent = spent_[place.maker];
  const std::uint64_t begin_ns = system::thread_cpu_ns();
  const Mounts mounts = mounts_of(pid, begin_ns + kMostReadNs - spent.ns);
  ++spent.reads;
  spent.bytes += mounts.text.size();
  spent.ns += system::thread_cpu_ns() - begin_ns;
  failed_ = failed_ || mounts.failed;
  if (mounts.text.empty() && system::is_gone(pid)) return false;
  const bool unreadable = (mount_namespace & kUnreadable) != 0;
  if (!unreadable && system::namespace_inode(pid, "mnt") != mount_namespace) return false;
  for_each_mount(mounts.text, [&](std::string_view name) {
    const auto grant = grants_.find(name);
    if (grant != grants_.end() && std::ranges::find(place.grants, grant->second) == place.grants.end())
      place.grants.push_back(grant->second);
  });
  place.roots.push_back(root);
  // A root elsewhere than at the top may show a list that is not empty, and not the whole one.
  if (mounts.whole && (unreadable || root.path == "/")) place.whole = true;
  return true;
}

bool ProcessTable::ask_for_maker(pid_t pid, std::uint64_t mount_namespace, Namespace& place) {
  if ((mount_namespace & kUnreadable) != 0) {
    if (const auto users = system::process_users(pid)) place.maker = users->real;
    return place.asked = place.maker.has_value();
  }
  const std::string path = "/proc/" + std::to_string(system::living_thread(pid)) + "/ns/mnt";
  const system::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (!file || ::fstat(file.get(), &info) != 0) {
    failed_ = failed_ || (errno != ENOENT && errno != ESRCH);
    return false;
  }
  if (info.st_ino != mount_namespace) return false;
  system::Fd users(::ioctl(file.get(), NS_GET_USERNS));
  if (!users && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
    failed_ = true;
    return false;
  }
  place.asked = true;
  place.maker = system::maker_of(std::move(users));
  return true;
}

bool ProcessTable::knows(const TenantRecord& slice) const {
  return slice.mount_namespace == 0 || slice.grant_mount.empty() || grants_.contains(slice.grant_mount);
}

// Who has given up the right to mount needs a user namespace of its own to make a mount namespace, and a stranger's
// that hides its mounts is no reason to keep a slice.
InView ProcessTable::in_view(const TenantRecord& slice, std::uint64_t mount_namespace) const {
  if (slice.mount_namespace == 0 || mount_namespace == 0) return InView::kNo;
  if (mount_namespace == slice.mount_namespace) return InView::kYes;
  if (slice.grant_mount.empty() || shared_.contains(mount_namespace)) return InView::kNo;
  const auto grant = grants_.find(slice.grant_mount);
  const auto place = namespaces_.find(mount_namespace);
  if (grant == grants_.end() || place == namespaces_.end()) return InView::kUnknown;
  if (std::ranges::find(place->second.grants, grant->second) != place->second.grants.end()) return InView::kYes;
  if (mount_namespace == slice.outer_namespace) return InView::kNo;
  if (place->second.whole && !place->second.left_out) return InView::kNo;
  return !place->second.asked || place->second.maker == slice.user ? InView::kUnknown : InView::kNo;
}

const SeenProcess* ProcessTable::find(pid_t pid) const {
  const auto at = processes_.find(pid);
  return at == processes_.end() ? nullptr : &at->second;
}

std::size_t ProcessTable::reads_of(std::optional<uid_t> maker) const {
  const auto at = spent_.find(maker);
  return at == spent_.end() ? 0 : at->second.reads;
}

bool ProcessTable::has_root(const TenantRecord& slice) const {
  const SeenProcess* root = slice.started() ? find(slice.root_pid) : nullptr;
  return root && root->start_ticks == slice.root_ticks;
}

bool ProcessTable::descends(const TenantRecord& slice, const SeenProcess& process) const {
  return any_of_line(
      process, [this](pid_t pid) { return find(pid); },
      [&](const SeenProcess& one) { return one.pid == slice.root_pid && one.start_ticks == slice.root_ticks; });
}

std::vector<SeenProcess> ProcessTable::members_of(const TenantRecord& slice) const {
  const bool by_descent = has_root(slice);
  std::unordered_map<std::uint64_t, bool> within;
  std::vector<SeenProcess> members;
  for (const auto& [pid, process] : processes_) {
    const auto [known, is_new] = within.try_emplace(process.mount_namespace);
    if (is_new) known->second = in_view(slice, process.mount_namespace) == InView::kYes;
    if (known->second || (by_descent && descends(slice, process))) members.push_back(process);
  }
  return members;
}

bool ProcessTable::shows_nobody_of(const TenantRecord& slice) const {
  if (lists_ == 0 || failed_ || !knows(slice) || has_root(slice)) return false;
  return std::ranges::all_of(namespaces_,
                             [&](const auto& entry) { return in_view(slice, entry.first) == InView::kNo; });
}

}  // namespace tensor_fusion::node::hypervisor
