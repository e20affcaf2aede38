// The arbiter on the model GPU: the bars it must hold, and one test for each way such a scheme is known to fail.
#include "pool/share.h"

#include <gtest/gtest.h>
#include <time.h>

#include <cmath>
#include <string>

#include "pool/share_model.h"

namespace tensor_fusion::pool {
namespace {

using namespace model;

struct Part {
  ShareTerms terms;
  Program program;
  unsigned processes = 1;
  double target = -1;  // percent; -1: the limit
};

struct Outcome {
  std::vector<double> mean;
  double mean_error = 0;
  double p95_error = 0;
  double busy = 0;
};

ShareTerms cap(double share) { return {share, share, false}; }
ShareTerms weight(double share) { return {share, 1, false}; }

double percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(part * static_cast<double>(values.size())))];
}

Outcome run(Machine& machine, const std::vector<Part>& parts, Time until = 10 * kSecond) {
  for (const Part& part : parts) machine.add_tenant(part.terms, part.program, part.processes);
  const Time begin = machine.now;
  machine.run_until(until);
  Outcome outcome;
  outcome.busy = machine.busy() / static_cast<double>(machine.now - begin) * 100;
  std::vector<double> errors;
  double sum = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double target = parts[i].target >= 0 ? parts[i].target : parts[i].terms.limit * 100;
    outcome.mean.push_back(machine.mean_share(i));
    sum += std::abs(outcome.mean.back() - target);
    for (const double share : machine.shares(i)) errors.push_back(std::abs(share - target));
  }
  outcome.mean_error = sum / static_cast<double>(parts.size());
  outcome.p95_error = percentile(errors, 0.95);
  return outcome;
}
Outcome run(const std::vector<Part>& parts, ShareRules rules = {}, Hardware hardware = {}, bool limited = true) {
  Machine machine(rules, hardware, limited);
  return run(machine, parts);
}

double alone_share(const Program& program) { return run({{weight(1), program, 1}}).mean[0]; }

double step_p99_ms(const Machine& machine, std::size_t tenant) {
  std::vector<double> steps;
  for (const std::size_t p : machine.tenants[tenant].processes) {
    for (const Time step : machine.processes[p].steps) steps.push_back(static_cast<double>(step) / 1e6);
  }
  return percentile(steps, 0.99);
}

// ---- bars ----

TEST(Share, holds_caps_within_one_and_a_half_points_and_windows_within_three) {
  const std::vector<std::vector<Part>> mixes = {
      {{cap(.1), training()}, {cap(.9), training()}},
      {{cap(.3), training()}, {cap(.7), training()}},
      {{cap(.25), training()}},
      {{cap(.3), graphs()}},
      {{cap(.3), graphs()}, {cap(.7), training()}},
      {{cap(.35), training()},
       {cap(.25), graphs()},
       {cap(.2), training()},
       {cap(.12), training()},
       {cap(.08), training()}},
  };
  double sum = 0, worst = 0;
  for (const auto& mix : mixes) {
    const Outcome outcome = run(mix);
    sum += outcome.mean_error;
    worst = std::max(worst, outcome.p95_error);
  }
  EXPECT_LE(sum / static_cast<double>(mixes.size()), 1.5);
  EXPECT_LE(worst, 3.0);
}

TEST(Share, holds_caps_of_kernels_longer_than_the_quantum_within_five_points) {
  EXPECT_LE(run({{cap(.3), batch()}, {cap(.7), batch()}}).mean_error, 3.0);
  EXPECT_LE(run({{cap(.1), batch()}, {cap(.9), training()}}).p95_error, 5.0);
}

TEST(Share, divides_a_full_device_by_request_within_two_points_and_windows_within_four) {
  const Outcome two = run({{weight(.25), training(), 1, 25}, {weight(.75), training(), 1, 75}});
  EXPECT_LE(two.mean_error, 2.0);
  EXPECT_LE(two.p95_error, 4.0);
  const Outcome three =
      run({{weight(.2), training(), 1, 20}, {weight(.3), training(), 1, 30}, {weight(.5), graphs(), 1, 50}});
  EXPECT_LE(three.mean_error, 2.0);
  EXPECT_LE(three.p95_error, 4.0);
}

