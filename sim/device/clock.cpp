#include "sim/device/clock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <optional>
#include <vector>

#include "sim/device/kill_point.h"
#include "sim/device/local.h"
#include "sim/device/reaper.h"
#include "sim/device/transaction.h"

namespace tensor_fusion::sim::device {
namespace {

struct Asker {
  State* state;
  EngineId engine;
  std::uint64_t now;
  std::uint64_t floor;                     // no engine of the group has an event before this
  std::array<std::uint64_t, 2> members{};  // of this advance
  std::uint64_t horizon = ~std::uint64_t{0};
  std::optional<EngineId> lagging;
};

// When an item of a context outside the waiting one was finished (ForeignDone).
std::uint64_t foreign_done(void* user, ContextId id, Ticket ticket, std::uint32_t* member_here) {
  auto& asker = *static_cast<Asker*>(user);
  ContextRecord& context = asker.state->contexts[context_slot(id)];
  if (context.generation.load(std::memory_order_acquire) != context_generation(id) ||
      context.state.load(std::memory_order_acquire) != kSlotLive) {
    return 0;
  }
  const EngineId engine = context.engine.load(std::memory_order_relaxed);
  const std::uint32_t m = context.member.load(std::memory_order_relaxed);
  if (engine == asker.engine && m < kMaxMembers && ((asker.members[m >> 6] >> (m & 63)) & 1) != 0) {
    *member_here = m;
    return 0;
  }
  const unsigned lane = ticket_lane(ticket) % kLanes;
  const std::uint64_t number = ticket_number(ticket);
  if (context.completed[lane].load(std::memory_order_acquire) >= number) {
    const LaneItem& item = context.items[lane * kLaneDepth + (number - 1) % kLaneDepth];
    const std::uint64_t end = item.end_ns.load(std::memory_order_acquire);
    return context.tails[lane].load(std::memory_order_acquire) < number + kLaneDepth ? end : 0;
  }
  if (engine != asker.engine) {
    const std::uint64_t clock = asker.state->engines[engine].clock_ns.load(std::memory_order_acquire);
    if (clock < asker.now) {
      asker.lagging = engine;
      asker.horizon = std::min(asker.horizon, std::max(clock, asker.floor));
    }
  }
  return kNotFinished;
}

[[nodiscard]] bool drained(const ContextRecord& context, const ContextCore& core) {
  for (unsigned l = 0; l < kLanes; ++l) {
    if (context.tails[l].load(std::memory_order_seq_cst) != core.lanes[l].completed) return false;
  }
  return true;
}

struct Pass {
  ClockOutcome outcome;
  bool held = false;
  std::uint64_t next_ns = 0;
  std::optional<EngineId> lagging;
};

Pass one_pass(Machine& machine, EngineId id, std::uint64_t now, std::uint64_t floor) {
  State& state = machine.state();
  Transaction change(state, id);
  EngineRecord& engine = change.engine();
  auto& scratch = machine.local().scratch(id);
  Asker asker{&state, id, now, floor, {}, ~std::uint64_t{0}, {}};

  CoreScratch& core_scratch = scratch.core;
  core_scratch.count = 0;
  std::array<std::uint64_t, 2> active{engine.active[0].load(std::memory_order_acquire),
                                      engine.active[1].load(std::memory_order_acquire)};
  // Whoever holds a copy server is a member of every advance, whatever the hint says.
  for (const CopyServer& server : change.core().copy) {
    if (server.member != kNobody) active[server.member >> 6] |= std::uint64_t{1} << (server.member & 63);
  }
  if (const auto r = change.core().resident; r != kNobody && change.core().running != 0) {
    active[r >> 6] |= std::uint64_t{1} << (r & 63);
  }
  for (unsigned word = 0; word < 2; ++word) {
    for (std::uint64_t bits = active[word]; bits != 0; bits &= bits - 1) {
      const unsigned m = word * 64 + static_cast<unsigned>(std::countr_zero(bits));
      const std::uint32_t entry = engine.members[m].load(std::memory_order_acquire);
      if (entry == 0) continue;
      ContextRecord& context = state.contexts[entry - 1];
      scratch.members[m] = MemberView{&change.touch(entry - 1),
                                      context.tails,
                                      context.items,
                                      context.events,
                                      make_context_id(entry - 1, context.generation.load(std::memory_order_relaxed)),
                                      context.pid.load(std::memory_order_relaxed)};
      core_scratch.list[core_scratch.count++] = static_cast<std::uint16_t>(m);
      asker.members[word] |= std::uint64_t{1} << (m & 63);
    }
  }
  kill_point();

  EngineView view;
  view.core = &change.core();
  view.rules = machine.local().rules(state, id);
  view.members = &scratch.members;
  view.foreign_done = &foreign_done;
  view.user = &asker;
  view.horizon_ns = &asker.horizon;
  view.device_ring = engine.device_ring;
  view.process_ring = engine.process_ring;
  view.scratch = &core_scratch;
  const Advanced advanced = advance_core(view, now);
  kill_point();

  Pass pass;
  pass.held = advanced.held;
  pass.next_ns = advanced.next_ns;
  pass.lagging = asker.lagging;
  pass.outcome.clock_ns = change.core().clock_ns;
  pass.outcome.stalled = advanced.stalled;
  if (advanced.stalled) {
    const std::uint32_t entry = engine.members[advanced.member].load(std::memory_order_relaxed);
    pass.outcome.stalled_process = state.contexts[entry - 1].process.load(std::memory_order_relaxed);
  }
  change.commit();

  // Members with nothing left need not be looked at again, until a submission says so: clear, then look once more.
  for (unsigned i = 0; i < core_scratch.count; ++i) {
    const unsigned m = core_scratch.list[i];
    const ContextCore& core = *scratch.members[m].core;
    if (core.window_busy_ns != 0 || core.window_copy_ns != 0) continue;
    ContextRecord& context = state.contexts[engine.members[m].load(std::memory_order_relaxed) - 1];
    if (!drained(context, core)) continue;
    const std::uint64_t bit = std::uint64_t{1} << (m & 63);
    engine.active[m >> 6].fetch_and(~bit, std::memory_order_seq_cst);
    kill_point();
    if (!drained(context, core)) engine.active[m >> 6].fetch_or(bit, std::memory_order_seq_cst);
  }
  return pass;
}

}  // namespace

// Engines that wait for each other move in turns, none beyond what the others have settled; when all stand, the next
// event of any of them is the next of all.
ClockOutcome advance_engine(Machine& machine, EngineId engine, std::uint64_t now) {
  Pass own = one_pass(machine, engine, now, 0);
  if (!own.held) [[likely]]
    return own.outcome;
  std::vector<EngineId> group{engine};
  std::uint64_t floor = 0;
  for (;;) {
    bool moved = false;
    std::uint64_t next = ~std::uint64_t{0};
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::uint64_t before = machine.state().engines[group[i]].clock_ns.load(std::memory_order_acquire);
      const Pass pass = one_pass(machine, group[i], now, floor);
      if (i == 0) own = pass;
      if (pass.held) next = std::min(next, pass.next_ns);
      if (pass.held && pass.lagging && std::find(group.begin(), group.end(), *pass.lagging) == group.end()) {
        group.push_back(*pass.lagging);
        moved = true;
      }
      moved = moved || pass.outcome.clock_ns > before;
    }
    if (!own.held) return own.outcome;
    if (moved) continue;
    if (next <= floor || next == ~std::uint64_t{0}) {  // held by an engine that owes a duration
      own.outcome.stalled = true;
      own.outcome.stalled_process = machine.process_slot();
      return own.outcome;
    }
    floor = std::min(next, now);
  }
}

