#include <bit>

#include "sim/device/engine_run.h"

namespace tensor_fusion::sim::device {

void EngineRun::clear_status(unsigned m, unsigned l) {
  const auto bit = std::uint32_t{1} << l;
  auto& head = s_.heads[m][l];
  auto& lanes = s_.lanes[m];
  switch (head.status) {
    case Status::timed:
      lanes.timed &= ~bit;
      --s_.timed;
      break;
    case Status::blocked:
      lanes.blocked &= ~bit;
      --s_.blocked;
      break;
    case Status::queued:
      lanes.queued &= ~bit;
      --s_.queued;
      break;
    case Status::ready:
      lanes.ready &= ~bit;
      if (lanes.ready == 0) s_.runnable[m >> 6] &= ~(std::uint64_t{1} << (m & 63));
      break;
    default:
      break;
  }
  head.status = Status::empty;
}

void EngineRun::set_status(unsigned m, unsigned l, Status status, std::uint64_t when_ns) {
  const auto bit = std::uint32_t{1} << l;
  auto& head = s_.heads[m][l];
  auto& lanes = s_.lanes[m];
  head.status = status;
  switch (status) {
    case Status::timed:
      head.when_ns = when_ns;
      lanes.timed |= bit;
      ++s_.timed;
      s_.next_timed_ns = std::min(s_.next_timed_ns, when_ns);
      break;
    case Status::blocked:
      lanes.blocked |= bit;
      ++s_.blocked;
      break;
    case Status::queued:
      lanes.queued |= bit;
      ++s_.queued;
      break;
    case Status::ready:
      lanes.ready |= bit;
      s_.runnable[m >> 6] |= std::uint64_t{1} << (m & 63);
      break;
    default:
      break;
  }
}

void EngineRun::finish(unsigned m, unsigned l, LaneItem& item) {
  MemberView& view = member(m);
  LaneCore& lane = view.core->lanes[l];
  item.start_ns.store(lane.started_ns != 0 ? lane.started_ns : core_.clock_ns, std::memory_order_relaxed);
  item.end_ns.store(core_.clock_ns, std::memory_order_relaxed);
  if (item.event != kNoEvent && view.events != nullptr) {
    view.events[item.event].store(core_.clock_ns, std::memory_order_release);
  }
  if (item.kind == WorkKind::compute) ++view.core->kernels;
  ++lane.completed;
  lane.ready_ns = 0;
  lane.started_ns = 0;
  lane.progress_ns = 0;
  ++core_.events;
  finished_any_ = true;
}

// 0: done by now; a later time: done then; kNotFinished.
std::uint64_t EngineRun::dependency_time(unsigned m, const LaneItem& item) {
  const unsigned lane = ticket_lane(item.after_ticket) % kLanes;
  const std::uint64_t number = ticket_number(item.after_ticket);
  const auto by_count = [&](const ContextCore& core) {
    return core.lanes[lane].completed >= number ? 0 : kNotFinished;
  };
  if (item.after_context == member(m).id) return by_count(*member(m).core);
  std::uint32_t here = kNobody;
  const std::uint64_t time =
      e_.foreign_done == nullptr ? 0 : e_.foreign_done(e_.user, item.after_context, item.after_ticket, &here);
  if (here != kNobody) return by_count(*member(here).core);
  return time;
}

// Looks at the oldest unfinished item of a lane, finishes what takes no time, and files the lane by what it waits for.
void EngineRun::resolve(unsigned m, unsigned l) {
  clear_status(m, l);
  ContextCore& context = *member(m).core;
  LaneCore& lane = context.lanes[l];
  const std::uint64_t now = core_.clock_ns;
  while (lane.completed < s_.heads[m][l].tail) {
    LaneItem& item = head(m, l);
    if (lane.ready_ns == 0) {
      if (item.arrival_ns > now) return set_status(m, l, Status::timed, item.arrival_ns);
      if (item.after_ticket != 0) {
        const std::uint64_t done = dependency_time(m, item);
        if (done == kNotFinished) return set_status(m, l, Status::blocked);
        if (done > now) return set_status(m, l, Status::timed, done);
      }
      lane.ready_ns = now;
    }
    if (item.kind == WorkKind::compute) {
      const std::uint64_t bit = std::uint64_t{1} << l;
      if ((context.parked & bit) != 0) {
        if (!is_final(item.duration.load(std::memory_order_acquire))) return set_status(m, l, Status::parked);
        context.parked &= ~bit;
      }
      return set_status(m, l, Status::ready);
    }
    if (is_copy(item.kind)) return set_status(m, l, Status::queued);
    if (item.kind == WorkKind::gate) {
      const std::uint64_t opened = item.duration.load(std::memory_order_acquire);
      if (opened == 0) return set_status(m, l, Status::gated);
      if (opened > now) return set_status(m, l, Status::timed, opened);
    }
    finish(m, l, item);
  }
}

void EngineRun::ingest() {
  s_.runnable = {0, 0};
  s_.timed = s_.blocked = s_.queued = 0;
  s_.next_timed_ns = kNever;
  for (unsigned i = 0; i < s_.count; ++i) {
    const unsigned m = s_.list[i];
    s_.lanes[m] = {};
    for (unsigned l = 0; l < kLanes; ++l) {
      s_.heads[m][l].status = Status::empty;
      s_.heads[m][l].tail = member(m).tails[l].load(std::memory_order_acquire);
    }
  }
  for (const CopyServer& server : core_.copy) {
    if (server.member != kNobody) s_.heads[server.member][server.lane].status = Status::copying;
  }
  for (unsigned i = 0; i < s_.count; ++i) {
    const unsigned m = s_.list[i];
    for (unsigned l = 0; l < kLanes; ++l) {
      const auto& head = s_.heads[m][l];
      if (head.status != Status::copying && member(m).core->lanes[l].completed < head.tail) resolve(m, l);
    }
  }
}

void EngineRun::settle_blocked() {
  while (finished_any_ && s_.blocked != 0) {
    finished_any_ = false;
    for (unsigned i = 0; i < s_.count; ++i) {
      const unsigned m = s_.list[i];
      for (std::uint32_t mask = s_.lanes[m].blocked; mask != 0; mask &= mask - 1) {
        resolve(m, static_cast<unsigned>(std::countr_zero(mask)));
      }
    }
  }
  finished_any_ = false;
}

void EngineRun::settle_timed() {
  if (s_.timed == 0 || s_.next_timed_ns > core_.clock_ns) return;
  s_.next_timed_ns = kNever;
  for (unsigned i = 0; i < s_.count; ++i) {
    const unsigned m = s_.list[i];
    for (std::uint32_t mask = s_.lanes[m].timed; mask != 0; mask &= mask - 1) {
      const auto l = static_cast<unsigned>(std::countr_zero(mask));
      const std::uint64_t when = s_.heads[m][l].when_ns;
      if (when <= core_.clock_ns) {
        resolve(m, l);
      } else {
        s_.next_timed_ns = std::min(s_.next_timed_ns, when);
      }
    }
  }
}

void EngineRun::start_copies() {
  for (unsigned s = 0; s < kCopyServers && s_.queued != 0; ++s) {
    CopyServer& server = core_.copy[s];
    if (server.member != kNobody) continue;
    std::uint64_t best = kNever;
    for (unsigned i = 0; i < s_.count; ++i) {
      const unsigned m = s_.list[i];
      for (std::uint32_t mask = s_.lanes[m].queued; mask != 0; mask &= mask - 1) {
        const auto l = static_cast<unsigned>(std::countr_zero(mask));
        const std::uint64_t ready = member(m).core->lanes[l].ready_ns;
        if (server_of(head(m, l).kind) != s || ready > best) continue;
        if (ready == best && (m > server.member || (m == server.member && l > server.lane))) continue;
        best = ready;
        server.member = m;
        server.lane = l;
      }
    }
    if (server.member == kNobody) continue;
    clear_status(server.member, server.lane);
    set_status(server.member, server.lane, Status::copying);
    server.start_ns = core_.clock_ns;
    member(server.member).core->lanes[server.lane].started_ns = core_.clock_ns;
  }
}

void EngineRun::finish_copies() {
  for (CopyServer& server : core_.copy) {
    if (server.member == kNobody) continue;
    LaneItem& item = head(server.member, server.lane);
    const std::uint64_t duration = item.duration.load(std::memory_order_acquire);
    if (!is_final(duration) || server.start_ns + duration > core_.clock_ns) continue;
    const auto m = server.member;
    const auto l = server.lane;
    server = {kNobody, 0, 0};
    finish(m, l, item);
    s_.heads[m][l].status = Status::empty;
    resolve(m, l);
  }
}

}  // namespace tensor_fusion::sim::device