TEST(Share, divides_a_full_device_by_request_however_many_processes_a_tenant_has) {
  const Outcome outcome = run({{weight(.25), training(), 4, 25}, {weight(.75), training(), 1, 75}});
  EXPECT_LE(outcome.mean_error, 1.5);
  EXPECT_LE(outcome.p95_error, 4.0);
}

TEST(Share, divides_kernels_longer_than_the_quantum_by_request) {
  const Outcome outcome = run({{weight(.3), batch(), 1, 30}, {weight(.7), batch(), 1, 70}});
  EXPECT_LE(outcome.mean_error, 1.5);
  EXPECT_LE(outcome.p95_error, 4.0);
}

// One launch is worth nine points of a window of a second: the mean is what can be held.
TEST(Share, holds_launches_far_longer_than_a_stay) {
  for (const unsigned depth : {1u, 10u}) {
    const Outcome capped = run({{cap(.3), long_launches(depth)}, {cap(.7), long_launches(depth)}});
    EXPECT_LE(capped.mean_error, 1.5) << depth;
    EXPECT_GE(capped.busy, 96.0) << depth;
    const Outcome weighted =
        run({{weight(.3), long_launches(depth), 1, 30}, {weight(.7), long_launches(depth), 1, 70}});
    EXPECT_LE(weighted.mean_error, 2.0) << depth;
  }
  EXPECT_LE(run({{cap(.3), long_launches(1)}, {cap(.7), training()}}).mean_error, 1.5);
}

TEST(Share, holds_a_tenant_that_is_alone_and_waits_for_each_of_its_long_launches) {
  EXPECT_NEAR(run({{cap(.3), long_launches(1)}}).mean[0], 30, 1.5);
}

TEST(Share, sleeps_only_after_a_capped_tenant_was_told_to_ring_and_looked_at_once_more) {
  Arbiter arbiter;
  arbiter.add(1, cap(.3), 0);
  Time now = kMs;
  arbiter.observe(1, {.launched_ns = kMs, .progress_ns = now + kMs, .wanted_since_ns = now, .streams = 1}, {}, now);
  bool told = false;
  for (int look = 0; look < 100; ++look) {
    const std::uint64_t due = arbiter.decide(now);
    if (due == kNever) {
      EXPECT_TRUE(told);
      return;
    }
    told = arbiter.grant(1).admitted && !arbiter.grant(1).known;
    now = due;
    arbiter.observe(1, {.launched_ns = kMs, .progress_ns = 2 * kMs, .wanted_since_ns = kMs}, {}, now);
  }
  FAIL() << "it never sleeps";
}

TEST(Share, wakes_up_no_more_often_than_there_is_something_to_decide) {
  Machine machine;
  machine.add_tenant(cap(.3), long_launches(10));
  machine.add_tenant(cap(.7), long_launches(10));
  machine.run_until(5 * kSecond);
  const std::uint64_t before = machine.passes;
  machine.run_until(10 * kSecond);
  EXPECT_LE(machine.passes - before, 5 * 150u);
}

TEST(Share, charges_a_stay_for_the_time_the_device_was_idle_and_for_no_other) {
  Arbiter arbiter;
  arbiter.add(1, weight(.5), 0);
  arbiter.add(2, weight(.5), 0);
  const auto blocked = [](std::uint64_t launched) { return ShareClaim{.launched_ns = launched, .blocked = 1}; };
  arbiter.observe(1, blocked(0), {}, kMs);
  arbiter.observe(2, blocked(0), {}, kMs);
  arbiter.decide(kMs);
  ASSERT_TRUE(arbiter.grant(1).admitted);
  arbiter.decide(kMs + 1);  // 2 waits from here on
  // The other's tail runs for 1 ms of the stay, then it has 2 ms, and 1 ms nobody works.
  const std::vector<ShareStretch> tail = {{kMs, 2 * kMs, kMs}};
  const std::vector<ShareStretch> mine = {{2 * kMs, 4 * kMs, 2 * kMs}};
  arbiter.observe(2, blocked(kMs), tail, 5 * kMs);
  arbiter.observe(1, blocked(2 * kMs), mine, 5 * kMs);
  arbiter.decide(5 * kMs);
  EXPECT_NEAR(arbiter.account(1).gap_ns, 1e6, 2);
  EXPECT_NEAR(arbiter.account(1).service_ns, 2e6, 2);
  EXPECT_EQ(arbiter.account(2).gap_ns, 0);
}

