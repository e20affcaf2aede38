// What users of other schemes saw of shares that did not hold, one test per symptom, on the model GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "pool/share_model_trial.h"

namespace tensor_fusion::pool {
namespace {

using namespace model;

// The same work on a card of few and of many multiprocessors: long kernels of which one fills the card, and short ones
// of which many run at a time.
struct Card {
  const char* name;
  Hardware hardware;
  Program work;
};
std::vector<Card> cards() {
  Hardware small;
  small.overlap = 1;
  Hardware large;
  large.overlap = 8;
  return {{"small", small, training(1 * kMs, 12 * kMs, 60)},
          {"middle", {}, training()},
          {"large", large, training(10 * kUs, 150 * kUs, 2000)}};
}

TEST(Symptom, a_cap_depends_on_the_size_of_the_card) {
  for (const Card& card : cards()) {
    for (const double share : {.2, .5, .8})
      EXPECT_NEAR(run({{cap(share), card.work}}, {}, card.hardware).mean[0], 100 * share, 2.0)
          << share << " on a " << card.name << " card";
    const Outcome pair = run({{cap(.3), card.work}, {cap(.7), card.work}}, {}, card.hardware);
    EXPECT_NEAR(pair.mean[0], 30, 2.0) << "of two on a " << card.name << " card";
    EXPECT_NEAR(pair.mean[1], 70, 3.0) << "of two on a " << card.name << " card";
  }
}

TEST(Symptom, a_cap_swings_between_all_and_nothing) {
  for (const Card& card : cards()) {
    Machine machine({}, card.hardware);
    run(machine, {{cap(.3), card.work}});
    const std::vector<double> windows = machine.shares(0);
    ASSERT_GE(windows.size(), 7u);
    const auto [least, most] = std::minmax_element(windows.begin(), windows.end());
    EXPECT_GE(*least, 26) << "in one second on a " << card.name << " card";
    EXPECT_LE(*most, 34) << "in one second on a " << card.name << " card";
  }
}

TEST(Symptom, unequal_caps_come_out_as_other_ratios) {
  for (const double less : {.1, .2, .3, .45}) {
    const Outcome outcome = run({{cap(less), training()}, {cap(1 - less), training()}});
    EXPECT_NEAR(outcome.mean[0], 100 * less, 1.5);
    EXPECT_NEAR(outcome.mean[1], 100 * (1 - less), 3.0);
  }
  // As one reported it: a program that waits for each of its launches has its part of what it reaches alone.
  const double alone = alone_share(sync_each());
  EXPECT_GT(alone, 80);
  EXPECT_NEAR(run({{cap(.1), sync_each()}}).mean[0], 10, 1.5);
  EXPECT_NEAR(run({{cap(.9), sync_each(), 1, -1}}).mean[0], std::min(90.0, alone), 4);
}

TEST(Symptom, a_limit_does_nothing_for_one_that_is_alone) {
  for (const auto& program : {training(), graphs(), sync_each(), decode(), batch(), many_streams()}) {
    const double alone = alone_share(program);
    ASSERT_GT(alone, 50) << "there is something to limit";
    const double held = run({{cap(.25), program}}).mean[0];
    EXPECT_LE(held, 27.5);
    EXPECT_GE(held, .25 * std::min(alone, 90.0));
  }
}

TEST(Symptom, of_five_slices_only_three_are_throttled) {
  const Outcome equal = run({{cap(.2), training()},
                             {cap(.2), training()},
                             {cap(.2), training()},
                             {cap(.2), training()},
                             {cap(.2), training()}});
  for (const double share : equal.mean) EXPECT_NEAR(share, 20, 2.5);
  const std::vector<double> limits = {.35, .25, .2, .12, .08};
  std::vector<Part> parts;
  for (const double limit : limits) parts.push_back({cap(limit), training()});
  const Outcome unequal = run(parts);
  for (std::size_t i = 0; i < limits.size(); ++i) EXPECT_NEAR(unequal.mean[i], 100 * limits[i], 2.5) << i;
  // None of them is limited by its neighbours alone: less than the whole is asked for.
  for (Part& part : parts) part.terms = cap(part.terms.limit / 2);
  const Outcome half = run(parts);
  for (std::size_t i = 0; i < limits.size(); ++i) EXPECT_NEAR(half.mean[i], 50 * limits[i], 1.5) << i;
}

}  // namespace
}  // namespace tensor_fusion::pool
