#include "node/hypervisor/slot_search.h"

#include <unistd.h>

#include "system/clock.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using system::Life;

Life life_of(pid_t pid, const SlotView& slot, const TenantRecord& record) {
  const Life life = system::life_of(pid, slot.start_ticks);
  if (life != Life::lives) return life;
  const auto stat = system::process_stat(pid);
  if (stat && stat->of_kernel) return Life::gone;
  const auto user = system::process_user(pid);
  if (record.user == 0 || user == record.user) return life;
  return user || system::is_gone(pid) ? Life::gone : Life::unknown;
}

}  // namespace

HostProcess SlotSearch::find(const SlotView& slot, std::uint64_t read_ns, const TenantRecord& record,
                             Allowance* allowance) {
  const auto pid = static_cast<pid_t>(slot.pid);
  if (pid <= 0) return {};
  if (slot.pid_namespace == 0 || slot.pid_namespace == system::namespace_inode(::getpid(), "pid")) {
    const Life life = life_of(pid, slot, record);
    return {life, life == Life::lives ? pid : 0};
  }
  const std::uint64_t begin_ns = system::monotonic_ns();
  if (allowance != nullptr && !allowance->has_more(begin_ns)) return {Life::unknown, 0};
  HostProcess found = find_listed(slot, record);
  if (found.life != Life::lives && (lists_ == 0 || listed_ns_ < read_ns)) {
    list();
    found = find_listed(slot, record);
  }
  if (allowance != nullptr) allowance->spend(begin_ns, system::monotonic_ns());
  return found;
}

HostProcess SlotSearch::find_listed(const SlotView& slot, const TenantRecord& record) const {
  HostProcess none{whole_ ? Life::gone : Life::unknown, 0};
  const auto started = started_.find(slot.start_ticks);
  if (started == started_.end()) return none;
  for (const pid_t candidate : started->second) {
    const Life life = life_of(candidate, slot, record);
    if (life == Life::unknown) none.life = life;
    if (life != Life::lives) continue;
    const auto names = system::namespace_pids(candidate);
    if (names.empty() && !system::is_gone(candidate)) none.life = Life::unknown;
    if (names.size() < 2 || names.back() != static_cast<pid_t>(slot.pid)) continue;
    if (system::namespace_inode(candidate, "pid") == slot.pid_namespace) return {life, candidate};
  }
  return none;
}

void SlotSearch::list() {
  ++lists_;
  listed_ns_ = system::monotonic_ns();
  started_.clear();
  const auto all = system::all_processes();
  whole_ = all.has_value();
  for (const pid_t pid : all.value_or(std::vector<pid_t>())) {
    if (const auto ticks = system::start_ticks(pid)) {
      started_[*ticks].push_back(pid);
    } else if (!system::is_gone(pid)) {
      whole_ = false;
    }
  }
}

}  // namespace tensor_fusion::node::hypervisor
