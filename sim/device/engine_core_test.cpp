#include "sim/device/engine_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "sim/device/fake_engine.h"

namespace tensor_fusion::sim::device {
namespace {

constexpr std::uint64_t kUs = 1000;
constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kStart = 1000;

Work kernel(std::uint64_t duration, std::uint64_t arrival = kStart, float width = 1) {
  return {.kind = WorkKind::compute, .duration_ns = duration, .width = width, .arrival_ns = arrival};
}

TEST(EngineCore, runs_the_items_of_a_lane_back_to_back) {
  FakeEngine e(1);
  const Ticket a = e.submit(0, 0, kernel(10 * kUs));
  const Ticket b = e.submit(0, 0, kernel(5 * kUs));
  e.advance(kStart + 12 * kUs);
  EXPECT_TRUE(e.done(0, a));
  EXPECT_FALSE(e.done(0, b));
  e.advance(kStart + 20 * kUs);
  EXPECT_EQ(e.start(0, a), kStart);
  EXPECT_EQ(e.end(0, a), kStart + 10 * kUs);
  EXPECT_EQ(e.start(0, b), kStart + 10 * kUs);
  EXPECT_EQ(e.end(0, b), kStart + 15 * kUs);
  EXPECT_EQ(e.core.busy_ns, 15 * kUs);
  EXPECT_EQ(e.core.idle_ns, 5 * kUs);
}

TEST(EngineCore, gives_two_busy_contexts_alternating_slices) {
  FakeEngine e(2);
  const Ticket a = e.submit(0, 0, kernel(5 * kMs));
  const Ticket b = e.submit(1, 0, kernel(5 * kMs));
  e.advance(kStart + 20 * kMs);
  // a: 2, b: 2, a: 2, b: 2, a: 1, b: 1; each hand-over costs 20 µs.
  EXPECT_EQ(e.end(0, a), kStart + 9 * kMs + 4 * 20 * kUs);
  EXPECT_EQ(e.end(1, b), kStart + 10 * kMs + 5 * 20 * kUs);
  EXPECT_EQ(e.context(0).service_ns, 5 * kMs);
  EXPECT_EQ(e.context(1).service_ns, 5 * kMs);
  EXPECT_EQ(e.core.switches, 5u);
  EXPECT_EQ(e.core.switch_ns, 100 * kUs);
}

TEST(EngineCore, skips_an_idle_context_at_once) {
  FakeEngine e(2);
  e.submit(0, 0, kernel(100 * kUs));
  const Ticket b = e.submit(1, 0, kernel(1 * kMs));
  e.advance(kStart + 5 * kMs);
  EXPECT_EQ(e.end(1, b), kStart + 100 * kUs + 20 * kUs + 1 * kMs);
}

TEST(EngineCore, overlaps_lanes_that_leave_each_other_room) {
  FakeEngine e(1);
  const Ticket a = e.submit(0, 0, kernel(100 * kUs, kStart, 0.5F));
  const Ticket b = e.submit(0, 1, kernel(100 * kUs, kStart, 0.5F));
  e.advance(kStart + 1 * kMs);
  EXPECT_EQ(e.end(0, a), kStart + 100 * kUs);
  EXPECT_EQ(e.end(0, b), kStart + 100 * kUs);
  EXPECT_EQ(e.context(0).service_ns, 100 * kUs);
}

TEST(EngineCore, shares_the_device_among_lanes_that_fill_it) {
  FakeEngine e(1);
  const Ticket a = e.submit(0, 0, kernel(100 * kUs));
  const Ticket b = e.submit(0, 1, kernel(200 * kUs));
  e.advance(kStart + 1 * kMs);
  EXPECT_EQ(e.end(0, a), kStart + 200 * kUs);
  EXPECT_EQ(e.end(0, b), kStart + 300 * kUs);
}

TEST(EngineCore, copies_beside_compute_and_in_order_per_direction) {
  FakeEngine e(2);
  const Ticket k = e.submit(0, 0, kernel(1 * kMs));
  const Ticket up1 = e.submit(1, 0, {.kind = WorkKind::h2d, .duration_ns = 100 * kUs, .arrival_ns = kStart});
  const Ticket up2 = e.submit(0, 1, {.kind = WorkKind::h2d, .duration_ns = 50 * kUs, .arrival_ns = kStart + 10});
  const Ticket down = e.submit(0, 2, {.kind = WorkKind::d2h, .duration_ns = 70 * kUs, .arrival_ns = kStart + 10});
  e.advance(kStart + 2 * kMs);
  EXPECT_EQ(e.end(0, k), kStart + 1 * kMs);
  EXPECT_EQ(e.end(1, up1), kStart + 100 * kUs);
  EXPECT_EQ(e.start(0, up2), kStart + 100 * kUs);
  EXPECT_EQ(e.end(0, up2), kStart + 150 * kUs);
  EXPECT_EQ(e.end(0, down), kStart + 10 + 70 * kUs);
  EXPECT_EQ(e.context(1).copy_ns, 100 * kUs);
}

TEST(EngineCore, an_unpublished_duration_stops_the_simulation_but_not_the_device) {
  FakeEngine e(2);
  const Ticket a = e.submit(0, 0, kernel(kUnknownNs));
  const Advanced held = e.advance(kStart + 50 * kMs);
  EXPECT_TRUE(held.stalled);
  EXPECT_EQ(held.member, 0u);
  EXPECT_EQ(e.core.clock_ns, kStart);
  const Ticket b = e.submit(1, 0, kernel(1 * kMs, kStart + 1 * kMs));  // arrived while the simulation stood
  e.item(0, a).duration.store(3 * kMs);
  EXPECT_FALSE(e.advance(kStart + 50 * kMs).stalled);
  EXPECT_EQ(e.end(1, b), kStart + 2 * kMs + 20 * kUs + 1 * kMs);
  EXPECT_EQ(e.end(0, a), kStart + 4 * kMs + 40 * kUs);
  EXPECT_EQ(e.core.busy_ns, 4 * kMs);
}

TEST(EngineCore, progress_lets_the_clock_run_up_to_it) {
  FakeEngine e(1);
  const Ticket a = e.submit(0, 0, kernel(kUnknownNs));
  e.item(0, a).duration.store(kAtLeast | (700 * kUs));
  EXPECT_TRUE(e.advance(kStart + 10 * kMs).stalled);
  EXPECT_EQ(e.core.clock_ns, kStart + 700 * kUs);
  e.item(0, a).duration.store(900 * kUs);
  EXPECT_FALSE(e.advance(kStart + 10 * kMs).stalled);
  EXPECT_EQ(e.end(0, a), kStart + 900 * kUs);
}

TEST(EngineCore, sets_aside_a_kernel_whose_process_is_stopped) {
  Rules rules;
  rules.stall_ns = 100 * kMs;
  FakeEngine e(2, rules);
  const Ticket a = e.submit(0, 0, kernel(kUnknownNs));
  const Ticket b = e.submit(1, 0, kernel(1 * kMs));
  EXPECT_TRUE(e.advance(kStart + 90 * kMs).stalled);
  EXPECT_FALSE(e.advance(kStart + 200 * kMs).stalled);
  EXPECT_TRUE(e.done(1, b));
  e.item(0, a).duration.store(2 * kMs);
  e.advance(kStart + 300 * kMs);
  EXPECT_TRUE(e.done(0, a));
}

TEST(EngineCore, a_gate_stops_its_own_lane_only) {
  FakeEngine e(1);
  const Ticket gate = e.submit(0, 0, {.kind = WorkKind::gate, .arrival_ns = kStart});
  const Ticket after = e.submit(0, 0, kernel(10 * kUs));
  const Ticket other = e.submit(0, 1, kernel(10 * kUs));
  EXPECT_FALSE(e.advance(kStart + 1 * kMs).stalled);
  EXPECT_TRUE(e.done(0, other));
  EXPECT_FALSE(e.done(0, gate));
  e.item(0, gate).duration.store(kStart + 2 * kMs);
  e.advance(kStart + 3 * kMs);
  EXPECT_EQ(e.end(0, gate), kStart + 2 * kMs);
  EXPECT_EQ(e.end(0, after), kStart + 2 * kMs + 10 * kUs);
}

TEST(EngineCore, waits_for_an_item_of_another_context) {
  FakeEngine e(2);
  const Ticket a = e.submit(0, 0, kernel(300 * kUs));
  e.submit(1, 3, {.kind = WorkKind::wait, .after = {1, a}, .arrival_ns = kStart});
  const Ticket b = e.submit(1, 3, kernel(100 * kUs));
  e.advance(kStart + 1 * kMs);
  EXPECT_EQ(e.start(1, b), kStart + 300 * kUs + 20 * kUs);
}

TEST(EngineCore, a_marker_leaves_its_time_in_the_event_slot) {
  FakeEngine e(1);
  e.submit(0, 0, kernel(10 * kUs));
  const Ticket m = e.submit(0, 0, {.kind = WorkKind::marker, .event = 7, .arrival_ns = kStart});
  e.advance(kStart + 1 * kMs);
  EXPECT_TRUE(e.done(0, m));
  EXPECT_EQ(e.end(0, m), kStart + 10 * kUs);
}

TEST(EngineCore, late_work_starts_at_the_clock) {
  FakeEngine e(1);
  e.advance(kStart + 1 * kMs);
  const Ticket a = e.submit(0, 0, kernel(10 * kUs, kStart));
  e.advance(kStart + 2 * kMs);
  EXPECT_EQ(e.start(0, a), kStart + 1 * kMs);
}

TEST(EngineCore, samples_whole_percent_per_window_and_process) {
  FakeEngine e(2);
  const Rules rules;
  e.submit(0, 0, kernel(rules.window_ns / 2));
  e.advance(kStart + rules.window_ns + 1);
  ASSERT_EQ(e.core.device_samples, 1u);
  EXPECT_EQ(e.device_ring[0].compute, 50);
  ASSERT_EQ(e.core.process_samples, 1u);
  EXPECT_EQ(e.process_ring[0].pid, 100u);
  EXPECT_EQ(e.process_ring[0].compute, 50);
  e.advance(kStart + 3 * rules.window_ns);
  EXPECT_EQ(e.core.device_samples, 3u);
  EXPECT_EQ(e.core.process_samples, 1u);  // nothing new of an idle process
}

TEST(EngineCore, is_never_idle_while_a_kernel_is_queued) {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    FakeEngine e(4);
    std::uint64_t total = 0;
    for (int i = 0; i < 100; ++i) {
      const std::uint64_t d = (1 + random() % 3000) * kUs;
      total += d;
      e.submit(static_cast<unsigned>(random() % 4), 0, kernel(d));
    }
    e.advance(kStart + total / 2);
    EXPECT_EQ(e.core.idle_ns, 0u);
    e.advance(kStart + 2 * total);
    EXPECT_EQ(e.core.busy_ns, total);
  }
}

TEST(EngineCore, forgets_a_member_without_a_trace_in_the_schedule) {
  FakeEngine e(2);
  e.submit(0, 0, kernel(50 * kMs));
  e.submit(0, 1, {.kind = WorkKind::h2d, .duration_ns = 50 * kMs, .arrival_ns = kStart});
  e.advance(kStart + 1 * kMs);
  forget_member(e.core, 0);
  e.context(0) = ContextCore{};
  e.context(0).lanes[0].completed = 1;
  e.context(0).lanes[1].completed = 1;
  const Ticket b = e.submit(1, 0, kernel(1 * kMs, kStart + 1 * kMs));
  const Ticket c = e.submit(1, 1, {.kind = WorkKind::h2d, .duration_ns = 1 * kMs, .arrival_ns = kStart + 1 * kMs});
  e.advance(kStart + 10 * kMs);
  EXPECT_EQ(e.end(1, b), kStart + 2 * kMs);
  EXPECT_EQ(e.end(1, c), kStart + 2 * kMs);
}

}  // namespace
}  // namespace tensor_fusion::sim::device
