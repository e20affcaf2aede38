#include "node/hypervisor/share_claims.h"

#include <algorithm>
#include <utility>

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint64_t kProgramNs = 100'000'000;        // sooner no program loads the driver and launches
constexpr std::uint64_t kMostAtOnceNs = 60'000'000'000;  // of any time that one read may add

std::uint64_t grown(std::uint64_t& last, std::uint64_t now, std::uint64_t most) {
  const std::uint64_t added = now > last ? std::min(now - last, most) : 0;
  last = now;
  return added;
}

}  // namespace

void ShareClaims::markers(const contract::ClaimProcessDevice& row, Slot& slot,
                          std::vector<pool::ShareStretch>& stretches) {
  // Before the markers: what is completed meanwhile is told by those that are read next.
  const std::uint64_t completed = row.completed_ns.load(std::memory_order_acquire);
  const std::uint64_t written = row.marker_count.load(std::memory_order_acquire);
  const bool some_lost = written > slot.markers && written - slot.markers > contract::kMarkers;
  if (written < slot.markers || some_lost) {
    slot.markers = written >= contract::kMarkers / 2 ? written - contract::kMarkers / 2 : 0;
  }
  for (; slot.markers < written; ++slot.markers) {
    const contract::Marker& marker = row.markers[slot.markers % contract::kMarkers];
    const std::uint64_t estimated = marker.estimated_ns.load(kRelaxed);
    stretches.push_back({.start_ns = marker.start_ns.load(kRelaxed),
                         .end_ns = marker.end_ns.load(kRelaxed),
                         .estimated_ns = estimated & ~contract::kMarkerGuessed,
                         .process = static_cast<std::uint32_t>(&slot - slots_.data()),
                         .guessed = (estimated & contract::kMarkerGuessed) != 0});
    slot.told += stretches.back().estimated_ns;
  }
  // What was written over is known by its estimate, and over.
  if (some_lost && completed > slot.told) {
    stretches.push_back({.estimated_ns = std::min(completed - slot.told, kMostAtOnceNs),
                         .process = static_cast<std::uint32_t>(&slot - slots_.data())});
    slot.told = completed;
  }
}

// A process that executes another program keeps its name, and all that it counts begins at 0: nobody gains by that, for
// what it counted before stays counted. One counter that goes back alone, or all of them all the time, do not.
bool ShareClaims::began_again(const contract::ClaimProcessDevice& row, const Slot& slot, std::uint64_t now) {
  return row.launched_ns.load(kRelaxed) < slot.launched && row.launches.load(kRelaxed) < slot.launches &&
         row.held_ns.load(kRelaxed) <= slot.held && row.marker_count.load(kRelaxed) <= slot.markers &&
         now >= slot.began_ns + kProgramNs;
}

void ShareClaims::count(const contract::ClaimProcessDevice& row, Slot& slot,
                        std::vector<pool::ShareStretch>& stretches) {
  launched_ns_ += grown(slot.launched, row.launched_ns.load(kRelaxed), kMostAtOnceNs);
  held_ns_ += grown(slot.held, row.held_ns.load(kRelaxed), kMostAtOnceNs);
  launches_ += grown(slot.launches, row.launches.load(kRelaxed), std::uint64_t{1} << 32);
  markers(row, slot, stretches);
  slot.open = row.open_since_ns.load(kRelaxed);
  slot.completed = row.completed_ns.load(kRelaxed);
}

// No process is left to tell when what it had outstanding was over: it may have run until now.
void ShareClaims::tell_for(Slot& slot, std::uint64_t now, std::vector<pool::ShareStretch>& stretches) const {
  slot.live = false;
  const std::uint64_t open = std::exchange(slot.open, 0);
  if (open == 0) return;
  slot.told_open = open;
  if (open >= now) return;
  const std::uint64_t outstanding = slot.launched > slot.completed ? slot.launched - slot.completed : 0;
  stretches.push_back({.start_ns = std::max(open, now - std::min(now, kMostAtOnceNs)),
                       .end_ns = now,
                       .estimated_ns = std::min(outstanding, kMostAtOnceNs),
                       .process = static_cast<std::uint32_t>(&slot - slots_.data()),
                       .untold = true});
}

