#include "sim/device/engine_core.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tensor_fusion::sim::device {
namespace {

using Status = CoreScratch::Status;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

[[nodiscard]] bool is_copy(WorkKind kind) {
  return kind == WorkKind::h2d || kind == WorkKind::d2h || kind == WorkKind::d2d;
}
[[nodiscard]] unsigned server_of(WorkKind kind) {
  return static_cast<unsigned>(kind) - static_cast<unsigned>(WorkKind::h2d);
}
[[nodiscard]] std::uint64_t known_ns(std::uint64_t duration) { return duration & ~kAtLeast; }
[[nodiscard]] bool is_final(std::uint64_t duration) { return (duration & kAtLeast) == 0; }

// One call of advance_core: the engine's view with the verbs of the simulation.
class Run {
 public:
  explicit Run(EngineView& engine) : e_(engine), core_(*engine.core), s_(*engine.scratch) {}

  Advanced until(std::uint64_t now);

 private:
  void ingest();
  void resolve(unsigned m, unsigned l);
  void clear_status(unsigned m, unsigned l);
  void set_status(unsigned m, unsigned l, Status status, std::uint64_t when_ns = 0);
  void finish(unsigned m, unsigned l, LaneItem& item);
  [[nodiscard]] std::uint64_t dependency_time(unsigned m, const LaneItem& item);
  void settle_blocked();
  void settle_timed();
  void schedule();
  void switch_to(std::uint32_t m);
  void run_lanes(std::uint32_t mask);
  void stop_running();
  void start_copies();
  void finish_compute();
  void finish_copies();
  [[nodiscard]] std::uint64_t compute_end(unsigned l, std::uint64_t known);
  [[nodiscard]] std::uint64_t next_event();
  [[nodiscard]] bool stall(std::uint64_t now, Advanced& result);
  void account(std::uint64_t until_ns);
  void close_window();
  void skip_idle_windows(std::uint64_t now);

  [[nodiscard]] MemberView& member(unsigned m) { return (*e_.members)[m]; }
  [[nodiscard]] LaneItem& head(unsigned m, unsigned l) {
    return member(m).items[l * e_.depth + static_cast<std::uint32_t>(member(m).core->lanes[l].completed % e_.depth)];
  }
  [[nodiscard]] bool runnable(std::uint32_t m) const {
    return m != kNobody && ((s_.runnable[m >> 6] >> (m & 63)) & 1) != 0;
  }
  [[nodiscard]] bool any_runnable() const { return (s_.runnable[0] | s_.runnable[1]) != 0; }
  [[nodiscard]] bool others_runnable(std::uint32_t than) const {
    auto copy = s_.runnable;
    copy[than >> 6] &= ~(std::uint64_t{1} << (than & 63));
    return (copy[0] | copy[1]) != 0;
  }
  [[nodiscard]] std::uint32_t runnable_after(std::uint32_t m) const;

  EngineView& e_;
  EngineCore& core_;
  CoreScratch& s_;
  bool finished_any_ = false;
};

void Run::clear_status(unsigned m, unsigned l) {
  const auto bit = std::uint32_t{1} << l;
  auto& head = s_.heads[m][l];
  auto& lanes = s_.lanes[m];
  switch (head.status) {
    case Status::timed: lanes.timed &= ~bit; --s_.timed; break;
    case Status::blocked: lanes.blocked &= ~bit; --s_.blocked; break;
    case Status::queued: lanes.queued &= ~bit; --s_.queued; break;
    case Status::ready:
      lanes.ready &= ~bit;
      if (lanes.ready == 0) s_.runnable[m >> 6] &= ~(std::uint64_t{1} << (m & 63));
      break;
    default: break;
  }
  head.status = Status::empty;
}

void Run::set_status(unsigned m, unsigned l, Status status, std::uint64_t when_ns) {
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
    case Status::blocked: lanes.blocked |= bit; ++s_.blocked; break;
    case Status::queued: lanes.queued |= bit; ++s_.queued; break;
    case Status::ready:
      lanes.ready |= bit;
      s_.runnable[m >> 6] |= std::uint64_t{1} << (m & 63);
      break;
    default: break;
  }
}