TEST(Share, holds_every_limit_between_five_and_ninety_five) {
  for (double share = .05; share < 1; share += .15) {
    const Outcome outcome = run({{cap(share), training()}, {cap(1 - share), training()}});
    EXPECT_LE(outcome.mean_error, 1.5) << share;
    EXPECT_LE(outcome.p95_error, 3.5) << share;
  }
}

TEST(Share, lends_what_an_idle_tenant_does_not_use) {
  Machine machine;
  machine.add_tenant(weight(.2), training());
  machine.add_tenant(weight(.8), decode(10, 20 * kUs, 50 * kMs));
  machine.run_until(8 * kSecond);
  EXPECT_GE(machine.mean_share(0) + machine.mean_share(1), 97.0);
}

TEST(Share, gives_the_owner_its_device_back_within_thirty_milliseconds) {
  Machine machine;
  machine.add_tenant(weight(.2), training());
  unsigned round = 0;
  machine.add_tenant(weight(.8), [&round](std::mt19937_64&) -> Step {
    // A single launch, waited for, after long pauses.
    switch (round++ % 3) {
      case 0:
        return {Step::kLaunch, 100 * kUs, 0, 0};
      case 1:
        return {Step::kSync, 0, 0, 0};
      default:
        return {Step::kThink, 300 * kMs, 0, 0};
    }
  });
  machine.run_until(8 * kSecond);
  EXPECT_LE(step_p99_ms(machine, 1), 30.0);
}

TEST(Share, costs_one_stream_three_percent_at_most) { EXPECT_GE(alone_share(training()), 97.0); }

TEST(Share, costs_a_capped_tenant_nothing_of_its_cap) { EXPECT_NEAR(run({{cap(.9), training()}}).mean[0], 90, 1.0); }

TEST(Share, keeps_decode_steps_within_two_slices_and_a_millisecond_beside_two_others) {
  Machine alone;
  alone.add_tenant(weight(1), decode(60, 20 * kUs, 1000 * kUs));
  alone.run_until(3 * kSecond);
  const double own = step_p99_ms(alone, 0);
  for (const bool latency : {false, true}) {
    Machine machine;
    machine.add_tenant({.4, 1, latency}, decode(60, 20 * kUs, 1000 * kUs));
    machine.add_tenant(weight(.3), training());
    machine.add_tenant(weight(.3), training());
    machine.run_until(8 * kSecond);
    EXPECT_LE(step_p99_ms(machine, 0), own + 2 * 2.0 + 1.0) << latency;
  }
}

TEST(Share, holds_while_durations_drift_by_forty_percent) {
  const auto drifting = [] {
    return [i = 0u](std::mt19937_64&) mutable -> Step {
      const double phase = std::sin(static_cast<double>(i) / 700.0);
      const unsigned key = i++ % 8;
      return {Step::kLaunch, static_cast<Time>((100e3 + 60e3 * key) * (1 + 0.4 * phase)), 0, key};
    };
  };
  const Outcome outcome = run({{cap(.3), drifting()}, {cap(.7), drifting()}});
  EXPECT_LE(outcome.mean_error, 1.5);
  EXPECT_LE(outcome.p95_error, 6.0);
}

TEST(Share, holds_tenants_with_four_streams) {
  const Outcome outcome = run({{cap(.3), many_streams()}, {cap(.7), training()}});
  EXPECT_LE(outcome.mean_error, 3.0);
  EXPECT_LE(outcome.p95_error, 7.0);
}

TEST(Share, keeps_devices_apart) {
  // One arbiter each: what happens on one cannot reach the other.
  const Outcome first = run({{cap(.2), training()}, {cap(.8), training()}});
  const Outcome second = run({{cap(.6), training()}, {cap(.4), training()}});
  EXPECT_NEAR(first.mean[0], 20, 1.5);
  EXPECT_NEAR(second.mean[0], 60, 1.5);
}

