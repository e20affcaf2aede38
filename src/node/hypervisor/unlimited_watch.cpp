#include "node/hypervisor/unlimited_watch.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "node/hypervisor/escape.h"
#include "node/hypervisor/membership.h"
#include "system/clock.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kUnlimitedForNs =
    800'000'000;  // a limiter has registered long before its first allocation is this old
constexpr std::uint64_t kDecidedNs =
    10'000'000'000;  // so long it may take to read what it has in its memory till it is told of
constexpr std::uint64_t kCloselyNs = 200'000'000;  // between looks at a slice whose processes do not live long
constexpr std::uint64_t kMostUsedNs = 2 * kUnlimitedForNs;
constexpr std::uint64_t kGivenBackIn = 32;              // times as long as it was used
constexpr std::uint64_t kTellAgainNs = 10'000'000'000;  // of processes that follow each other
constexpr unsigned kLooksAReading = 4;                  // into the memory of who has just come

std::string account_of(const UnlimitedProcess& process) {
  if (!process.tenant_id.empty()) return process.tenant_id;
  const auto user = system::process_user(process.pid);
  return user ? "/" + std::to_string(*user) : "";  // no slice has such an id
}

}  // namespace

void UnlimitedWatch::saw(std::vector<UnlimitedProcess> now) {
  const std::uint64_t now_ns = system::monotonic_ns();
  give_back(now_ns);
  unsigned looks = kLooksAReading;
  std::map<std::string, std::uint64_t> used;
  for (UnlimitedProcess& process : now) {
    const auto old = std::find_if(list_.begin(), list_.end(), [&](const UnlimitedProcess& p) {
      return p.pid == process.pid && p.start_ticks == process.start_ticks && p.uuid == process.uuid;
    });
    const bool is_new = old == list_.end();
    process.seen_ns = now_ns;
    process.first_seen_ns = is_new ? now_ns : old->first_seen_ns;
    process.reported = !is_new && old->reported;
    process.told_undecided = !is_new && old->told_undecided;
    process.counts = !is_new && old->counts;
    if (!is_new) process.judged = old->judged;
    if (process.reported) continue;
    if (!process.counts && looks > 0) process.counts = process.tenant_id.empty() || (--looks, has_left_it_out(process));
    if (!process.counts) continue;
    const std::string account = account_of(process);
    if (account.empty()) continue;  // it has gone, and nobody else is to pay for it
    std::uint64_t& most = used[account];
    most = std::max(most, is_new ? kCloselyNs : std::min(now_ns - old->seen_ns, kUnlimitedForNs));
  }
  for (const auto& [name, ns] : used) {
    Account& account = accounts_[name];
    account.used_ns = std::min(account.used_ns + ns, kMostUsedNs);
    account.at_ns = now_ns;
  }
  list_ = std::move(now);
  judge();
}

void UnlimitedWatch::give_back(std::uint64_t now_ns) {
  for (auto& [name, account] : accounts_) {
    account.used_ns -= std::min(account.used_ns, (now_ns - account.at_ns) / kGivenBackIn);
    account.at_ns = now_ns;
  }
  std::erase_if(accounts_, [&](const auto& entry) {
    return entry.second.used_ns == 0 && now_ns - entry.second.told_ns > kTellAgainNs;
  });
}

void UnlimitedWatch::judge() {
  const std::uint64_t now_ns = system::monotonic_ns();
  bool undecided = false;
  for (UnlimitedProcess& process : list_)
    if (!process.reported && !judge(process, now_ns)) undecided = true;
  if (undecided) decide_later();
  // Who comes next is to be seen before it has gone.
  for (const auto& [whose, account] : accounts_)
    if (account.used_ns >= kUnlimitedForNs / 2 && may_be_ended(whose)) return look_again_in(kCloselyNs);
}