ClockOutcome advance_and_reap(Machine& machine, EngineId engine, std::uint64_t now) {
  ClockOutcome outcome = advance_engine(machine, engine, now);
  State& state = machine.state();
  std::uint64_t due = state.next_reap_ns.load(std::memory_order_relaxed);
  const bool time = now >= due && state.next_reap_ns.compare_exchange_strong(due, now + kReapPeriodNs);
  if (time || (outcome.stalled && !machine.process_alive(outcome.stalled_process))) {
    if (reap_dead(machine) != 0) outcome = advance_engine(machine, engine, now);
  }
  return outcome;
}

void stir(EngineRecord& engine) {
  engine.stir.fetch_add(1, std::memory_order_seq_cst);
  if (engine.stir_waiters.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, &engine.stir, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void await_stir(EngineRecord& engine, std::uint32_t seen, std::uint64_t timeout_ns) {
  // A waiter killed here leaves the count too high: later stirs make one needless system call each, nothing worse.
  engine.stir_waiters.fetch_add(1, std::memory_order_seq_cst);
  const timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000),
                         static_cast<long>(timeout_ns % 1'000'000'000)};
  syscall(SYS_futex, &engine.stir, FUTEX_WAIT, seen, &timeout, nullptr, 0);
  engine.stir_waiters.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace tensor_fusion::sim::device