TEST(Share, takes_a_changed_limit_at_once) {
  Machine machine;
  machine.add_tenant(cap(.3), training());
  machine.add_tenant(cap(.3), training());
  machine.run_until(4 * kSecond);
  machine.arbiter.change(1, cap(.6), machine.now);
  machine.run_until(8 * kSecond);
  EXPECT_NEAR(machine.tenants[0].windows[2] / 1e7, 30, 3);
  EXPECT_NEAR(machine.tenants[0].windows[6] / 1e7, 60, 3);
}

TEST(Share, forgets_a_dead_tenant_that_held_the_device) {
  Machine machine;
  machine.add_tenant(weight(.5), training());
  machine.add_tenant(weight(.5), training());
  machine.run_until(3 * kSecond);
  for (int turn = 0; turn < 40 && !machine.tenants[0].grant.admitted; ++turn) machine.run_until(machine.now + kMs);
  ASSERT_TRUE(machine.tenants[0].grant.admitted);
  machine.remove_tenant(0);
  machine.run_until(6 * kSecond);
  EXPECT_GE(machine.mean_share(1, 4), 97.0);
}

TEST(Share, opens_the_gate_for_a_tenant_that_is_alone_and_unlimited) {
  Arbiter arbiter;
  arbiter.add(1, weight(.3), 0);
  arbiter.decide(1000);
  EXPECT_TRUE(arbiter.grant(1).unlimited);
  arbiter.add(2, weight(.3), 2000);
  arbiter.decide(3000);
  EXPECT_FALSE(arbiter.grant(1).unlimited);
  arbiter.remove(2, 4000);
  arbiter.change(1, cap(.3), 4000);
  arbiter.decide(5000);
  EXPECT_FALSE(arbiter.grant(1).unlimited);
}

// ---- traps ----

TEST(Trap, one_a_tenant_of_four_processes_takes_four_shares_where_nobody_limits) {
  EXPECT_GE(run({{cap(.3), training(), 4}, {cap(.7), training()}}, {}, {}, false).mean[0], 70.0);
  const Outcome held = run({{cap(.3), training(), 4}, {cap(.7), training()}});
  EXPECT_NEAR(held.mean[0], 30, 4);
  EXPECT_NEAR(held.mean[1], 70, 5);
}

TEST(Trap, two_estimates_alone_are_open_loop) {
  // Kernels that got twice as fast as they were learned: without measuring, the device idles.
  const auto shrinking = [] {
    return [i = 0u](std::mt19937_64&) mutable -> Step {
      const unsigned key = i++ % 4;
      // Only one in forty is what the samples tend to see.
      return {Step::kLaunch, i % 40 == 0 ? 900 * kUs : 250 * kUs, 0, key};
    };
  };
  ShareRules blind;
  blind.exact = false;
  const Outcome guessed = run({{cap(.3), shrinking()}, {cap(.7), training()}}, blind);
  const Outcome measured = run({{cap(.3), shrinking()}, {cap(.7), training()}});
  EXPECT_LE(measured.mean_error, 1.5);
  EXPECT_LT(measured.mean_error, guessed.mean_error);
}

TEST(Trap, three_overlapping_stretches_read_wall_time_and_must_not_count_it_twice) {
  Arbiter arbiter;
  arbiter.add(1, cap(.5), 0);
  arbiter.add(2, cap(.5), 0);
  const std::vector<ShareStretch> first = {{1 * kMs, 9 * kMs, 4 * kMs}};
  const std::vector<ShareStretch> second = {{1 * kMs, 9 * kMs, 4 * kMs}};
  arbiter.observe(1, {.launched_ns = 4 * kMs}, first, 10 * kMs);
  arbiter.observe(2, {.launched_ns = 4 * kMs}, second, 10 * kMs);
  arbiter.decide(10 * kMs);
  EXPECT_NEAR(arbiter.account(1).service_ns, 4e6, 1);
  EXPECT_NEAR(arbiter.account(2).service_ns, 4e6, 1);
}

TEST(Trap, four_a_long_kernel_does_not_block_a_tenant_that_wakes) {
  Machine machine;
  machine.add_tenant(weight(.5), batch(20 * kMs, 20 * kMs));
  machine.add_tenant(weight(.5), decode(20, 20 * kUs, 30 * kMs));
  machine.run_until(8 * kSecond);
  EXPECT_LE(step_p99_ms(machine, 1), 6.0);
}

