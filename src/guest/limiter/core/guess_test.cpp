#include "guest/limiter/core/guess.h"

#include <gtest/gtest.h>

namespace tensor_fusion::guest::limiter {
namespace {

TEST(Guess, begins_at_little_and_comes_to_what_launches_of_something_new_take) {
  Guess guess;
  EXPECT_EQ(guess.ns(), kFirstGuessNs);
  guess.learn(2'000'000);
  EXPECT_LE(guess.ns(), 2 * kFirstGuessNs) << "one of them says little";
  for (int i = 0; i < 20; ++i) guess.learn(2'000'000);
  EXPECT_NEAR(guess.ns(), 2'000'000, 20'000);
  for (int i = 0; i < 30; ++i) guess.learn(10'000);
  EXPECT_NEAR(guess.ns(), kFirstGuessNs, 1'000);
}

TEST(Guess, does_not_follow_what_is_longer_than_a_stay) {
  Guess guess;
  for (int i = 0; i < 100; ++i) guess.learn(4'000'000'000);
  EXPECT_LE(guess.ns(), Guess::kMostNs);
  guess.forget();
  EXPECT_EQ(guess.ns(), kFirstGuessNs);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
