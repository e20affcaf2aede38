// The arbiter's books: what tenants say they had, and what the device's timeline says they had.
#include <algorithm>
#include <cmath>
#include <functional>

#include "pool/share.h"

namespace tensor_fusion::pool {
namespace {

constexpr std::uint64_t kUngatedNs = 3'000'000'000;  // its queue, and readings that reach back before
constexpr double kLongestLaunchNs = 60e9;            // of estimated time one observation may add
constexpr double kLongestSavedForNs = 250e6;
constexpr double kSeenWellNs = 1e9;  // the driver's word is exact enough for what is longer
constexpr std::uint64_t kLongestStretchNs = 60'000'000'000;
constexpr std::uint64_t kClockErrorNs = 2'000'000;  // a marker may seem to lie this far in the future
constexpr std::size_t kMaxStretches = 512;          // of one tenant not yet settled
constexpr std::uint64_t kJoinNs = 10'000;           // between two stretches that are told apart
constexpr std::uint64_t kLongestJoinedNs = 20'000'000;

}  // namespace

void Arbiter::observe(ShareKey key, const ShareClaim& claim, std::span<const ShareStretch> stretches,
                      std::uint64_t now) {
  Tenant* found = find(key);
  if (found == nullptr) return;
  Tenant& tenant = *found;
  const double launched = static_cast<double>(claim.launched_ns);
  if (launched > tenant.launched) tenant.launched += std::min(launched - tenant.launched, kLongestLaunchNs);
  const std::uint64_t wanted = std::min(claim.wanted_since_ns, now);
  const bool holds = tenant.admitted;
  if (wanted > tenant.seen_wanted_since) {
    tenant.seen_wanted_since = wanted;
    if (!holds && wanted >= tenant.busy_end + rules_.idle_ns) tenant.woke = true;
  }
  const bool another = claim.open_since_ns != tenant.claim.open_since_ns;
  tenant.claim = claim;
  tenant.claim.progress_ns = std::min(claim.progress_ns, now + kLongestStretchNs);
  tenant.busy_end = tenant.claim.progress_ns > now ? tenant.claim.progress_ns
                                                   : std::max(std::min(tenant.busy_end, now), tenant.claim.progress_ns);
  bool may_join = true;  // until it gains little: one claim can tell of thousands that cannot be joined
  for (ShareStretch said : stretches) {
    if (said.untold) bound_untold(tenant, said, now);
    const std::uint64_t end = std::min(said.end_ns, now + kClockErrorNs);
    const double estimated = static_cast<double>(std::min(said.estimated_ns, kLongestStretchNs));
    const std::uint64_t start = std::max(said.start_ns, swept_);
    const bool counts = said.end_ns > said.start_ns && start < end && said.end_ns - said.start_ns <= kLongestStretchNs;
    if (counts && may_join && tenant.stretches.size() >= kMaxStretches) {
      join(tenant.stretches);
      may_join = tenant.stretches.size() <= kMaxStretches / 2;
    }
    if (!counts || tenant.stretches.size() >= kMaxStretches) {
      // Too late, nonsense, or a flood.
      const bool late = said.start_ns < end && end - said.start_ns <= kLongestStretchNs;
      settle_late(tenant, said, late ? std::min(end, swept_) : 0, estimated, now);
      continue;
    }
    const double wall = static_cast<double>(said.end_ns - said.start_ns);
    const double takes = std::min({estimated * tenant.scale, wall, kLongestSavedForNs});
    if (!said.untold) tenant.longest += (takes > tenant.longest ? 1.0 : 0.1) * (takes - tenant.longest);
    // What of it lies before the sweep is settled at once, at its estimate.
    const double part = static_cast<double>(end - start) / wall;
    settle_late(tenant, said, start, estimated * (1 - part), now);
    tenant.stretches.push_back(
        {said.process, start, end, estimated * part, 0, part > 0.999, said.guessed, said.untold});
  }
  if (another) tenant.seen_before = tenant.witness.seen_ns();
  tenant.conduct.judge_claim(tenant.measured - tenant.judged, now);
  tenant.judged = tenant.measured;
}

// Nobody will tell what a process had outstanding when it ended: it is taken to have run until then, but for no more
// than the driver may have seen.
void Arbiter::bound_untold(const Tenant& tenant, ShareStretch& said, std::uint64_t now) {
  said.end_ns = std::min(said.end_ns, now);
  if (said.start_ns >= said.end_ns) return;
  const double most = tenant.witness.most_since(tenant.seen_before, now);
  if (most < static_cast<double>(said.end_ns - said.start_ns))
    said.start_ns = said.end_ns - static_cast<std::uint64_t>(most);
}

// What the sweep has passed without it. Others may have had turns in that time, so it counts as estimated; but not
// where it took so much longer that the estimate says nothing: nobody gains by being told of late. Where it is not
// sure, the driver's word decides, and of long work its word is also the most it may have had. Streams beside each
// other pay for one time once.
void Arbiter::settle_late(Tenant& tenant, const ShareStretch& said, std::uint64_t end, double estimated,
                          std::uint64_t now) const {
  std::uint64_t start = said.start_ns;
  double most = end > start ? static_cast<double>(end - start) : kLongestLaunchNs;
  if (most >= kSeenWellNs) most = std::min(most, tenant.witness.most_since(tenant.seen_before, now));
  settle_at_estimate(tenant, estimated, most);
  start = std::max(start, tenant.late_until);
  if (start >= end) return;
  tenant.late_until = end;
  const double beyond = std::min(most, static_cast<double>(end - start)) - estimated * tenant.scale;
  if (beyond > 3 * estimated * tenant.scale || (said.untold && beyond > 0)) {
    tenant.measured += beyond;
    tenant.judged += beyond;  // no more than has passed, however long that is
  } else {
    tenant.uncharged += std::max(0.0, beyond);
  }
}

void Arbiter::settle_at_estimate(Tenant& tenant, double estimated, double most_ns) const {
  const double settled = std::min(estimated, std::max(0.0, tenant.launched - tenant.settled));
  const double had = std::min(settled * tenant.scale, most_ns);
  tenant.settled += settled;
  tenant.measured += had;
  tenant.unplaced = std::min(tenant.unplaced + had, static_cast<double>(rules_.quantum_ns));
}

void Arbiter::observe_utilisation(ShareKey key, double percent, std::uint64_t window_ns, std::uint64_t now) {
  Tenant* found = find(key);
  if (found == nullptr || window_ns == 0 || !(percent >= 0 && percent <= 100)) return;
  Tenant& tenant = *found;
  // Its gate stands open and counts nothing; and what it has queued by then goes on when others have come.
  if (unlimited(tenant)) tenant.ungated_ns = now;
  if (tenant.ungated_ns != 0 && now < tenant.ungated_ns + kUngatedNs) return tenant.witness.forget();
  const double own = tenant.own();
  tenant.extra += tenant.witness.observe(told(tenant, now), percent, window_ns, now);
  tenant.extra += own - tenant.own();  // suspicion comes and goes, what is charged stays
}

ShareTold Arbiter::told(const Tenant& tenant, std::uint64_t now) {
  ShareTold told{.claimed_ns = tenant.claimed() + tenant.uncharged, .own_ns = tenant.own()};
  std::uint64_t open = tenant.claim.open_since_ns;
  for (const Stretch& stretch : tenant.stretches) open = std::min(open, stretch.start);
  if (open >= now) return told;
  told.open_ns = static_cast<double>(now - open);
  told.pending_ns = std::clamp(tenant.scale * (tenant.launched - tenant.settled), 0.0, kLongestLaunchNs);
  return told;
}

void Arbiter::accuse(ShareKey key) {
  if (Tenant* tenant = find(key); tenant != nullptr) tenant->witness.accuse(tenant->own());
}

// Up to when every tenant's stretches are in. One that should have ended by its author's word, and did not come, is
// waited for a while only.
std::uint64_t Arbiter::horizon(std::uint64_t now) const {
  std::uint64_t known = now;
  for (const Tenant& tenant : tenants_) {
    const std::uint64_t open = tenant.claim.open_since_ns;
    if (open >= known) continue;
    const std::uint64_t expected = std::clamp(tenant.busy_end, open, now);
    // Not less than what ran beside others may take to be told, or they would be blamed for an idle device.
    const std::uint64_t most = tenant.conduct.believed() ? rules_.marker_wait_most_ns : 2 * rules_.marker_wait_ns;
    const std::uint64_t wait = tenant.busy_end > now ? most : std::min(expected - open + rules_.marker_wait_ns, most);
    known = now > open + wait ? std::min(known, now - wait) : open;
  }
  return known;
}

// Where to stop: as far as all is known, and if that can be had, where no stretch is cut in two.
std::uint64_t Arbiter::sweep_end(std::uint64_t now) {
  const std::uint64_t known = horizon(now);
  std::uint64_t until = known;
  ends_.clear();
  for (const Tenant& tenant : tenants_) {
    for (const Stretch& stretch : tenant.stretches)
      if (stretch.end > swept_) ends_.emplace_back(stretch.end, stretch.start);
  }
  // From the last end on: going back to where one of them starts may cut those that end before it.
  std::sort(ends_.begin(), ends_.end(), std::greater<>());
  for (const auto& [end, start] : ends_) {
    if (end <= until || until <= swept_) break;
    until = std::min(until, start);
  }
  return known > swept_ + rules_.sweep_most_ns ? known : until;
}

// Walks the device's timeline from where it stopped, and charges everybody what the clock says.
void Arbiter::settle(std::uint64_t now) {
  const std::uint64_t until = sweep_end(now);
  if (until <= swept_) return;
  rows_.clear();
  division_.begin(swept_, until);
  for (Tenant& tenant : tenants_) {
    for (Stretch& stretch : tenant.stretches) {
      if (stretch.start >= until || stretch.end <= swept_) continue;
      const double wall = static_cast<double>(std::min(stretch.end, until) - std::max(stretch.start, swept_));
      const double left = static_cast<double>(stretch.end - std::max(stretch.start, swept_));
      const double target = stretch.target(tenant.scale);
      const double guess = std::max(target - stretch.had, 0.02 * target);
      rows_.push_back({&tenant, &stretch,
                       division_.add(tenant.key, stretch.context, stretch.start, stretch.end, guess * wall / left,
                                     stretch.guessed)});
    }
  }
  division_.divide();
  for (const Row& row : rows_) {
    Stretch& stretch = *row.stretch;
    Tenant& tenant = *row.tenant;
    const double part = division_.wall_ns(row.row) / static_cast<double>(stretch.end - stretch.start);
    const double had = rules_.exact ? division_.given_ns(row.row) : stretch.estimated * tenant.scale * part;
    stretch.alone = stretch.alone && division_.alone(row.row);
    stretch.had += had;
    tenant.measured += had;
    tenant.settled += std::min(stretch.estimated * part, std::max(0.0, tenant.launched - tenant.settled));
  }
  charge_idle(until, now);
  swept_ = until;
  for (Tenant& tenant : tenants_) {
    std::erase_if(tenant.stretches, [&](Stretch& stretch) {
      if (stretch.end > swept_) return false;
      close(tenant, stretch);
      return true;
    });
  }
}

// For whom the device was kept while others waited, and was idle, pays for that in virtual time (not in cap credit,
// which counts device time only).
void Arbiter::charge_idle(std::uint64_t until, std::uint64_t now) {
  for (ShareStay& stay : stays_) {
    Tenant* tenant = find(stay.key);
    if (tenant == nullptr) continue;
    for (const ShareDivision::Piece& idle : division_.idle()) {
      const std::uint64_t start = std::max(idle.start_ns, stay.start_ns), end = std::min(idle.end_ns, stay.end_ns);
      if (start >= end) continue;
      const double gap = static_cast<double>(end - start);
      const double explained = std::min(gap, tenant->unplaced);
      tenant->unplaced -= explained;
      tenant->gaps += gap - explained;
      stay.add_idle(start, end, gap - explained, static_cast<double>(rules_.gap_grace_ns));
    }
  }
  std::erase_if(stays_, [&](const ShareStay& stay) {
    if (stay.end_ns > until) return false;
    Tenant* tenant = find(stay.key);
    if (tenant != nullptr && stay.end_ns > stay.start_ns) tenant->conduct.judge(stay, now);
    return true;
  });
}

// Two that follow on each other are one longer one: while the books cannot be settled, that is all that is needed.
void Arbiter::join(std::vector<Stretch>& stretches) {
  std::sort(stretches.begin(), stretches.end(), [](const Stretch& a, const Stretch& b) {
    return a.context != b.context ? a.context < b.context : a.start < b.start;
  });
  std::size_t kept = 0;
  for (std::size_t i = 1; i < stretches.size(); ++i) {
    Stretch& last = stretches[kept];
    const Stretch& next = stretches[i];
    if (next.untold == last.untold && next.guessed == last.guessed && next.context == last.context &&
        next.start <= last.end + kJoinNs && next.end <= last.start + kLongestJoinedNs) {
      last.end = std::max(last.end, next.end);
      last.estimated += next.estimated;
      last.had += next.had;
      last.alone = last.alone && next.alone;
    } else {
      stretches[++kept] = next;
    }
  }
  if (!stretches.empty()) stretches.resize(kept + 1);
}

// k: what the clock says for what is estimated. Only where the clock is sure: work that was alone, or so long that
// equal turns with others tell as well.
void Arbiter::close(Tenant& tenant, const Stretch& stretch) const {
  if (stretch.untold || stretch.guessed || stretch.estimated < 1000) return;
  if (!stretch.alone && stretch.had < static_cast<double>(rules_.drain_limit_ns)) return;
  const double gain = std::min(0.2, stretch.estimated / 50e6);
  const double ratio = std::clamp(stretch.had / stretch.estimated, rules_.scale_least, rules_.scale_most);
  tenant.scale += gain * (ratio - tenant.scale);
}

}  // namespace tensor_fusion::pool