// Nobody has the slot: what stands there is the last word of whoever had it, seen before or not.
void ShareClaims::bury(const contract::ClaimProcessDevice& row, Slot& slot, std::uint64_t now,
                       std::vector<pool::ShareStretch>& stretches) {
  const std::uint64_t open = row.open_since_ns.load(kRelaxed);
  // One that came and ended since the last look began its work since. Anything may stand in a slot that nobody has.
  const bool unseen = open >= read_ns_ && open < now && open != slot.told_open;
  if (!slot.live && (first_ || !unseen)) return;
  if (!slot.live) slot = {.told_open = slot.told_open};
  count(row, slot, stretches);
  tell_for(slot, now, stretches);
}

pool::ShareClaim ShareClaims::read(const contract::ClaimPage& page, std::uint32_t device, std::uint64_t now,
                                   std::vector<pool::ShareStretch>& stretches) {
  stretches.clear();
  pool::ShareClaim claim;
  claim.processes = 0;
  claim.gap_ns = pool::kNever;
  std::uint64_t ahead = 0;
  std::uint64_t outline = 0;
  anyone_ = false;
  // Never fewer than were seen: a page that says so would hide what it used.
  const std::size_t said = std::min<std::size_t>(page.process_high.load(kRelaxed), contract::kMaxProcesses);
  const std::size_t high = std::max(said, slots_.size());
  if (slots_.size() < high) slots_.resize(high);
  for (std::size_t i = 0; i < high; ++i) {
    const contract::ClaimProcess& process = page.processes[i];
    Slot& slot = slots_[i];
    const contract::ClaimProcessDevice& row = process.devices[device];
    if (const std::uint32_t state = process.state.load(std::memory_order_acquire); state != contract::kSlotLive) {
      outline = outline * 31 + state;
      if (state == contract::kSlotFree) {
        bury(row, slot, now, stretches);
      } else if (state == contract::kSlotClaimed) {
        tell_for(slot, now, stretches);
      }
      continue;
    }
    anyone_ = true;
    const std::uint32_t pid = process.pid.load(kRelaxed);
    const std::uint64_t ticks = process.start_ticks.load(kRelaxed);
    if (!slot.live || slot.pid != pid || slot.start_ticks != ticks || began_again(row, slot, now)) {
      tell_for(slot, now, stretches);
      slot = {.live = true, .pid = pid, .start_ticks = ticks, .began_ns = now};
      if (first_) {
        slot.launched = row.launched_ns.load(kRelaxed);
        slot.held = row.held_ns.load(kRelaxed);
        slot.launches = row.launches.load(kRelaxed);
        slot.markers = row.marker_count.load(std::memory_order_acquire);
        slot.told = row.completed_ns.load(kRelaxed);
      }
    }
    const bool shrinks = row.launched_ns.load(kRelaxed) < slot.launched ||
                         row.marker_count.load(std::memory_order_acquire) < slot.markers;
    shrunk_ += shrinks ? 1 : 0;
    outline = (outline * 31 + pid) * 31 + row.settle_request.load(kRelaxed);
    count(row, slot, stretches);
    const std::uint32_t blocked = std::min<std::uint32_t>(row.blocked.load(kRelaxed), 1 << 16);
    const std::uint32_t streams = std::min<std::uint32_t>(row.streams.load(kRelaxed), 1 << 10);
    const std::uint64_t progress = row.progress_ns.load(kRelaxed);
    if (progress > now) ahead += std::min(progress - now, kMostAtOnceNs);
    claim.progress_ns = std::max(claim.progress_ns, std::min(progress, now));
    claim.wanted_since_ns = std::max(claim.wanted_since_ns, std::min(row.wanted_since_ns.load(kRelaxed), now));
    claim.blocked += blocked;
    claim.streams += streams;
    if (blocked > 0 || streams > 0 || progress > now) {
      ++claim.processes;
      claim.gap_ns = std::min(claim.gap_ns, row.gap_ns.load(kRelaxed));
    }
    if (slot.open != 0) claim.open_since_ns = std::min(claim.open_since_ns, slot.open);
  }
  if (ahead > 0) claim.progress_ns = now + std::min(ahead, kMostAtOnceNs);
  claim.launched_ns = launched_ns_;
  if (claim.processes == 0) {
    // Between two stretches: the usual pause is that of whoever worked last.
    for (std::size_t i = 0; i < high; ++i) {
      if (slots_[i].live)
        claim.gap_ns = std::min(claim.gap_ns, page.processes[i].devices[device].gap_ns.load(kRelaxed));
    }
  }
  blocked_ = claim.blocked;
  outline_ = outline;
  first_ = false;
  read_ns_ = now;
  return claim;
}

}  // namespace tensor_fusion::node::hypervisor