TEST(Trap, five_kernels_longer_than_the_window_do_not_idle_the_device_between_them) {
  const Part one{cap(.95), batch(5 * kMs, 8 * kMs), 1};
  ShareRules blind;
  blind.subtract_progress = false;
  const Outcome waiting = run({one}, blind);
  const Outcome ours = run({one});
  EXPECT_GE(ours.mean[0], 94.0);
  EXPECT_LE(ours.mean[0], 96.0);
  EXPECT_LE(waiting.mean[0], ours.mean[0]);
}

TEST(Trap, six_the_window_does_not_serialise_streams) {
  Machine limited;
  limited.add_tenant(weight(.5), many_streams());
  limited.add_tenant(weight(.5), decode(1, 10 * kUs, 200 * kMs));
  limited.run_until(6 * kSecond);
  Machine open({}, {}, false);
  open.add_tenant(weight(.5), many_streams());
  open.add_tenant(weight(.5), decode(1, 10 * kUs, 200 * kMs));
  open.run_until(6 * kSecond);
  EXPECT_GE(limited.processes[0].kernels_ns, 0.85 * open.processes[0].kernels_ns);
}

TEST(Trap, seven_a_tenant_that_waits_for_every_launch_reaches_its_part_of_what_it_reaches_alone) {
  const double alone = alone_share(sync_each());
  const Outcome outcome = run({{cap(.3), sync_each(), 1, .3 * alone}, {cap(.7), training(), 1, 70}});
  EXPECT_NEAR(outcome.mean[0], .3 * alone, 3);
  EXPECT_NEAR(outcome.mean[1], 70, 3);
}

TEST(Trap, eight_a_short_think_gap_does_not_cost_the_device) {
  Arbiter arbiter;
  arbiter.add(1, weight(.5), 0);
  arbiter.add(2, weight(.5), 0);
  Time now = kMs;
  arbiter.observe(1, {.launched_ns = 100 * kUs, .progress_ns = now + 100 * kUs, .gap_ns = 150 * kUs, .blocked = 1}, {},
                  now);
  arbiter.decide(now);
  ASSERT_TRUE(arbiter.grant(1).admitted);
  now += 500 * kUs;
  arbiter.observe(1, {.launched_ns = 200 * kUs, .progress_ns = now, .gap_ns = 150 * kUs}, {}, now);
  arbiter.observe(2, {.blocked = 1}, {}, now);
  now += 100 * kUs;
  arbiter.decide(now);
  EXPECT_TRUE(arbiter.grant(1).admitted) << "in its usual pause";
  now += 400 * kUs;
  arbiter.observe(1, {.launched_ns = 200 * kUs, .progress_ns = now - 500 * kUs, .gap_ns = 150 * kUs}, {}, now);
  arbiter.decide(now);
  EXPECT_TRUE(arbiter.grant(2).admitted) << "longer than usual";
}

TEST(Trap, nine_frequent_waiting_is_not_punished_by_a_small_wake_credit) {
  const auto share = [](ShareRules rules) {
    return run({{weight(.5), sync_each(2 * kMs, 700 * kUs), 1, 50}, {weight(.5), training(), 1, 50}}, rules).mean[0];
  };
  ShareRules small;
  small.wake_credit_ns = 0;
  small.lag_ns = kSecond;
  const double alone = alone_share(sync_each(2 * kMs, 700 * kUs));
  const double ours = share({});
  EXPECT_GE(ours, .5 * alone - 3);
  EXPECT_GE(ours, share(small) - 0.5);
}

TEST(Trap, ten_and_nobody_hangs_when_the_daemon_dies) {
  Machine machine;
  machine.add_tenant(cap(.3), training());
  machine.add_tenant(cap(.7), training());
  machine.run_until(4 * kSecond);
  machine.kill_daemon();
  machine.run_until(10 * kSecond);
  for (std::size_t i = 0; i < 2; ++i) {
    const double target = machine.tenants[i].terms.limit * 100;
    EXPECT_NEAR(machine.mean_share(i, 5), target, 5);
    for (const double share : machine.shares(i, 5)) EXPECT_GT(share, 5.0);
  }
}

