#include "sim/device/engine_core.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/device/engine_run.h"

namespace tensor_fusion::sim::device {

std::uint32_t EngineRun::runnable_after(std::uint32_t m) const {
  const std::uint32_t from = m == kNobody ? 0 : (m + 1) % kMaxMembers;
  for (unsigned step = 0; step < 3; ++step) {  // rest of from's word, the other word, from's word again
    const unsigned word = ((from >> 6) + step) & 1;
    std::uint64_t bits = s_.runnable[word];
    if (step == 0) bits &= ~std::uint64_t{0} << (from & 63);
    if (bits != 0) return word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
  }
  return kNobody;
}

void EngineRun::switch_to(std::uint32_t m) {
  stop_running();
  const bool costs = core_.resident != kNobody && core_.resident != m;
  core_.resident = m;
  if (costs) {
    core_.switch_until_ns = core_.clock_ns + e_.rules.switch_ns;
    ++core_.switches;
  }
  core_.slice_end_ns = std::max(core_.switch_until_ns, core_.clock_ns) + e_.rules.slice_ns;
}

void EngineRun::schedule() {
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

void EngineRun::run_lanes(std::uint32_t mask) {
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

void EngineRun::stop_running() {
  if (core_.running == 0) return;
  const double gained = static_cast<double>(core_.clock_ns - core_.anchor_ns) / core_.share;
  for (std::uint32_t rest = core_.running; rest != 0; rest &= rest - 1) {
    member(core_.resident).core->lanes[std::countr_zero(rest)].progress_ns += gained;
  }
  core_.anchor_ns = core_.clock_ns;
  core_.running = 0;
}

std::uint64_t EngineRun::compute_end(unsigned l, std::uint64_t known) {
  const double left = (static_cast<double>(known) - member(core_.resident).core->lanes[l].progress_ns) * core_.share;
  return core_.anchor_ns + (left <= 0 ? 0 : static_cast<std::uint64_t>(std::ceil(left)));
}

void EngineRun::finish_compute() {
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

std::uint64_t EngineRun::next_event() {
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
bool EngineRun::stall(std::uint64_t now, Advanced& result) {
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

void EngineRun::account(std::uint64_t until_ns) {
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

void EngineRun::close_window() {
  const auto percent = [&](std::uint64_t ns) {
    return static_cast<std::uint16_t>(
        std::min<std::uint64_t>(100, (ns * 100 + e_.rules.window_ns / 2) / e_.rules.window_ns));
  };
  const std::uint64_t end = core_.window_end_ns;
  if (e_.device_ring != nullptr) {
    e_.device_ring[core_.device_samples % kDeviceSamples] = {end, 0, percent(core_.window_busy_ns),
                                                             percent(core_.window_copy_ns)};
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
void EngineRun::skip_idle_windows(std::uint64_t now) {
  if (s_.count != 0 || core_.window_busy_ns != 0 || core_.window_copy_ns != 0 || core_.window_end_ns >= now) return;
  const std::uint64_t whole = (now - core_.window_end_ns) / e_.rules.window_ns;
  if (whole <= kDeviceSamples) return;
  const std::uint64_t skipped = whole - kDeviceSamples;
  account(core_.window_end_ns + skipped * e_.rules.window_ns);
  core_.window_end_ns += skipped * e_.rules.window_ns;
}

Advanced EngineRun::until(std::uint64_t now) {
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
    const std::uint64_t limit =
        e_.horizon_ns == nullptr ? now : std::max(core_.clock_ns, std::min(now, *e_.horizon_ns));
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

void init_engine_core(EngineCore& core, std::uint64_t now, const Rules& rules) {
  core = EngineCore{};
  core.clock_ns = core.anchor_ns = now;
  core.resident = kNobody;
  core.share = 1;
  for (CopyServer& server : core.copy) server = {kNobody, 0, 0};
  core.window_end_ns = now + rules.window_ns;
}

Advanced advance_core(EngineView& engine, std::uint64_t now) { return EngineRun(engine).until(now); }

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