// False: what it has in its memory is not known yet.
bool UnlimitedWatch::judge(UnlimitedProcess& process, std::uint64_t now_ns) {
  const std::uint64_t since_ns = now_ns - process.first_seen_ns;
  const auto account = process.counts ? accounts_.find(account_of(process)) : accounts_.end();
  const bool together = account != accounts_.end() && account->second.used_ns >= kUnlimitedForNs;
  if (since_ns < kUnlimitedForNs && !together) {
    // Not at the next period: on an idle machine that is as long again as it took to see it.
    look_again_in(kUnlimitedForNs);
    return true;
  }
  const Ended answer = end_if_escaped(process);
  if (answer == Ended::later) {
    // Told of so that it is not hidden by being long, and read on: it may be ended yet.
    if (since_ns >= kDecidedNs && !std::exchange(process.told_undecided, true)) tell(process, false);
    return false;
  }
  if (process.told_undecided && answer == Ended::no) return process.reported = true;
  // That one was there says nothing of another's end.
  const bool was_told = since_ns < kUnlimitedForNs && account->second.told_ns != 0 &&
                        now_ns - account->second.told_ns < kTellAgainNs &&
                        (answer != Ended::yes || account->second.told_of_an_end);
  process.reported = !was_told || answer == Ended::yes;
  if (was_told) {
    if (!process.reported) look_again_in(kUnlimitedForNs);  // it may stay, and is told of by itself then
    return true;
  }
  if (since_ns < kUnlimitedForNs) {
    account->second.told_ns = now_ns;
    account->second.told_of_an_end = answer == Ended::yes;
  }
  tell(process, answer == Ended::yes);
  return true;
}

void UnlimitedWatch::tell(const UnlimitedProcess& process, bool ended) {
  const Tenant* tenant = tenants_.find_by_id(process.tenant_id);
  events_.add({.kind = "unlimited",
               .tenant = process.tenant,
               .device = process.uuid,
               .message = "process " + std::to_string(process.pid) + " (" + process.command +
                          (ended ? ") used the GPU without a live limiter and was ended; run --allow-unlimited lets it"
                                 : ") uses the GPU without a live limiter"),
               .user = tenant ? static_cast<std::int64_t>(tenant->record.user) : Event::kNobody});
}

bool UnlimitedWatch::has_left_it_out(const UnlimitedProcess& process) const {
  Tenant* tenant = tenants_.find_by_id(process.tenant_id);
  return tenant && has_escaped(process.pid, process.start_ticks, tenant->maps, tenant->slice_files(),
                               system::monotonic_ns()) == Escape::yes;
}

// A slice that holds all its processes is one with a view of its own; elsewhere a program may take the limiter off
// without meaning to, and is only watched.
bool UnlimitedWatch::may_be_ended(const std::string& id) const {
  const Tenant* tenant = tenants_.find_by_id(id);
  return tenant && tenant->record.mount_namespace != 0 && tenant->record.ends_unlimited;
}

UnlimitedWatch::Ended UnlimitedWatch::end_if_escaped(UnlimitedProcess& process) {
  if (!may_be_ended(process.tenant_id)) return Ended::no;
  Tenant* tenant = tenants_.find_by_id(process.tenant_id);
  const auto pidfd = system::open_pidfd(process.pid);
  if (!pidfd) return Ended::no;
  // What was answered earlier may be of another program, or of this one before it had its limiter.
  const auto executes = [&process] {
    const auto stat = system::process_stat(system::living_thread(process.pid));
    return stat ? stat->layout : decltype(process.judged){};
  };
  if (const auto layout = executes(); layout != process.judged) {
    tenant->maps.forget(system::living_thread(process.pid));
    process.judged = layout;
  }
  const Escape escape =
      has_escaped(process.pid, process.start_ticks, tenant->maps, tenant->slice_files(), system::monotonic_ns());
  if (escape != Escape::yes) return escape == Escape::later ? Ended::later : Ended::no;
  if (executes() != process.judged) return Ended::later;
  // Looked at again behind the pidfd: the number may be another process's by now, and its claim may have come.
  tenants_.scan(*tenant);
  const bool ended = system::is_alive(process.pid, process.start_ticks) && in_view_of(tenant->record, process.pid) &&
                     !tenants_.is_limited(*tenant, process.pid) && system::signal_process(pidfd->get(), SIGKILL);
  return ended ? Ended::yes : Ended::no;
}

// What was seen stays as it is: only what such a process has in its memory is read on.
void UnlimitedWatch::decide_later() {
  if (decide_again_) return;
  decide_again_ = true;
  loop_.after(MapReader::kPeriodNs, [this] {
    decide_again_ = false;
    judge();
  });
}

void UnlimitedWatch::look_again_in(std::uint64_t delay_ns) {
  const std::uint64_t at_ns = system::monotonic_ns() + delay_ns;
  if (look_at_ns_ != 0 && look_at_ns_ <= at_ns) return;
  if (look_at_ns_ != 0) loop_.cancel(look_);
  look_at_ns_ = at_ns;
  look_ = loop_.after(delay_ns, [this] {
    look_at_ns_ = 0;
    read_();
  });
}

}  // namespace tensor_fusion::node::hypervisor
