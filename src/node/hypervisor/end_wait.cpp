#include "node/hypervisor/end_wait.h"

#include <algorithm>
#include <set>
#include <utility>

#include "node/hypervisor/end_watch.h"
#include "system/clock.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kLookEveryNs = 20'000'000;
constexpr std::uint64_t kMostWaitMs = 60'000;

base::Json who_lives(const Tenant& tenant) {
  std::set<pid_t> pids;
  if (tenant.record.started() && !tenant.root_dead) pids.insert(tenant.record.root_pid);
  for (const LiveProcess& process : tenant.processes)
    if (!process.dead && process.host_pid != 0) pids.insert(process.host_pid);
  if (EndWatch::lives(tenant.member)) pids.insert(tenant.member->pid);
  base::Json list = base::Json::array();
  for (const pid_t pid : pids) list.push(pid);
  return list;
}

}  // namespace

bool EndWait::ask(ConnectionId connection, const std::string& id, std::uint64_t wait_ms) {
  const auto waits = [&](const Asked& asked) { return asked.connection == connection; };
  if (std::any_of(asked_.begin(), asked_.end(), waits)) return false;
  asked_.push_back({connection, id, system::monotonic_ns() + std::min(wait_ms, kMostWaitMs) * 1'000'000});
  look_in(0);
  return true;
}

void EndWait::closed(ConnectionId connection) {
  asked_.remove_if([&](const Asked& asked) { return asked.connection == connection; });
}

void EndWait::look_in(std::uint64_t ns) {
  if (asked_.empty()) return;
  loop_.cancel(timer_);
  timer_ = loop_.after(ns, [this] {
    timer_ = 0;
    look();
  });
}

void EndWait::look() {
  std::set<std::string> ids;
  for (const Asked& asked : asked_) ids.insert(asked.id);
  for (const std::string& id : ids)
    if (Tenant* tenant = hooks_.find(id)) hooks_.look(*tenant);
  const std::uint64_t now = system::monotonic_ns();
  std::list<Asked> answered;
  for (auto at = asked_.begin(); at != asked_.end();) {
    const auto next = std::next(at);
    if (now >= at->until_ns || hooks_.find(at->id) == nullptr) answered.splice(answered.end(), asked_, at);
    at = next;
  }
  for (const Asked& asked : answered) {
    const Tenant* tenant = hooks_.find(asked.id);
    hooks_.send(asked.connection, base::Json::object({{"ok", true},
                                                      {"over", tenant == nullptr},
                                                      {"pids", tenant ? who_lives(*tenant) : base::Json::array()}}));
  }
  if (timer_ == 0) look_in(kLookEveryNs);
}

}  // namespace tensor_fusion::node::hypervisor
