#include "sim/device/wait.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <thread>

#include "sim/device/clock.h"
#include "sim/device/transaction.h"

namespace tensor_fusion::sim::device {
namespace {

// Device time that the head and what follows it up to `number` take at least, from `clock` on.
[[nodiscard]] std::uint64_t work_left_ns(ContextRecord& record, const ContextCore& core, unsigned lane,
                                         std::uint64_t number, std::uint64_t clock) {
  constexpr std::uint64_t kLookAhead = 256;
  const std::uint64_t first = core.lanes[lane].completed + 1;
  std::uint64_t at = clock;
  for (std::uint64_t n = first; n <= number && n < first + kLookAhead; ++n) {
    const LaneItem& item = item_at(record, lane, n);
    at = std::max(at, item.arrival_ns);
    if (item.kind == WorkKind::compute || (item.kind >= WorkKind::h2d && item.kind <= WorkKind::d2d)) {
      std::uint64_t known = item.duration.load(std::memory_order_acquire) & ~kAtLeast;
      if (n == first) known -= std::min(known, static_cast<std::uint64_t>(core.lanes[lane].progress_ns));
      at += known;
    }
  }
  return at - clock;
}

void sleep_until(std::uint64_t when_ns) {
  static thread_local bool slack_set = false;
  if (!slack_set) {  // the default 50 µs of slack would blur every wait
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    slack_set = true;
  }
  const timespec until{static_cast<time_t>(when_ns / 1'000'000'000), static_cast<long>(when_ns % 1'000'000'000)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

// How long a lane's head must wait at least for others before it can go on: not before the resident context gives way
// (at the end of its slice, or when it runs dry), nor before the copy server is free.
[[nodiscard]] std::uint64_t queue_delay_ns(State& state, Transaction& look, const ContextRecord& record,
                                           const LaneItem& head, std::uint64_t clock) {
  const EngineCore& engine = look.core();
  const std::uint32_t m = record.member.load(std::memory_order_relaxed);
  if (head.kind >= WorkKind::h2d && head.kind <= WorkKind::d2d) {
    const CopyServer& server = engine.copy[static_cast<unsigned>(head.kind) - static_cast<unsigned>(WorkKind::h2d)];
    if (server.member == kNobody || server.member == m) return 0;
    ContextRecord& other = state.contexts[look.engine().members[server.member].load(std::memory_order_relaxed) - 1];
    const std::uint64_t number = look.committed(other).lanes[server.lane].completed + 1;
    const std::uint64_t end =
        server.start_ns + (item_at(other, server.lane, number).duration.load(std::memory_order_acquire) & ~kAtLeast);
    return end - std::min(end, clock);
  }
  if (head.kind != WorkKind::compute) return 0;
  const std::uint64_t switching = engine.switch_until_ns - std::min(clock, engine.switch_until_ns);
  if (engine.resident == m || engine.resident == kNobody || engine.running == 0) return switching;
  ContextRecord& other = state.contexts[look.engine().members[engine.resident].load(std::memory_order_relaxed) - 1];
  const ContextCore& other_core = look.committed(other);
  std::uint64_t dry = clock;
  for (std::uint32_t rest = engine.running; rest != 0; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(rest));
    const std::uint64_t tail = other.tails[l].load(std::memory_order_acquire);
    dry = std::max(dry, engine.anchor_ns + work_left_ns(other, other_core, l, tail, engine.anchor_ns));
  }
  const std::uint64_t leaves = std::min(engine.slice_end_ns, dry);
  return leaves - std::min(leaves, clock);
}

}  // namespace

std::uint64_t bound_of(Machine& machine, ContextRecord& record, Ticket ticket, unsigned depth) {
  State& state = machine.state();
  const unsigned lane = ticket_lane(ticket) % kLanes;
  const std::uint64_t number = ticket_number(ticket);
  const EngineId id = record.engine.load(std::memory_order_relaxed);
  Dependency after;
  std::uint64_t bound = 0;
  {
    Transaction look(state, id);
    const ContextCore& core = look.committed(record);
    if (core.lanes[lane].completed >= number) return 0;
    EngineCore& engine = look.core();
    const std::uint64_t clock = engine.clock_ns;
    const LaneItem& head = item_at(record, lane, core.lanes[lane].completed + 1);
    if (head.kind == WorkKind::gate && head.duration.load(std::memory_order_acquire) == 0) return kUnknownNs;
    if ((core.parked >> lane & 1) != 0) return kUnknownNs;
    bound = clock + work_left_ns(record, core, lane, number, clock);
    if (core.lanes[lane].ready_ns == 0 && head.after_ticket != 0) after = {head.after_context, head.after_ticket};
    bound += queue_delay_ns(state, look, record, head, clock);
  }
  if (after.ticket != 0 && depth < 4) {
    ContextRecord& other = state.contexts[context_slot(after.context)];
    if (same_generation(other, after.context))
      bound = std::max(bound, bound_of(machine, other, after.ticket, depth + 1));
  }
  return bound;
}

bool wait_for(Machine& machine, ContextRecord& record, Ticket ticket, std::uint64_t deadline_ns, ContextId may_go) {
  constexpr std::uint64_t kEarlyNs = 30'000;   // wake-ups are late by about this; the rest is polled
  constexpr std::uint64_t kNapNs = 1'000'000;  // without a bound: look again this often even if nothing stirs
  const EngineId id = record.engine.load(std::memory_order_relaxed);
  const auto gone = [&] { return may_go != 0 && !same_generation(record, may_go); };
  EngineRecord& engine = machine.state().engines[id];
  if (is_done(record, ticket)) return true;
  for (;;) {
    const std::uint32_t seen = engine.stir.load(std::memory_order_seq_cst);
    std::uint64_t now = now_ns();
    const ClockOutcome outcome = advance_and_reap(machine, id, now);
    if (is_done(record, ticket) || gone()) return true;
    if (machine.lost(id / kEnginesPerDevice)) return false;
    if (now >= deadline_ns) return false;
    const std::uint64_t bound = bound_of(machine, record, ticket);
    if (bound == 0) continue;
    if (bound == kUnknownNs || outcome.stalled) {
      await_stir(engine, seen, std::min(kNapNs, deadline_ns - now));
      continue;
    }
    const std::uint64_t until = std::min(bound, deadline_ns);
    now = now_ns();
    if (until > now + kEarlyNs) {
      sleep_until(until - kEarlyNs);
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace tensor_fusion::sim::device