TEST(Trap, eleven_an_offset_between_clocks_does_not_move_shares) {
  Machine machine;
  machine.add_tenant(cap(.3), training());
  machine.add_tenant(cap(.7), training());
  machine.tenants[0].clock_offset = 50 * kUs;
  machine.tenants[1].clock_offset = -static_cast<std::int64_t>(50 * kUs);
  machine.run_until(8 * kSecond);
  EXPECT_NEAR(machine.mean_share(0), 30, 1.5);
  EXPECT_NEAR(machine.mean_share(1), 70, 1.5);
}

TEST(Trap, twelve_a_late_pass_does_not_swallow_a_wake) {
  Machine machine;
  machine.add_tenant(weight(.5), decode(20, 20 * kUs, 20 * kMs));
  machine.add_tenant(weight(.5), training());
  machine.late_pass = 3 * kMs;
  machine.run_until(6 * kSecond);
  EXPECT_LE(step_p99_ms(machine, 0), 3.0 + 3.0 + 6.0);
}

TEST(Trap, thirteen_graphs_count) { EXPECT_NEAR(run({{cap(.3), graphs()}}).mean[0], 30, 1.5); }

TEST(Trap, fourteen_nvml_neither_decides_nor_is_ignored) {
  Machine machine;
  machine.add_tenant(cap(.3), training());
  machine.add_tenant(cap(.7), training());
  for (int second = 1; second <= 8; ++second) {
    machine.run_until(static_cast<Time>(second) * kSecond);
    // Whole percents, a window late, some points off.
    machine.arbiter.observe_utilisation(1, 30 + (second % 2 == 0 ? 4 : -4), kSecond, machine.now);
    machine.arbiter.observe_utilisation(2, 70 + (second % 2 == 0 ? -4 : 4), kSecond, machine.now);
  }
  EXPECT_NEAR(machine.mean_share(0), 30, 1.5);
  EXPECT_FALSE(machine.arbiter.account(1).bypass_suspected);

  Arbiter arbiter;
  arbiter.add(1, cap(.3), 0);
  arbiter.add(2, cap(.7), 0);
  for (int second = 1; second <= 6; ++second) {
    arbiter.observe_utilisation(1, 90, kSecond, static_cast<Time>(second) * kSecond);
  }
  EXPECT_TRUE(arbiter.account(1).bypass_suspected);
  EXPECT_LT(arbiter.account(1).cap_credit_ns, 0);
}

TEST(Trap, fifteen_demand_is_a_blocked_launch_and_not_a_deep_queue) {
  Arbiter arbiter;
  arbiter.add(1, weight(.5), 0);
  arbiter.add(2, weight(.5), 0);
  Time now = kMs;
  arbiter.observe(1, {.wanted_since_ns = now, .blocked = 1}, {}, now);
  arbiter.decide(now);
  ASSERT_TRUE(arbiter.grant(1).admitted);
  // The other has much on the device and asks for nothing more: no reason to take the device away.
  arbiter.observe(1, {.launched_ns = 40 * kMs, .progress_ns = now + 20 * kMs, .blocked = 1}, {}, now + 20 * kMs);
  arbiter.observe(2, {.launched_ns = 50 * kMs, .progress_ns = now + 60 * kMs, .streams = 1}, {}, now + 20 * kMs);
  arbiter.decide(now + 20 * kMs);
  EXPECT_TRUE(arbiter.grant(1).admitted);
  arbiter.observe(2, {.launched_ns = 50 * kMs, .progress_ns = now + 20 * kMs, .blocked = 1, .streams = 1}, {},
                  now + 21 * kMs);
  for (Time t = now + 21 * kMs; t < now + 60 * kMs; t += kMs) arbiter.decide(t);
  EXPECT_TRUE(arbiter.grant(2).admitted);
}

TEST(Trap, sixteen_the_first_launch_after_idle_costs_no_round_trip) {
  Arbiter arbiter;
  arbiter.add(1, cap(.5), 0);
  arbiter.add(2, cap(.5), 0);
  arbiter.observe(1, {.wanted_since_ns = kMs, .blocked = 1}, {}, kMs);
  arbiter.decide(kMs);
  arbiter.observe(1, {.launched_ns = kMs, .progress_ns = 2 * kMs}, {}, 2 * kMs);
  for (Time now = 3 * kMs; now < 100 * kMs; now += 10 * kMs) arbiter.decide(now);
  EXPECT_TRUE(arbiter.grant(1).admitted);
}

