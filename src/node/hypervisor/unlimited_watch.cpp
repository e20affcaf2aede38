#include "node/hypervisor/unlimited_watch.h"

#include <signal.h>

#include <algorithm>

#include "node/hypervisor/escape.h"
#include "node/hypervisor/membership.h"
#include "system/clock.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kUnlimitedForNs =
    800'000'000;  // a limiter has registered long before its first allocation is this old
constexpr std::uint64_t kDecidedNs = 10'000'000'000;  // so long what it has in its memory may take to be read

}  // namespace

void UnlimitedWatch::saw(std::vector<UnlimitedProcess> now) {
  for (UnlimitedProcess& process : now) {
    const auto old = std::find_if(list_.begin(), list_.end(), [&](const UnlimitedProcess& p) {
      return p.pid == process.pid && p.start_ticks == process.start_ticks && p.uuid == process.uuid;
    });
    if (old != list_.end()) {
      process.first_seen_ns = old->first_seen_ns;
      process.reported = old->reported;
    }
    if (process.reported) continue;
    const std::uint64_t since_ns = system::monotonic_ns() - process.first_seen_ns;
    if (since_ns < kUnlimitedForNs) {
      look_again_when_it_counts();
      continue;
    }
    const Ended answer = end_if_escaped(process);
    if (answer == Ended::later && since_ns < kDecidedNs) {
      decide_later();
      continue;
    }
    process.reported = true;
    const bool ended = answer == Ended::yes;
    events_.add(
        {.kind = "unlimited",
         .tenant = process.tenant,
         .device = process.uuid,
         .message = "process " + std::to_string(process.pid) + " (" + process.command +
                    (ended ? ") used the GPU without a live limiter and was ended; run --allow-unlimited lets it"
                           : ") uses the GPU without a live limiter")});
  }
  list_ = std::move(now);
}

// A slice that holds all its processes is one with a view of its own; elsewhere a program may take the limiter off
// without meaning to, and is only watched.
UnlimitedWatch::Ended UnlimitedWatch::end_if_escaped(const UnlimitedProcess& process) {
  Tenant* tenant = process.tenant.empty() ? nullptr : tenants_.find(process.tenant);
  if (!tenant || tenant->record.mount_namespace == 0 || !tenant->record.ends_unlimited) return Ended::no;
  const auto pidfd = system::open_pidfd(process.pid);
  if (!pidfd) return Ended::no;
  const Escape escape =
      has_escaped(process.pid, process.start_ticks, tenant->maps, tenant->pages.claim_file(), system::monotonic_ns());
  if (escape != Escape::yes) return escape == Escape::later ? Ended::later : Ended::no;
  // Looked at again behind the pidfd: the number may be another process's by now, and its claim may have come.
  tenants_.scan(*tenant);
  const bool ended = system::is_alive(process.pid, process.start_ticks) &&
                     in_namespace_of(tenant->record, process.pid) && !tenant->live_process(process.pid) &&
                     system::signal_process(pidfd->get(), SIGKILL);
  return ended ? Ended::yes : Ended::no;
}

// What was seen stays as it is: only what such a process has in its memory is read on.
void UnlimitedWatch::decide_later() {
  if (decide_again_) return;
  decide_again_ = true;
  loop_.after(MapReader::kPeriodNs, [this] {
    decide_again_ = false;
    saw(list_);
  });
}

// Not at the next period: on an idle machine that is as long again as it took to see it.
void UnlimitedWatch::look_again_when_it_counts() {
  if (look_again_) return;
  look_again_ = true;
  loop_.after(kUnlimitedForNs, [this] {
    look_again_ = false;
    read_();
  });
}

}  // namespace tensor_fusion::node::hypervisor
