// The arbiter on the model GPU: the bars it must hold.
#include "pool/share.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "pool/share_model_trial.h"

namespace tensor_fusion::pool {
namespace {

using namespace model;

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

TEST(Share, tells_what_is_charged_in_advance_from_what_the_device_has_told) {
  constexpr std::uint64_t kMs = 1'000'000;
  Arbiter arbiter;
  arbiter.add(1, {0.5, 0.5}, 0);
  arbiter.add(2, {0.5, 0.5}, 0);
  arbiter.observe(1, {.launched_ns = 300 * kMs, .progress_ns = 400 * kMs, .open_since_ns = 100 * kMs, .streams = 1}, {},
                  100 * kMs);
  arbiter.decide(100 * kMs);
  arbiter.decide(350 * kMs);
  EXPECT_EQ(arbiter.account(1).service_ns, 300e6);
  EXPECT_EQ(arbiter.account(1).placed_ns, 0);
  EXPECT_EQ(arbiter.account(1).placed_until_ns, 100 * kMs);
  EXPECT_EQ(arbiter.account(2).placed_until_ns, 100 * kMs) << "it is one device";
  const ShareStretch told[] = {{100 * kMs, 400 * kMs, 300 * kMs}};
  arbiter.observe(1, {.launched_ns = 300 * kMs, .progress_ns = 400 * kMs}, told, 420 * kMs);
  arbiter.decide(420 * kMs);
  EXPECT_EQ(arbiter.account(1).placed_ns, 300e6);
  EXPECT_EQ(arbiter.account(1).placed_until_ns, kNever) << "nothing is under way";
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

// What it did until then was not counted, and what it had queued goes on for a moment.
TEST(Share, accuses_nobody_of_what_it_did_while_it_was_alone_and_unlimited) {
  Arbiter arbiter;
  arbiter.add(1, weight(.3), 0);
  std::uint64_t now = 0;
  std::uint64_t claimed = 0;
  const auto second = [&](bool counts) {
    now += kSecond;
    ShareClaim claim;
    claim.processes = claim.streams = 1;
    claim.launched_ns = claimed += counts ? kSecond : 0;
    std::vector<ShareStretch> stretches;
    if (counts) stretches.push_back({now - kSecond, now, kSecond, 0});
    arbiter.observe(1, claim, stretches, now);
    arbiter.decide(now);
    arbiter.observe_utilisation(1, 100, kSecond, now);
  };
  for (int i = 0; i < 20; ++i) second(false);
  EXPECT_FALSE(arbiter.account(1).bypass_suspected);
  arbiter.add(2, weight(.3), now + 1);
  second(false);
  for (int i = 0; i < 20; ++i) second(true);
  EXPECT_FALSE(arbiter.account(1).bypass_suspected);
  for (int i = 0; i < 10; ++i) second(false);
  EXPECT_TRUE(arbiter.account(1).bypass_suspected) << "now it is counted, and says nothing of what is seen";
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

}  // namespace
}  // namespace tensor_fusion::pool
