// Tenants whose claims are forged, or that stop while they are let in: nobody else may pay for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "pool/share.h"
#include "pool/share_model_trial.h"

namespace tensor_fusion::pool {
namespace {

using namespace model;

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

// The gate is held to by what a process knows itself; what it tells of that is forged. Returns what it had in the first
// two seconds, in part of them.
double forge(Machine& machine, const Program& program, bool alone) {
  machine.add_tenant(cap(.2), program);
  if (!alone) machine.add_tenant(cap(.8), training());
  machine.tenants[0].lie = [](ShareClaim& claim, std::vector<ShareStretch>& stretches, Time now) {
    claim = {.wanted_since_ns = now, .gap_ns = 0, .blocked = claim.blocked};
    stretches.clear();
  };
  double before = 0, late = 0, first = 0;
  while (machine.now < 20 * kSecond) {
    machine.run_until(machine.now + 200 * kMs);
    const double had = machine.device_ns(0);
    machine.arbiter.observe_utilisation(1, late, 200 * kMs, machine.now);
    late = (had - before) / 2e6;
    before = had;
    if (machine.now < 2 * kSecond) first = had;
  }
  return first / 2e9;
}

TEST(ShareLiar, one_that_says_it_launched_nothing_has_its_cap_soon_and_then_no_more) {
  for (const bool alone : {true, false}) {
    Machine machine;
    EXPECT_LE(forge(machine, training(), alone), 0.4);
    EXPECT_NEAR(machine.mean_share(0, 4), 20, 3);
    for (const double share : machine.shares(0, 4)) EXPECT_NEAR(share, 20, 3) << alone;
    EXPECT_TRUE(machine.arbiter.account(1).bypass_suspected);
    Machine longer;
    EXPECT_LE(forge(longer, batch(), alone), 0.4);
    EXPECT_LE(longer.mean_share(0), 23) << "of launches longer than the gate lets ahead";
  }
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

// ---- wanting without using ----

Program asleep() {
  return [](std::mt19937_64&) -> Step { return {Step::kThink, kSecond, 0, 0}; };
}

void ring_without_pause(Machine& machine) {
  machine.at(machine.now + 100 * kUs, [&machine] {
    machine.ring();
    ring_without_pause(machine);
  });
}

void stop_and_go_on(Machine& machine, std::size_t process, Time runs, Time stands) {
  machine.at(machine.now + runs, [&machine, process, runs, stands] {
    machine.stop(process);
    machine.at(machine.now + stands, [&machine, process, runs, stands] {
      machine.go_on(process);
      stop_and_go_on(machine, process, runs, stands);
    });
  });
}

using Lie = std::function<void(ShareClaim&, std::vector<ShareStretch>&, Time)>;

struct Neighbour {
  ShareTerms mine, its;
  Program program;
  double fair = 0;  // what it has beside one that uses its share
};
const std::vector<Neighbour>& neighbours() {
  static const std::vector<Neighbour> all = [] {
    std::vector<Neighbour> list = {{cap(.6), cap(.4), sync_each()},
                                   {weight(.5), weight(.5), sync_each()},
                                   {weight(.5), weight(.5), decode()},
                                   {cap(.3), cap(.7), decode()},
                                   {weight(.5), weight(.5), training()},
                                   {cap(.3), cap(.7), training()},
                                   {weight(.5), weight(.5), sync_each(200 * kUs)}};
    for (Neighbour& each : list) each.fair = run({{each.mine, each.program}, {each.its, training()}}).mean[0];
    return list;
  }();
  return all;
}

constexpr double kKept = 0.9;

void expect_no_harm(const Lie& lie) {
  for (const Neighbour& each : neighbours()) {
    Machine machine;
    machine.add_tenant(each.mine, each.program);
    machine.add_tenant(each.its, asleep());
    machine.tenants[1].lie = lie;
    ring_without_pause(machine);
    machine.run_until(5 * kSecond);
    EXPECT_GE(machine.mean_share(0), kKept * each.fair) << each.mine.request << " beside " << each.its.request;
  }
}

TEST(ShareLiar, one_that_claims_a_queue_it_does_not_have_is_not_waited_for_again_and_again) {
  expect_no_harm([](ShareClaim& claim, std::vector<ShareStretch>&, Time now) {
    claim = {.progress_ns = now + 40 * kMs, .wanted_since_ns = kMs, .blocked = 1, .streams = 1};
  });
}

TEST(ShareLiar, one_that_says_its_launches_are_long_is_not_waited_for_the_longer) {
  expect_no_harm([](ShareClaim& claim, std::vector<ShareStretch>& stretches, Time now) {
    claim = {.progress_ns = now + kSecond, .wanted_since_ns = now, .gap_ns = 2 * kMs, .blocked = 1, .streams = 1000};
    stretches.push_back({0, 0, 250 * kMs});
  });
}

TEST(ShareLiar, one_that_wakes_all_the_time_and_uses_nothing_is_not_let_in_at_once) {
  expect_no_harm([turn = 0u](ShareClaim& claim, std::vector<ShareStretch>&, Time now) mutable {
    claim = {.wanted_since_ns = now, .gap_ns = 2 * kMs, .blocked = turn++ % 6 == 0 ? 1u : 0u};
  });
}

TEST(ShareLiar, one_that_pays_for_a_little_is_not_kept_the_device_for_more) {
  expect_no_harm([launched = Time{0}](ShareClaim& claim, std::vector<ShareStretch>& stretches, Time now) mutable {
    launched += 20 * kUs;
    claim = {.launched_ns = launched,
             .progress_ns = now + kMs,
             .wanted_since_ns = now,
             .gap_ns = 2 * kMs,
             .open_since_ns = now - 50 * kMs,
             .blocked = 1};
    stretches.push_back({0, 0, 250 * kMs});
  });
}

TEST(ShareLiar, one_that_writes_noise_harms_nobody) {
  std::mt19937_64 random(5);
  std::uint64_t launched = 0;
  expect_no_harm([&](ShareClaim& claim, std::vector<ShareStretch>& stretches, Time now) {
    const auto any = [&] { return random() >> (random() % 64); };
    launched += std::min(any(), 60 * kSecond);
    claim = {launched, now + std::min(any(), 60 * kSecond), std::min(any(), now), any(), 1 + any(), 1000, 1000, 512};
    for (std::uint64_t i = random() % 16; i > 0; --i) stretches.push_back({any(), any(), any(), 0});
  });
}

TEST(ShareLiar, one_that_is_stopped_while_it_is_let_in_harms_nobody) {
  for (const Neighbour& each : neighbours()) {
    for (const auto& [runs, stands] : {std::pair{2 * kMs, 2 * kMs}, {kMs, 10 * kMs}, {20 * kMs, 50 * kMs}}) {
      for (const Program& program : {training(), batch()}) {
        Machine machine;
        machine.add_tenant(each.mine, each.program);
        machine.add_tenant(each.its, program);
        stop_and_go_on(machine, 1, runs, stands);
        machine.run_until(6 * kSecond);
        EXPECT_GE(machine.mean_share(0), kKept * each.fair) << each.mine.request << " stopped for " << stands;
      }
    }
  }
}

TEST(ShareLiar, one_that_wasted_its_turns_is_believed_again_once_it_uses_them) {
  Machine machine;
  machine.add_tenant(weight(.5), training());
  machine.add_tenant(weight(.5), training());
  machine.run_until(kSecond);
  // Stopped at the gate: it has wanted, and goes on wanting.
  for (int turn = 0; turn < 200 && !machine.processes[1].blocked; ++turn) machine.run_until(machine.now + 100 * kUs);
  machine.stop(1);
  machine.run_until(machine.now + 400 * kMs);
  EXPECT_GE(machine.arbiter.account(2).doubt, 2u);
  EXPECT_EQ(machine.arbiter.account(1).doubt, 0u);
  machine.go_on(1);
  machine.run_until(3 * kSecond);
  EXPECT_EQ(machine.arbiter.account(2).doubt, 0u);
  machine.run_until(8 * kSecond);
  EXPECT_NEAR(machine.mean_share(1, 4), 50, 2);
}

TEST(ShareLiar, honest_tenants_are_never_in_doubt) {
  const std::vector<std::vector<Part>> mixes = {
      {{cap(.6), sync_each()}, {cap(.4), training()}},
      {{weight(.5), sync_each(50 * kUs)}, {weight(.5), decode()}},
      {{cap(.3), batch()}, {cap(.7), batch()}},
      {{weight(.25), training(), 4}, {weight(.75), many_streams()}},
      {{cap(.3), long_launches(1)}, {cap(.7), long_launches(10)}},
      {{weight(.4), decode(60, 20 * kUs, kMs)}, {weight(.3), graphs()}, {weight(.3), training()}}};
  for (const auto& mix : mixes) {
    Machine machine;
    for (const Part& part : mix) machine.add_tenant(part.terms, part.program, part.processes);
    machine.run_until(kSecond);  // in which durations are learned
    unsigned doubted = 0, looks = 0;
    while (machine.now < 5 * kSecond) {
      machine.run_until(machine.now + kMs);
      for (std::size_t i = 0; i < mix.size(); ++i, ++looks) {
        const unsigned doubt = machine.arbiter.account(i + 1).doubt;
        doubted += doubt > 0 ? 1 : 0;
        EXPECT_LE(doubt, 1u);
      }
    }
    EXPECT_LE(doubted * 100, looks) << "mix " << &mix - mixes.data();
  }
}

// NVML tells a window late, in whole percents, and now and then it is asked late.
TEST(ShareLiar, honest_tenants_are_never_suspected_however_closely_they_are_looked_at) {
  const std::vector<std::vector<Part>> mixes = {
      {{cap(.2), training()}},
      {{cap(.6), sync_each()}, {cap(.4), training()}},
      {{weight(.5), sync_each(50 * kUs)}, {weight(.5), decode()}},
      {{cap(.3), batch()}, {cap(.7), batch()}},
      {{cap(.25), training(), 4}, {cap(.75), many_streams()}},
      {{cap(.3), long_launches(1)}, {cap(.7), long_launches(10)}},
      {{weight(.4), decode(60, 20 * kUs, kMs)}, {weight(.3), graphs()}, {weight(.3), training()}}};
  for (const auto& mix : mixes) {
    Machine machine;
    for (const Part& part : mix) machine.add_tenant(part.terms, part.program, part.processes);
    std::vector<double> before(mix.size(), 0), late(mix.size(), 0);
    std::mt19937_64 random(3);
    Time last = machine.now;
    while (machine.now < 10 * kSecond) {
      machine.run_until(machine.now + 200 * kMs + (random() % 8 == 0 ? 150 * kMs : 0));
      const Time window = machine.now - last;
      last = machine.now;
      for (std::size_t i = 0; i < mix.size(); ++i) {
        const double had = machine.device_ns(i);
        machine.arbiter.observe_utilisation(i + 1, late[i], window, machine.now);
        late[i] = std::min(100.0, std::round((had - before[i]) / static_cast<double>(window) * 100));
        before[i] = had;
        ASSERT_FALSE(machine.arbiter.account(i + 1).suspected) << "mix " << &mix - mixes.data();
      }
    }
  }
}

TEST(ShareLiar, one_that_keeps_the_books_open_costs_nobody_the_account_of_its_work) {
  Machine machine;
  machine.add_tenant(cap(.6), sync_each(200 * kUs));
  machine.add_tenant(weight(.4), training());
  machine.add_tenant(weight(.01), asleep());
  machine.tenants[2].lie = [](ShareClaim& claim, std::vector<ShareStretch>&, Time now) {
    claim = {.progress_ns = now + kSecond, .open_since_ns = 1};
  };
  machine.run_until(2 * kSecond);
  for (std::size_t i = 0; i < 2; ++i) {
    const double had = machine.device_ns(i), told = machine.arbiter.account(i + 1).service_ns;
    EXPECT_NEAR(told / had, 1, 0.05);
    EXPECT_LE(machine.arbiter.account(i + 1).gap_ns, 0.6 * static_cast<double>(machine.now)) << "and none of it twice";
  }
}

}  // namespace
}  // namespace tensor_fusion::pool
