#include "guest/limiter/core/state.h"

#include "guest/limiter/core/captures.h"
#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter::gate {
namespace {
constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint32_t kTooShortScale = 72'000;  // of estimates: a tenth more than they say
}  // namespace

std::uint64_t scaled(const Device& of, std::uint64_t estimated) {
  const std::uint64_t scale = of.grant->estimate_scale.load(kRelaxed);
  return scale == 0 ? estimated : (estimated * scale) >> 16;
}

std::uint64_t scaled_for_bucket(const Device& of, std::uint64_t estimated) {
  const std::uint64_t least = estimated - estimated / 10, by_scale = scaled(of, estimated);
  return by_scale > least ? by_scale : least;
}

void State::expect(const Device& of, std::uint64_t now) {
  if (timeline.idle() && pending_ns < kMostLeaseNs * Leases::kStreams) {
    // Only leases are open: nothing is known to run.
    if (progress_ns > now) progress_ns = now;
    return;
  }
  const std::uint64_t from = last_end_ns;
  const std::uint64_t end = from + scaled(of, pending_ns);
  progress_ns = end > now ? end : now;
}

void State::absorb(const Device& of, const Settled& settled, std::uint64_t now) {
  if (settled.estimated_ns == 0) return;
  pending_ns -= settled.estimated_ns < pending_ns ? settled.estimated_ns : pending_ns;
  if (settled.last_end_ns > last_end_ns) last_end_ns = settled.last_end_ns;
  bucket.settle(settled.estimated_ns, settled.late_ns, settled.slow_ns);
  trust.kept(settled.kept);
  if (settled.broken) trust.was_broken(now);
  if (settled.first_ns != 0) guess.learn(settled.first_ns);
  if (settled.first_ns > unknown_ns)
    unknown_ns = settled.first_ns;
  else if (settled.first_ns != 0)
    unknown_ns -= (unknown_ns - settled.first_ns) / 8;
  if (settled.measured_ns != 0)
    of.mine->measured_ns.store(of.mine->measured_ns.load(kRelaxed) + settled.measured_ns, kRelaxed);
  expect(of, now);
}

void State::poll(const Device& of, std::uint64_t now) {
  polled_ns = now;
  BesideCaptures beside;
  if (beside.forbid_calls()) return;
  Settled settled;
  alone.too_short = of.grant->estimate_scale.load(kRelaxed) > kTooShortScale;
  timeline.poll(now, alone, settled, *of.mine, !g_captures.any());
  absorb(of, settled, now);
}

// Nothing is outstanding: it ended when the last marker says, whatever had been expected. A pause counts from here, and
// must not contain the time that work waited for others.
void State::over(std::uint64_t now) {
  if (progress_ns < last_end_ns) progress_ns = last_end_ns;
  if (progress_ns > now) progress_ns = now;
}

// The next process may begin what is long once this one's is over, or has run far longer than anybody could know.
void State::keep_turn(const Device& of) {
  const std::uint64_t now = os::monotonic_ns();
  if (timeline.in_turn() == 0) {
    if (now >= untold_until_ns) turn.give_back(of, now);
  } else if (timeline.unknown() > 0 || timeline.overdue(now, kOverdueNs)) {
    turn.keep(of, now + kTurnUnknownNs);
  }
}

void State::tell(const Device& of) {
  if (turn.mine()) keep_turn(of);
  contract::ClaimProcessDevice& mine = *of.mine;
  const std::uint64_t launched = mine.launched_ns.load(kRelaxed);
  mine.completed_ns.store(launched > pending_ns ? launched - pending_ns : 0, kRelaxed);
  mine.progress_ns.store(progress_ns, kRelaxed);
  mine.streams.store(timeline.active_streams(), kRelaxed);
  mine.blocked.store(waiting, kRelaxed);
  mine.open_since_ns.store(timeline.open_since(), std::memory_order_release);
}

bool State::runs_over(const Device& of, bool looked) {
  const std::uint64_t markers = of.mine->marker_count.load(kRelaxed);
  const bool over = !looked && markers - told >= contract::kMarkers / 2;
  if (over || looked) told = markers;
  return over;
}

// Charges what this thread launched on its lease and gives back the rest.
void State::fold(const Device& of, Lease& lease) {
  if (lease.granted_ns == 0 || lease.device != &of) return;
  const std::uint64_t used = lease.granted_ns - lease.left_ns;
  if (lease.epoch == g_epoch.load(kRelaxed)) {
    pending_ns -= lease.left_ns < pending_ns ? lease.left_ns : pending_ns;
    const std::uint64_t back = scaled(of, lease.left_ns);
    progress_ns -= back < progress_ns ? back : progress_ns;
    const bool lost = lease.record != nullptr && lease.record->generation != lease.generation;
    if (!lost && lease.record != nullptr && lease.record->leases > 0) --lease.record->leases;
    if (lease.launches > 0) {
      bucket.charge(scaled_for_bucket(of, used));
      of.mine->launched_ns.fetch_add(used, kRelaxed);
      of.mine->launches.fetch_add(lease.launches, kRelaxed);
      if (lost) {
        Settled settled;
        Timeline::settle_lost(used, settled, *of.mine);
        absorb(of, settled, os::monotonic_ns());
      } else if (lease.record != nullptr) {
        timeline.add(*lease.record, used, lease.mixed ? nullptr : lease.only, lease.launches);
      }
    }
  }
  lease = Lease{};
}

}  // namespace tensor_fusion::guest::limiter::gate
