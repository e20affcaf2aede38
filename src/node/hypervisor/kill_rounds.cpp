#include "node/hypervisor/kill_rounds.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <unordered_set>
#include <utility>

#include "node/hypervisor/membership.h"
#include "system/clock.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kRoundNs = 10'000'000;  // for who forks while we look; nobody else is heard meanwhile
constexpr std::uint64_t kLeastRestNs = 20'000'000;
constexpr std::uint64_t kRestTimes = 10;
constexpr std::uint64_t kRoundsForNs = 2'000'000'000;
constexpr std::uint64_t kSameLookTimes = 4;  // as long as it took, and so long it serves others who ask

std::uint64_t rest_after(std::uint64_t took_ns) { return std::max(kLeastRestNs, kRestTimes * took_ns); }

}  // namespace

KillAnswer KillRounds::signal(const Tenant& tenant, int number, std::optional<uid_t> user) {
  KillAnswer answer;
  std::unordered_set<pid_t> asked;
  const auto note = [&](pid_t pid, Signalled how) {
    if (how == Signalled::kYes) answer.reached.push_back(pid);
    if (how == Signalled::kNotAllowed) answer.spared.push_back(pid);
  };
  const auto watched = [&](pid_t pid, const system::Fd& pidfd) {
    if (!asked.insert(pid).second) return;
    if (const Signalled how = user ? may_reach(*user, pid) : Signalled::kYes; how != Signalled::kYes)
      return note(pid, how);
    note(pid, system::signal_process(pidfd.get(), number) ? Signalled::kYes : Signalled::kGone);
  };
  // The first process first: it should not end by itself because its children have gone.
  if (tenant.root && !tenant.root_dead) watched(tenant.record.root_pid, tenant.root);
  for (const LiveProcess& process : tenant.processes)
    if (!process.dead && process.pidfd) watched(process.host_pid, process.pidfd);
  const auto seen = [&](const SeenProcess& process) {
    if (asked.insert(process.pid).second) note(process.pid, signal_seen(process, number, user));
  };
  const std::uint64_t begin_ns = system::monotonic_ns();
  if (!last_ || begin_ns - last_->at_ns > kSameLookTimes * last_->took_ns || !last_->table.knows(tenant.record)) {
    auto table = ProcessTable::look(records_of(hooks_.all()), kRoundNs,
                                    [&](const ProcessTable& so_far, const SeenProcess& process) {
                                      if (so_far.in_view(tenant.record, process.mount_namespace) == InView::kYes)
                                        seen(process);
                                      return false;
                                    });
    const std::uint64_t end_ns = system::monotonic_ns();
    last_.emplace(std::move(table), end_ns, end_ns - begin_ns);
  } else {
    last_->table.look_for_new();  // who was there then may have forked
  }
  for (const SeenProcess& process : last_->table.members_of(tenant.record)) seen(process);
  if (number == SIGKILL && tenant.record.started()) keep_killing(tenant.record.id, user);
  return answer;
}

void KillRounds::keep_killing(const std::string& id, std::optional<uid_t> user) {
  const auto [kill, is_new] = killing_.try_emplace(id, Kill{user, 0});
  if (!user) kill->second.user = std::nullopt;  // what root has begun goes on
  kill->second.until_ns = system::monotonic_ns() + kRoundsForNs;
  if (timer_ == 0) timer_ = loop_.after(rest_after(last_->took_ns), [this] { round(); });
}

void KillRounds::round() {
  timer_ = 0;
  last_.reset();
  std::vector<std::pair<Tenant*, Kill>> kills;
  for (const auto& [id, kill] : killing_)
    if (Tenant* tenant = hooks_.find(id)) kills.emplace_back(tenant, kill);
  const std::uint64_t begin_ns = system::monotonic_ns();
  std::unordered_set<std::uint64_t> strange;  // namespaces of nobody who is being killed
  std::set<std::pair<const Tenant*, pid_t>> asked;
  const auto ask = [&](const Tenant* tenant, const Kill& kill, const SeenProcess& process) {
    if (asked.emplace(tenant, process.pid).second) static_cast<void>(signal_seen(process, SIGKILL, kill.user));
  };
  const auto end = [&](const ProcessTable& so_far, const SeenProcess& process) {
    if (strange.contains(process.mount_namespace)) return false;
    bool is_certain = true;
    for (const auto& [tenant, kill] : kills) {
      const InView where = so_far.in_view(tenant->record, process.mount_namespace);
      is_certain = is_certain && where == InView::kNo;
      if (where == InView::kYes) ask(tenant, kill, process);
    }
    if (is_certain) strange.insert(process.mount_namespace);
    return false;
  };
  const ProcessTable table =
      kills.empty() ? ProcessTable() : ProcessTable::look(records_of(hooks_.all()), kRoundNs, end);
  // Also who was looked at before another of the same namespace has shown whose it is.
  for (const auto& [tenant, kill] : kills)
    for (const SeenProcess& process : table.members_of(tenant->record)) ask(tenant, kill, process);
  const std::uint64_t now = system::monotonic_ns();
  std::vector<std::string> emptied;
  std::erase_if(killing_, [&](const auto& entry) {
    const Tenant* tenant = hooks_.find(entry.first);
    const bool is_empty = tenant && table.is_empty(tenant->record);
    if (is_empty) emptied.push_back(entry.first);
    return !tenant || is_empty || now >= entry.second.until_ns;
  });
  if (!killing_.empty()) timer_ = loop_.after(rest_after(now - begin_ns), [this] { round(); });
  for (const std::string& id : emptied)
    if (Tenant* tenant = hooks_.find(id)) hooks_.emptied(*tenant);
}

}  // namespace tensor_fusion::node::hypervisor
