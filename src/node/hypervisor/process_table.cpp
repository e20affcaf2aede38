#include "node/hypervisor/process_table.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ranges>
#include <string_view>

#include "node/hypervisor/view_mount.h"
#include "system/clock.h"
#include "system/fd.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::size_t kMostNamespaces = 128;  // whose mounts are read in one look
constexpr std::size_t kMostBytes = 8u << 20;  // of mounts in one look; a namespace of a service has some 5 KiB
constexpr std::size_t kBetweenClocks = 64;    // processes
constexpr int kMaxAncestors = 256;            // deeper than any shell goes; ends a chain that changes under us

}  // namespace

ProcessTable::ProcessTable(const Slices& slices) {
  for (const TenantRecord* slice : slices)
    if (slice->mount_namespace != 0 && !slice->grant_mount.empty())
      grants_.emplace(slice->grant_mount, static_cast<unsigned>(grants_.size()));
  for (const TenantRecord* slice : slices)
    if (slice->mount_namespace != 0) views_.insert(slice->mount_namespace);
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
    const std::vector<pid_t> list = system::all_processes();
    for (const pid_t pid : std::views::reverse(list)) {  // who has just come may have gone soonest
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

// Whether it was seen alive, and where it is.
bool ProcessTable::take(pid_t pid, const Found& found, bool& enough) {
  const auto stat = system::process_stat(pid);
  if (!stat || stat->dead()) return false;
  const SeenProcess process{pid, stat->parent, stat->start_ticks, system::namespace_inode(pid, "mnt")};
  const bool known = process.mount_namespace != 0 && look_into(pid, process.mount_namespace);
  processes_.insert_or_assign(pid, process);
  enough = found && found(*this, process);
  return known;
}

// Until one of its processes shows it whole: another may have a root that hides the mounts. False: it has ended.
bool ProcessTable::look_into(pid_t pid, std::uint64_t mount_namespace) {
  if (shared_.contains(mount_namespace)) return true;
  const auto [at, is_new] = namespaces_.try_emplace(mount_namespace);
  Namespace& place = at->second;
  if (is_new && views_.contains(mount_namespace)) place.whole = true;  // and of no other slice
  if (place.whole || grants_.empty()) return true;
  if (is_new) ++read_;
  if (read_ <= kMostNamespaces && bytes_ < kMostBytes) {
    const Mounts mounts = mounts_of(pid);
    bytes_ += mounts.text.size();
    for_each_mount(mounts.text, [&](std::string_view name) {
      const auto grant = grants_.find(name);
      if (grant != grants_.end() && std::ranges::find(place.grants, grant->second) == place.grants.end())
        place.grants.push_back(grant->second);
    });
    place.whole = mounts.whole;
  }
  if (place.whole || place.asked) return true;
  const std::string path = "/proc/" + std::to_string(system::living_thread(pid)) + "/ns/mnt";
  const system::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (!file || ::fstat(file.get(), &info) != 0 || info.st_ino != mount_namespace) {
    if (is_new && place.grants.empty()) namespaces_.erase(at);
    return false;
  }
  place.asked = true;
  place.maker = system::maker_of(system::Fd(::ioctl(file.get(), NS_GET_USERNS)));
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
  if (slice.grant_mount.empty() || mount_namespace == slice.outer_namespace || shared_.contains(mount_namespace))
    return InView::kNo;
  const auto grant = grants_.find(slice.grant_mount);
  const auto place = namespaces_.find(mount_namespace);
  if (grant == grants_.end() || place == namespaces_.end()) return InView::kUnknown;
  if (std::ranges::find(place->second.grants, grant->second) != place->second.grants.end()) return InView::kYes;
  return !place->second.whole && place->second.maker == slice.user ? InView::kUnknown : InView::kNo;
}

const SeenProcess* ProcessTable::find(pid_t pid) const {
  const auto at = processes_.find(pid);
  return at == processes_.end() ? nullptr : &at->second;
}

bool ProcessTable::has_root(const TenantRecord& slice) const {
  const SeenProcess* root = slice.started() ? find(slice.root_pid) : nullptr;
  return root && root->start_ticks == slice.root_ticks;
}

bool ProcessTable::descends(const TenantRecord& slice, pid_t pid) const {
  for (int step = 0; step < kMaxAncestors; ++step) {
    if (pid == slice.root_pid) return true;
    const SeenProcess* at = find(pid);
    if (!at) return false;
    pid = at->parent;
  }
  return false;
}

bool ProcessTable::is_member(const TenantRecord& slice, const SeenProcess& process) const {
  return in_view(slice, process.mount_namespace) == InView::kYes || (has_root(slice) && descends(slice, process.pid));
}

std::vector<SeenProcess> ProcessTable::members_of(const TenantRecord& slice) const {
  const bool by_descent = has_root(slice);
  std::unordered_map<std::uint64_t, bool> within;
  std::vector<SeenProcess> members;
  for (const auto& [pid, process] : processes_) {
    const auto [known, is_new] = within.try_emplace(process.mount_namespace);
    if (is_new) known->second = in_view(slice, process.mount_namespace) == InView::kYes;
    if (known->second || (by_descent && descends(slice, pid))) members.push_back(process);
  }
  return members;
}

bool ProcessTable::shows_nobody_of(const TenantRecord& slice) const {
  if (lists_ == 0 || !knows(slice) || has_root(slice)) return false;
  return std::ranges::all_of(namespaces_,
                             [&](const auto& entry) { return in_view(slice, entry.first) == InView::kNo; });
}

}  // namespace tensor_fusion::node::hypervisor