void Run::finish(unsigned m, unsigned l, LaneItem& item) {
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
std::uint64_t Run::dependency_time(unsigned m, const LaneItem& item) {
  const unsigned lane = ticket_lane(item.after_ticket) % kLanes;
  const std::uint64_t number = ticket_number(item.after_ticket);
  const auto by_count = [&](const ContextCore& core) { return core.lanes[lane].completed >= number ? 0 : kNotFinished; };
  if (item.after_context == member(m).id) return by_count(*member(m).core);
  std::uint32_t here = kNobody;
  const std::uint64_t time =
      e_.foreign_done == nullptr ? 0 : e_.foreign_done(e_.user, item.after_context, item.after_ticket, &here);
  if (here != kNobody) return by_count(*member(here).core);
  return time;
}

// Looks at the oldest unfinished item of a lane, finishes what takes no time, and files the lane by what it waits for.
void Run::resolve(unsigned m, unsigned l) {
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

void Run::ingest() {
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

void Run::settle_blocked() {
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

void Run::settle_timed() {
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

std::uint32_t Run::runnable_after(std::uint32_t m) const {
  const std::uint32_t from = m == kNobody ? 0 : (m + 1) % kMaxMembers;
  for (unsigned step = 0; step < 3; ++step) {  // rest of from's word, the other word, from's word again
    const unsigned word = ((from >> 6) + step) & 1;
    std::uint64_t bits = s_.runnable[word];
    if (step == 0) bits &= ~std::uint64_t{0} << (from & 63);
    if (bits != 0) return word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
  }
  return kNobody;
}

void Run::switch_to(std::uint32_t m) {
  stop_running();
  const bool costs = core_.resident != kNobody && core_.resident != m;
  core_.resident = m;
  if (costs) {
    core_.switch_until_ns = core_.clock_ns + e_.rules.switch_ns;
    ++core_.switches;
  }
  core_.slice_end_ns = std::max(core_.switch_until_ns, core_.clock_ns) + e_.rules.slice_ns;
}

void Run::schedule() {
  std::uint32_t wanted = 0;
  if (core_.clock_ns >= core_.switch_until_ns) {
    const std::uint32_t r = core_.resident;
    if (runnable(r)) {
      if (core_.slice_end_ns == 0) core_.slice_end_ns = core_.clock_ns + e_.rules.slice_ns;
      if (core_.clock_ns >= core_.slice_end_ns) {
        if (others_runnable(r)) {
          switch_to(runnable_after(r));
        } else {
          core_.slice_end_ns = core_.clock_ns + e_.rules.slice_ns;
        }
      }
    } else if (any_runnable()) {
      switch_to(runnable_after(r));
    } else {
      core_.slice_end_ns = 0;
    }
    if (core_.clock_ns >= core_.switch_until_ns && runnable(core_.resident)) wanted = s_.lanes[core_.resident].ready;
  }
  run_lanes(wanted);
}

void Run::run_lanes(std::uint32_t mask) {
  if (mask == core_.running) return;
  stop_running();
  core_.running = mask;
  core_.anchor_ns = core_.clock_ns;
  if (mask == 0) return;
  double widths = 0;
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(rest));
    LaneCore& lane = member(core_.resident).core->lanes[l];
    if (lane.started_ns == 0) lane.started_ns = core_.clock_ns;
    widths += static_cast<double>(head(core_.resident, l).width);
  }
  core_.share = std::max(1.0, widths);
}

void Run::stop_running() {
  if (core_.running == 0) return;
  const double gained = static_cast<double>(core_.clock_ns - core_.anchor_ns) / core_.share;
  for (std::uint32_t rest = core_.running; rest != 0; rest &= rest - 1) {
    member(core_.resident).core->lanes[std::countr_zero(rest)].progress_ns += gained;
  }
  core_.anchor_ns = core_.clock_ns;
  core_.running = 0;
}

std::uint64_t Run::compute_end(unsigned l, std::uint64_t known) {
  const double left = (static_cast<double>(known) - member(core_.resident).core->lanes[l].progress_ns) * core_.share;
  return core_.anchor_ns + (left <= 0 ? 0 : static_cast<std::uint64_t>(std::ceil(left)));
}

void Run::finish_compute() {
  if (core_.running == 0) return;
  std::uint32_t over = 0;
  for (std::uint32_t rest = core_.running; rest != 0; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(rest));
    const std::uint64_t duration = head(core_.resident, l).duration.load(std::memory_order_acquire);
    if (is_final(duration) && compute_end(l, duration) <= core_.clock_ns) over |= std::uint32_t{1} << l;
  }
  if (over == 0) return;
  const unsigned m = core_.resident;
  stop_running();
  for (; over != 0; over &= over - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(over));
    finish(m, l, head(m, l));
    resolve(m, l);
  }
}

void Run::start_copies() {
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

void Run::finish_copies() {
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

std::uint64_t Run::next_event() {
  std::uint64_t next = core_.window_end_ns;
  if (s_.timed != 0) next = std::min(next, s_.next_timed_ns);
  if (core_.clock_ns < core_.switch_until_ns) next = std::min(next, core_.switch_until_ns);
  if (core_.running != 0) {
    next = std::min(next, core_.slice_end_ns);
    for (std::uint32_t rest = core_.running; rest != 0; rest &= rest - 1) {
      const auto l = static_cast<unsigned>(std::countr_zero(rest));
      next = std::min(next, compute_end(l, known_ns(head(core_.resident, l).duration.load(std::memory_order_acquire))));
    }
  }
  for (const CopyServer& server : core_.copy) {
    if (server.member == kNobody) continue;
    const std::uint64_t known = known_ns(head(server.member, server.lane).duration.load(std::memory_order_acquire));
    next = std::min(next, server.start_ns + known);
  }
  return std::max(next, core_.clock_ns);
}

// Something that runs has come to the end of what is known of it.
bool Run::stall(std::uint64_t now, Advanced& result) {
  for (std::uint32_t rest = core_.running; rest != 0; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(rest));
    const std::uint64_t duration = head(core_.resident, l).duration.load(std::memory_order_acquire);
    if (is_final(duration) || compute_end(l, known_ns(duration)) > core_.clock_ns) continue;
    if (now - core_.clock_ns > e_.rules.stall_ns) {
      const unsigned m = core_.resident;
      stop_running();
      member(m).core->parked |= std::uint64_t{1} << l;
      clear_status(m, l);
      set_status(m, l, Status::parked);
      continue;
    }
    result.stalled = true;
    result.member = core_.resident;
    result.lane = l;
  }
  for (const CopyServer& server : core_.copy) {
    if (server.member == kNobody) continue;
    const std::uint64_t duration = head(server.member, server.lane).duration.load(std::memory_order_acquire);
    if (is_final(duration) || server.start_ns + known_ns(duration) > core_.clock_ns) continue;
    result.stalled = true;
    result.member = server.member;
    result.lane = server.lane;
  }
  return result.stalled;
}

void Run::account(std::uint64_t until_ns) {
  const std::uint64_t passed = until_ns - core_.clock_ns;
  if (passed == 0) return;
  if (core_.running != 0) {
    ContextCore& context = *member(core_.resident).core;
    context.service_ns += passed;
    context.window_busy_ns += passed;
    core_.busy_ns += passed;
    core_.window_busy_ns += passed;
  } else if (core_.clock_ns < core_.switch_until_ns) {
    core_.switch_ns += passed;
  } else {
    core_.idle_ns += passed;
  }
  bool copying = false;
  for (const CopyServer& server : core_.copy) {
    if (server.member == kNobody) continue;
    member(server.member).core->copy_ns += passed;
    member(server.member).core->window_copy_ns += passed;
    copying = true;
  }
  if (copying) core_.window_copy_ns += passed;
  core_.clock_ns = until_ns;
}

void Run::close_window() {
  const auto percent = [&](std::uint64_t ns) {
    return static_cast<std::uint16_t>(std::min<std::uint64_t>(100, (ns * 100 + e_.rules.window_ns / 2) / e_.rules.window_ns));
  };
  const std::uint64_t end = core_.window_end_ns;
  if (e_.device_ring != nullptr) {
    e_.device_ring[core_.device_samples % kDeviceSamples] = {end, 0, percent(core_.window_busy_ns), percent(core_.window_copy_ns)};
  }
  ++core_.device_samples;
  const std::uint64_t first = core_.process_samples;
  for (unsigned i = 0; i < s_.count; ++i) {
    MemberView& view = member(s_.list[i]);
    if (view.core->window_busy_ns == 0 && view.core->window_copy_ns == 0) continue;
    const std::uint16_t compute = percent(view.core->window_busy_ns);
    const std::uint16_t memory = percent(view.core->window_copy_ns);
    view.core->window_busy_ns = view.core->window_copy_ns = 0;
    if (e_.process_ring == nullptr) continue;
    std::uint64_t n = first;  // two contexts of one process are one line
    while (n < core_.process_samples && e_.process_ring[n % kProcessSamples].pid != view.pid) ++n;
    RawSample& sample = e_.process_ring[n % kProcessSamples];
    if (n == core_.process_samples) {
      sample = {end, view.pid, 0, 0};
      ++core_.process_samples;
    }
    sample.compute = static_cast<std::uint16_t>(std::min(100, sample.compute + compute));
    sample.memory = static_cast<std::uint16_t>(std::min(100, sample.memory + memory));
  }
  core_.window_busy_ns = core_.window_copy_ns = 0;
  core_.window_end_ns = end + e_.rules.window_ns;
}

// Nobody has work and nothing is left of the present window: keep only as many empty samples as anyone can read.
void Run::skip_idle_windows(std::uint64_t now) {
  if (s_.count != 0 || core_.window_busy_ns != 0 || core_.window_copy_ns != 0 || core_.window_end_ns >= now) return;
  const std::uint64_t whole = (now - core_.window_end_ns) / e_.rules.window_ns;
  if (whole <= kDeviceSamples) return;
  const std::uint64_t skipped = whole - kDeviceSamples;
  account(core_.window_end_ns + skipped * e_.rules.window_ns);
  core_.window_end_ns += skipped * e_.rules.window_ns;
}

Advanced Run::until(std::uint64_t now) {
  Advanced result;
  now = std::max(now, core_.clock_ns);
  ingest();
  skip_idle_windows(now);
  for (;;) {
    // Everything that happens at this instant, until nothing more does.
    finish_copies();
    finish_compute();
    settle_timed();
    settle_blocked();
    schedule();
    start_copies();
    const std::uint64_t next = next_event();
    const std::uint64_t limit = e_.horizon_ns == nullptr ? now : std::max(core_.clock_ns, std::min(now, *e_.horizon_ns));
    if (next > limit) {
      account(limit);
      result.held = limit < now;
      result.next_ns = next;
      break;
    }
    if (next == core_.clock_ns) {
      if (core_.window_end_ns == core_.clock_ns) {
        close_window();
        continue;
      }
      if (stall(now, result)) break;
      continue;  // published meanwhile, of no length, or just set aside
    }
    account(next);
  }
  return result;
}

}  // namespace

void init_engine_core(EngineCore& core, std::uint64_t now, const Rules& rules) {
  core = EngineCore{};
  core.clock_ns = core.anchor_ns = now;
  core.resident = kNobody;
  core.share = 1;
  for (CopyServer& server : core.copy) server = {kNobody, 0, 0};
  core.window_end_ns = now + rules.window_ns;
}

Advanced advance_core(EngineView& engine, std::uint64_t now) { return Run(engine).until(now); }

void forget_member(EngineCore& core, std::uint32_t member) {
  if (core.resident == member) {
    core.resident = kNobody;
    core.running = 0;
    core.slice_end_ns = 0;
    core.anchor_ns = core.clock_ns;
  }
  for (CopyServer& server : core.copy) {
    if (server.member == member) server = {kNobody, 0, 0};
  }
}

}  // namespace tensor_fusion::sim::device
