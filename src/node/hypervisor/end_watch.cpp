#include "node/hypervisor/end_watch.h"

#include <algorithm>
#include <unordered_set>

#include "node/hypervisor/process_table.h"
#include "system/clock.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kLookNs = 20'000'000;  // for who forks while we look
constexpr std::uint64_t kRestTimes = 4;

bool lives(const std::optional<SeenProcess>& member) {
  return member && system::is_alive(member->pid, member->start_ticks) &&
         system::namespace_inode(member->pid, "mnt") == member->mount_namespace;
}

}  // namespace

void EndWatch::ask(const Tenant& tenant) {
  asked_.insert(tenant.record.id);
  if (timer_ != 0) return;
  const std::uint64_t now = system::monotonic_ns();
  timer_ = loop_.after(rests_until_ns_ > now ? rests_until_ns_ - now : 0, [this] {
    timer_ = 0;
    look();
  });
}

void EndWatch::look() {
  std::vector<Tenant*> open;
  for (const std::string& id : std::exchange(asked_, {})) {
    Tenant* tenant = hooks_.find(id);
    if (tenant && tenant->may_be_over() && !lives(tenant->member)) open.push_back(tenant);
  }
  if (open.empty()) return;
  ProcessTable::Slices slices;
  for (const Tenant* tenant : hooks_.all()) slices.push_back(&tenant->record);
  const std::uint64_t begin_ns = system::monotonic_ns();
  std::unordered_set<std::uint64_t> namespaces;
  const auto table = ProcessTable::look(slices, kLookNs, [&](const ProcessTable& so_far, const SeenProcess& process) {
    if (!namespaces.insert(process.mount_namespace).second) return false;
    std::erase_if(open, [&](Tenant* tenant) {
      if (so_far.in_view(tenant->record, process.mount_namespace) != InView::kYes) return false;
      tenant->member = process;
      return true;
    });
    return open.empty();
  });
  const std::uint64_t end_ns = system::monotonic_ns();
  rests_until_ns_ = end_ns + kRestTimes * (end_ns - begin_ns);
  std::vector<std::string> over;
  for (const Tenant* tenant : open)
    if (table.is_empty(tenant->record)) over.push_back(tenant->record.id);
  for (const std::string& id : over)
    if (Tenant* tenant = hooks_.find(id)) hooks_.over(*tenant);
}

}  // namespace tensor_fusion::node::hypervisor