TEST(Trap, seventeen_unequal_caps_beside_unequal_process_counts) {
  const Outcome outcome = run({{cap(.15), training(), 3}, {cap(.45), training()}, {cap(.4), graphs()}});
  EXPECT_NEAR(outcome.mean[0], 15, 3);
  EXPECT_NEAR(outcome.mean[1], 45, 3);
  EXPECT_NEAR(outcome.mean[2], 40, 3);
}

// ---- hostile claims ----

TEST(ShareLiar, a_tenant_that_claims_nothing_pays_for_holding_the_device) {
  Arbiter arbiter;
  arbiter.add(1, weight(.5), 0);
  arbiter.add(2, weight(.5), 0);
  Time held[2] = {0, 0};
  std::uint64_t honest = 0;
  for (Time now = kMs; now < 2 * kSecond; now += 200 * kUs) {
    // The liar is always blocked and never launches; the other works whenever it may.
    arbiter.observe(1, {.wanted_since_ns = kMs, .gap_ns = 0, .blocked = 1}, {}, now);
    std::vector<ShareStretch> said;
    if (arbiter.grant(2).admitted) {
      honest += 200 * kUs;
      said.push_back({now - 200 * kUs, now, 200 * kUs});
    }
    arbiter.observe(2, {.launched_ns = honest, .progress_ns = now, .blocked = 1}, said, now);
    arbiter.decide(now);
    for (ShareKey key : {ShareKey{1}, ShareKey{2}}) held[key - 1] += arbiter.grant(key).admitted ? 200 * kUs : 0;
  }
  EXPECT_GE(held[1], 2 * kSecond * 40 / 100);
}

TEST(ShareLiar, absurd_numbers_cost_only_their_author) {
  std::mt19937_64 random(3);
  Arbiter arbiter;
  arbiter.add(1, weight(.5), 0);
  arbiter.add(2, weight(.5), 0);
  Time held = 0;
  std::uint64_t honest = 0;
  for (Time now = kMs; now < 2 * kSecond; now += 200 * kUs) {
    const auto any = [&] { return random() >> (random() % 64); };
    std::vector<ShareStretch> lies;
    for (std::uint64_t i = random() % 3; i > 0; --i) lies.push_back({any(), any(), any()});
    arbiter.observe(1,
                    {any(), any(), any(), any(), any(), static_cast<std::uint32_t>(any()),
                     static_cast<std::uint32_t>(any()), static_cast<std::uint32_t>(any())},
                    lies, now);
    const bool mine = arbiter.grant(2).admitted;
    if (mine) honest += 200 * kUs;
    arbiter.observe(2, {.launched_ns = honest, .progress_ns = mine ? now + kMs : now, .blocked = 1}, {}, now);
    const Time due = arbiter.decide(now);
    EXPECT_GT(due, now);
    held += mine ? 200 * kUs : 0;
    const ShareAccount account = arbiter.account(2);
    ASSERT_TRUE(std::isfinite(account.virtual_time) && std::isfinite(account.service_ns));
  }
  EXPECT_GE(held, 2 * kSecond * 40 / 100);
}

TEST(ShareLiar, work_behind_the_gate_shows_in_nvml_and_is_charged) {
  Arbiter arbiter;
  arbiter.add(1, cap(.3), 0);
  const double before = arbiter.account(1).service_ns;
  for (int second = 1; second <= 5; ++second) {
    arbiter.observe_utilisation(1, 100, kSecond, static_cast<Time>(second) * kSecond);
  }
  EXPECT_GT(arbiter.account(1).service_ns, before + 0.9e9);
}

TEST(ShareLiar, one_that_forges_its_counters_has_no_more_than_its_share_over_time) {
  Arbiter arbiter;
  arbiter.add(1, cap(.2), kSecond);
  double had = 0;
  for (Time second = 2; second <= 62; ++second) {
    arbiter.observe(1, {.launched_ns = 25 * kMs * second, .blocked = 1}, {}, second * kSecond);
    arbiter.decide(second * kSecond);
    // A whole second while it may, and a pause while it may not: NVML tells both a window late.
    const bool open = arbiter.account(1).cap_credit_ns > 0;
    had += open ? 1 : 0;
    arbiter.observe_utilisation(1, open ? 100 : 0, kSecond, second * kSecond);
  }
  EXPECT_LE(had / 61, .3);
  EXPECT_TRUE(arbiter.account(1).bypass_suspected);
}

