#include "node/hypervisor/lost_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "base/id.h"
#include "base/text.h"
#include "node/hypervisor/membership.h"
#include "node/hypervisor/slot_search.h"
#include "node/hypervisor/view_mount.h"
#include "node/hypervisor/view_walk.h"
#include "system/ask_aside.h"
#include "system/clock.h"
#include "system/page.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using base::ErrorCode;

constexpr std::uint32_t kSlotsLookedAt = 64;  // one that lives is enough; a forged one may take a while to look up

base::Result<system::MappedPage> page_of(const StateDirectory& state, const std::string& id, const char* name,
                                         std::size_t size) {
  auto page = system::MappedPage::attach(state.pages() + "/" + id + "." + name, size, true);
  return page ? std::move(page) : system::MappedPage::attach(state.tenant(id) + "/" + name, size, true);
}

// No part of the way may be a link: in a namespace of its own anybody can lay one to another's slice.
bool shows(pid_t pid, const system::FileIdentity& grant) {
  const system::Fd root(::open(("/proc/" + std::to_string(pid) + "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return false;
  const auto seen = ViewWalk(root.get(), mounts_of(pid).text)
                        .find(std::string(contract::kSlicePath) + "/" + contract::kGrantFile)
                        .identity;
  return seen && seen->inode == grant.inode && seen->device == grant.device;
}

bool was_started_with(pid_t pid, const std::string& directory) {
  constexpr std::size_t kLargest = 4u << 20;
  const auto content = system::read_file("/proc/" + std::to_string(pid) + "/environ", kLargest);
  const std::string wanted = std::string(contract::kSliceVariable) + "=" + directory + '\0';
  return content && (content->starts_with(wanted) || content->find('\0' + wanted) != std::string::npos);
}

// Who is let into a slice's directory besides root: system::let_user_in writes it.
std::optional<uid_t> user_let_in(const std::string& directory) {
  struct Entry {
    std::uint16_t tag, permissions;
    std::uint32_t id;
  };
  struct {
    std::uint32_t version;
    Entry entries[16];
  } list{};
  constexpr std::uint16_t kUser = 0x02;
  const ssize_t bytes = ::lgetxattr(directory.c_str(), "system.posix_acl_access", &list, sizeof list);
  for (std::size_t i = 0; bytes > 0 && sizeof list.version + (i + 1) * sizeof(Entry) <= static_cast<std::size_t>(bytes);
       ++i)
    if (list.entries[i].tag == kUser) return list.entries[i].id;
  return std::nullopt;
}

// Anybody may start a process with the slice's name in its environment, or show the slice's directory in a view of its
// own; its user, or where the file system keeps no lists of them the user's group, may look into the directory.
bool may_be_of(pid_t pid, const std::string& directory, gid_t group) {
  if (::geteuid() != 0) return system::process_user(pid) == ::geteuid();
  if (const auto user = user_let_in(directory)) return system::process_user(pid) == *user;
  struct stat process{};
  return ::stat(("/proc/" + std::to_string(pid)).c_str(), &process) == 0 && process.st_gid == group;
}

void find_first_process(const StateDirectory& state, const system::FileIdentity& grant, TenantRecord& record) {
  const std::string directory = state.tenant(record.id);
  struct stat info{};
  const bool has_directory = ::stat(directory.c_str(), &info) == 0;
  if (has_directory && ::geteuid() == 0) record.group = info.st_gid;
  std::vector<system::ProcessStat> may_be;
  for (const pid_t pid : system::all_processes().value_or(std::vector<pid_t>())) {
    const auto stat = system::process_stat(pid);
    if (!stat || stat->dead() || stat->of_kernel || pid == ::getpid()) continue;
    if (!has_directory || may_be_of(pid, directory, info.st_gid)) may_be.push_back(*stat);
  }
  std::ranges::sort(may_be, {}, [](const system::ProcessStat& one) { return std::pair(one.start_ticks, one.pid); });
  std::vector<bool> in_view;
  for (const auto& stat : may_be) in_view.push_back(shows(stat.pid, grant));
  const auto is_of_it = [&](std::size_t i) { return in_view[i] || was_started_with(may_be[i].pid, directory); };
  // What a process was started with lies in its memory, whose pages may come from where nobody answers.
  const std::vector<bool> of_it =
      has_directory ? system::asked_aside(may_be.size(), is_of_it, {.each_ms = 200, .all_ms = 2000}) : in_view;
  const auto first = std::ranges::find(of_it, true);
  if (first == of_it.end()) return;
  const auto at = static_cast<std::size_t>(first - of_it.begin());
  const pid_t pid = may_be[at].pid;
  const std::uint64_t theirs = system::namespace_inode(pid, "mnt");
  const bool own_view = in_view[at] && theirs != system::namespace_inode(::getpid(), "mnt") &&
                        theirs != system::namespace_inode(1, "mnt");
  record.root_pid = pid;
  record.root_ticks = may_be[at].start_ticks;
  record.mount_namespace = own_view ? theirs : 0;
  record.user = system::process_user(pid).value_or(::geteuid());
  record.request.command = system::shown_name(may_be[at]);
}

bool has_living_slot(const StateDirectory& state, const TenantRecord& record) {
  const auto page = page_of(state, record.id, contract::kClaimFile, sizeof(contract::ClaimPage));
  if (!page) return false;
  auto slots = taken_slots(*page->as<contract::ClaimPage>(), contract::kMaxProcesses);
  slots.resize(std::min<std::size_t>(slots.size(), kSlotsLookedAt));
  SlotSearch search;
  const std::uint64_t read_ns = system::monotonic_ns();
  return std::ranges::any_of(slots, [&](const SlotView& slot) {
    return search.find(slot, read_ns, record, nullptr).life != system::Life::gone;
  });
}

}  // namespace

std::vector<std::string> ids_with_pages(const StateDirectory& state) {
  std::set<std::string> ids;
  for (const std::string& id : system::list_directory(state.tenants())) ids.insert(id);
  const std::string ending = std::string(".") + contract::kGrantFile;
  for (const std::string& name : system::list_directory(state.pages()))
    if (name.ends_with(ending)) ids.insert(name.substr(0, name.size() - ending.size()));
  return {ids.begin(), ids.end()};
}

base::Result<TenantRecord> rebuild_record(const StateDirectory& state, const std::string& id) {
  auto page = page_of(state, id, contract::kGrantFile, sizeof(contract::GrantPage));
  if (!page) return std::unexpected(page.error());
  const auto& grant = *page->as<contract::GrantPage>();
  if (grant.magic != contract::kGrantMagic || grant.abi != contract::kGrantAbi || grant.closed.load() != 0)
    return base::fail(ErrorCode::kProtocol, "its grant page makes no sense either");
  TenantRecord record;
  record.id = id;
  record.name = std::string(grant.tenant, ::strnlen(grant.tenant, sizeof grant.tenant));
  if (!base::check_name(record.name)) record.name = id;
  record.user = ::geteuid();
  record.created_ms = system::wall_ms();
  record.boot = system::boot_id();
  const std::uint32_t count = std::min<std::uint32_t>(grant.device_count.load(), contract::kMaxDevices);
  for (std::uint32_t i = 0; i < count; ++i) {
    const contract::GrantDevice& row = grant.devices[i];
    TenantDeviceRecord device;
    device.uuid = std::string(row.uuid, ::strnlen(row.uuid, sizeof row.uuid));
    device.index = static_cast<int>(row.device_index);
    device.device_memory_bytes = row.device_memory_bytes.load();
    device.memory_limit_bytes = row.memory_limit_bytes.load();
    device.request_share = row.request_share.load();
    device.limit_share = row.limit_share.load();
    record.devices.push_back(std::move(device));
  }
  find_first_process(state, page->identity(), record);
  if (!record.started() && !has_living_slot(state, record))
    return base::fail(ErrorCode::kNotFound, "nothing of it lives");
  if (count > 0) {  // what a later `limit` leaves as it is
    record.request.vram = base::Bytes{record.devices[0].memory_limit_bytes};
    record.request.compute = base::Percent{record.devices[0].limit_share};
    record.request.compute_request = base::Percent{record.devices[0].request_share};
    record.request.gpus = count;
  }
  return tenant_record_from(to_json(record));  // the same checks as for a file
}

}  // namespace tensor_fusion::node::hypervisor
