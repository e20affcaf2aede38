#include "node/hypervisor/end_watch.h"

#include <algorithm>
#include <unordered_set>

#include "system/clock.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kLookNs = 20'000'000;  // for who forks while we look
constexpr std::uint64_t kRestTimes = 4;
// A chain of which each forks the next and exits at once is seen in every fourth list or so: in none of so many it is
// less than once in a million times.
constexpr unsigned kListsWithoutAnybody = 64;
constexpr std::uint64_t kWithoutAnybodyNs = 1'000'000'000;

}  // namespace

bool EndWatch::lives(const std::optional<SeenProcess>& member) {
  return member && system::is_alive(member->pid, member->start_ticks) &&
         system::namespace_inode(member->pid, "mnt") == member->mount_namespace;
}

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
  const std::uint64_t begin_ns = system::monotonic_ns();
  std::unordered_set<std::uint64_t> namespaces;
  const auto table = ProcessTable::look(records_of(hooks_.all()), kLookNs,
                                        [&](const ProcessTable& so_far, const SeenProcess& process) {
                                          if (!namespaces.insert(process.mount_namespace).second) return false;
                                          std::erase_if(open, [&](Tenant* tenant) {
                                            if (so_far.in_view(tenant->record, process.mount_namespace) != InView::kYes)
                                              return false;
                                            tenant->member = process;
                                            tenant->hidden_since_ns = 0;
                                            return true;
                                          });
                                          return open.empty();
                                        });
  const std::uint64_t end_ns = system::monotonic_ns();
  rests_until_ns_ = end_ns + kRestTimes * (end_ns - begin_ns);
  std::map<std::string, Unseen> unseen;
  std::swap(unseen, unseen_);
  std::vector<std::string> over;
  for (Tenant* tenant : open) {
    const std::string& id = tenant->record.id;
    if (const auto before = unseen.find(id); before != unseen.end()) unseen_.insert(*before);
    if (is_over(*tenant, table, begin_ns))
      over.push_back(id);
    else if (unseen_.contains(id))
      ask(*tenant);  // as for one that hides, or where nothing can be seen now: that is asked for again in a second
  }
  for (const std::string& id : over)
    if (Tenant* tenant = hooks_.find(id)) hooks_.over(*tenant);
}

bool EndWatch::is_over(Tenant& tenant, const ProcessTable& table, std::uint64_t begin_ns) {
  const std::string& id = tenant.record.id;
  if (!table.shows_nobody_of(tenant.record)) {
    if (tenant.hidden_since_ns == 0) tenant.hidden_since_ns = begin_ns;
    unseen_.erase(id);
    return false;
  }
  tenant.hidden_since_ns = 0;
  const auto [at, is_first] = unseen_.try_emplace(id, Unseen{begin_ns, 0});
  at->second.lists += table.lists();
  const bool long_enough = system::monotonic_ns() - at->second.since_ns >= kWithoutAnybodyNs;
  if (!table.is_empty(tenant.record) && !(long_enough && at->second.lists >= kListsWithoutAnybody)) return false;
  unseen_.erase(at);
  return true;
}

}  // namespace tensor_fusion::node::hypervisor
