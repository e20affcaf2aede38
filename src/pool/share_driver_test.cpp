// What the driver sees long before its tenant can tell, and what a tenant never tells.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "pool/share.h"
#include "pool/share_model_trial.h"

namespace tensor_fusion::pool {
namespace {

using namespace model;

struct Watched {
  double had = 0, told = 0;
  bool suspected = false;
};

// As the hypervisor reads the driver: a little late, often where the arbiter asks for it, else once a second.
std::vector<Watched> watch(Machine& machine, Time until) {
  std::vector<Watched> all(machine.tenants.size());
  std::vector<double> before(all.size(), 0), had(all.size(), 0);
  bool closely = true;
  while (machine.now < until) {
    const Time window = closely ? 200 * kMs : kSecond, late = 150 * kMs;
    machine.run_until(machine.now + window - late);
    for (std::size_t i = 0; i < all.size(); ++i) had[i] = machine.device_ns(i);
    machine.run_until(machine.now + late);
    closely = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double percent = std::round((had[i] - before[i]) / static_cast<double>(window) * 100);
      machine.arbiter.observe_utilisation(i + 1, std::min(100.0, percent), window, machine.now);
      before[i] = had[i];
      const ShareAccount account = machine.arbiter.account(i + 1);
      closely = closely || account.look_closely;
      all[i].suspected = all[i].suspected || account.suspected;
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = {machine.device_ns(i), machine.arbiter.account(i + 1).service_ns, all[i].suspected};
  return all;
}

TEST(ShareDriver, one_whose_kernels_take_seconds_is_not_suspected_and_has_its_share) {
  for (const Time each : {Time{700 * kMs}, 2 * kSecond, Time{5600 * kMs}, 14 * kSecond}) {
    Machine machine;
    machine.add_tenant(cap(.3), long_launches(1, each));
    const Time until = 200 * kSecond;
    const Watched seen = watch(machine, until)[0];
    EXPECT_FALSE(seen.suspected) << each;
    const double steps = static_cast<double>(until) * .3 / static_cast<double>(each);
    EXPECT_NEAR(seen.had / static_cast<double>(each), steps, 1 + steps * 0.05) << each;
  }
}

TEST(ShareDriver, two_whose_kernels_take_seconds_are_not_suspected_beside_each_other) {
  for (const Time each : {Time{700 * kMs}, 2 * kSecond, Time{5600 * kMs}}) {
    Machine machine;
    machine.add_tenant(cap(.3), long_launches(1, each));
    machine.add_tenant(cap(.4), long_launches(1, each));
    const Time until = 400 * kSecond;
    const std::vector<Watched> seen = watch(machine, until);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_FALSE(seen[i].suspected) << i << " of " << each;
      // What the gate learned while both ran at once was too much: it takes some launches to come down.
      const double part = i == 0 ? .3 : .4, slack = 1.5 * static_cast<double>(each) / static_cast<double>(until);
      EXPECT_LE(seen[i].had / static_cast<double>(until), part + slack) << i << " of " << each;
      EXPECT_GE(seen[i].had / static_cast<double>(until), 0.8 * part - slack) << i << " of " << each;
    }
  }
}

// Of a function the gate has measured it expects what it took: it may take much longer, and much less.
TEST(ShareDriver, one_whose_kernels_take_now_long_and_now_short_is_not_suspected_and_has_its_share) {
  const Program varying = [i = 0u](std::mt19937_64& random) mutable -> Step {
    if (i++ % 2 == 1) return {Step::kSync, 0, 0, 0};
    return {Step::kLaunch, kSecond * (1 + random() % 6), 0, 0};
  };
  for (const bool alone : {true, false}) {
    Machine machine;
    machine.add_tenant(cap(.4), varying);
    if (!alone) machine.add_tenant(cap(.4), training());
    const Time until = 200 * kSecond;
    const std::vector<Watched> seen = watch(machine, until);
    for (const Watched& each : seen) {
      EXPECT_FALSE(each.suspected) << alone;
      EXPECT_NEAR(each.had / static_cast<double>(until), .4, 0.05) << alone;
    }
  }
}

TEST(ShareDriver, one_that_says_its_work_is_never_over_has_no_more_than_its_share) {
  for (const bool alone : {true, false}) {
    Machine machine;
    machine.add_tenant(cap(.2), training());
    if (!alone) machine.add_tenant(cap(.8), training());
    machine.tenants[0].lie = [](ShareClaim& claim, std::vector<ShareStretch>& stretches, Time now) {
      claim = {.wanted_since_ns = now, .gap_ns = 0, .open_since_ns = kMs, .blocked = claim.blocked, .streams = 1};
      stretches.clear();
    };
    const Time until = 60 * kSecond;
    EXPECT_LE(watch(machine, until)[0].had / static_cast<double>(until), 0.23) << alone;
  }
}

TEST(ShareDriver, one_that_says_its_work_was_open_and_then_does_not_tell_of_it_is_suspected) {
  Arbiter arbiter;
  arbiter.add(1, cap(.3), kSecond);
  Time open = kSecond;
  for (Time second = 2; second <= 20; ++second) {
    if (second % 5 == 0) open = second * kSecond;
    arbiter.observe(1, {.launched_ns = kMs, .open_since_ns = open, .blocked = 1, .streams = 1}, {}, second * kSecond);
    arbiter.decide(second * kSecond);
    if (second == 4) {
      EXPECT_FALSE(arbiter.account(1).suspected);
    }
    arbiter.observe_utilisation(1, 100, kSecond, second * kSecond);
  }
  EXPECT_TRUE(arbiter.account(1).bypass_suspected);
}

}  // namespace
}  // namespace tensor_fusion::pool