TEST(ShareLiar, a_long_kernel_that_tells_when_it_has_ended_is_not_charged_twice) {
  Arbiter arbiter;
  arbiter.add(1, cap(.5), kSecond);
  arbiter.add(2, cap(.5), kSecond);
  arbiter.observe_utilisation(1, 0, kSecond, kSecond);
  for (Time second = 2; second <= 5; ++second) {
    arbiter.decide(second * kSecond);
    arbiter.observe_utilisation(1, 100, kSecond, second * kSecond);
  }
  arbiter.observe(1, {.launched_ns = 4 * kSecond}, {}, 5 * kSecond);
  arbiter.observe_utilisation(1, 0, kSecond, 6 * kSecond);
  EXPECT_NEAR(arbiter.account(1).service_ns, 4e9, 1e9);
}

TEST(ShareLiar, what_is_told_too_late_is_charged_in_full) {
  Arbiter arbiter;
  arbiter.add(1, cap(.3), kSecond);
  arbiter.observe(1, {.launched_ns = 100'000}, {}, kSecond);
  arbiter.decide(2 * kSecond);
  const double before = arbiter.account(1).service_ns;
  const ShareStretch late{kSecond, kSecond + 300 * kMs, 100'000, 0}, beside{kSecond, kSecond + 300 * kMs, 100'000, 0};
  arbiter.observe(1, {.launched_ns = 200'000}, std::vector{late, beside}, 2 * kSecond);
  EXPECT_NEAR(arbiter.account(1).service_ns - before, 300e6, 1e6) << "and what ran beside it, once";
  EXPECT_LT(arbiter.account(1).cap_credit_ns, 0);
}

TEST(ShareLiar, what_is_told_too_late_counts_as_estimated_where_that_can_be) {
  Arbiter arbiter;
  arbiter.add(1, cap(.3), kSecond);
  arbiter.observe(1, {.launched_ns = 100 * kMs}, {}, kSecond);
  arbiter.decide(2 * kSecond);
  arbiter.observe(1, {.launched_ns = 100 * kMs}, std::vector{ShareStretch{kSecond, kSecond + 200 * kMs, 100 * kMs, 0}},
                  2 * kSecond);
  EXPECT_NEAR(arbiter.account(1).service_ns, 100e6, 1e6) << "others may have had turns in it";
}

// ---- floods ----

double cpu_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

// The thread that decides writes the heartbeats of every tenant, too: no claim may keep it for long.
TEST(Flood, of_stretches_that_all_overlap_is_settled_in_a_moment) {
  Arbiter arbiter;
  constexpr Time kBegin = kSecond;
  constexpr std::size_t kTenants = 8, kEach = 512;
  for (ShareKey key = 0; key < kTenants; ++key) arbiter.add(key, weight(.125), kBegin);
  arbiter.decide(kBegin);
  for (ShareKey key = 0; key < kTenants; ++key) {
    std::vector<ShareStretch> stretches;
    for (std::size_t i = 0; i < kEach; ++i) {
      const Time start = kBegin + 1 + (i * kTenants + key) * 3'000;
      stretches.push_back({start, start + 5 * kMs, 1 * kMs, static_cast<std::uint32_t>(i)});
    }
    arbiter.observe(key, {.launched_ns = kEach * kMs}, stretches, kBegin + 20 * kMs);
  }
  const double before = cpu_ms();
  arbiter.decide(kBegin + 20 * kMs);
  EXPECT_LT(cpu_ms() - before, 50);
  double measured = 0;
  for (ShareKey key = 0; key < kTenants; ++key) measured += arbiter.account(key).service_ns;
  EXPECT_NEAR(measured / 1e6, (kTenants * kEach * 3e3 + 5e6) / 1e6, 0.1) << "no more than passed, and no less";
}

}  // namespace
}  // namespace tensor_fusion::pool
