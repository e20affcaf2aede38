// The gate: what runs for long, and what nobody knows the length of, among the processes of one slice.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "guest/limiter/core/gate_fixture.h"
#include "guest/limiter/core/long_turn.h"
#include "guest/limiter/core/timeline.h"
#include "guest/limiter/core/trust.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint32_t kMe = 1, kNeighbour = 2;
constexpr std::uint64_t kLook = 100'000;

class GateTurn : public Gate {
 protected:
  GateTurn() {
    claim_->process_high = 2;
    claim_->processes[1].state = contract::kSlotLive;
    for (auto* process : {&claim_->processes[0], &claim_->processes[1]}) process->devices[0].contexts = 1;
  }
  std::atomic<std::uint64_t>& turn() { return claim_->devices[0].long_turn; }
  contract::ClaimProcessDevice& neighbour() { return claim_->processes[1].devices[0]; }
  bool is_free() { return contract::long_turn_until_ns(turn()) <= os::monotonic_ns(); }
  void neighbour_has_it_for(std::uint64_t ns) { turn() = contract::long_turn(os::monotonic_ns() + ns, kNeighbour); }
  // A launch by another thread, which is known to wait.
  struct Waiting {
    Waiting(GateTurn& test, std::uintptr_t function, std::uint64_t ns)
        : thread([&test, this, function, ns] {
            t_current.context = kContext;
            test.launch(function, ns);
            passed = true;
          }) {
      const std::uint64_t end = os::monotonic_ns() + 2'000 * kMs;
      while (test.claimed().blocked.load() == 0 && !passed.load() && os::monotonic_ns() < end)
        std::this_thread::yield();
    }
    ~Waiting() { thread.join(); }
    std::atomic<bool> passed{false};
    std::thread thread;
  };
};

TEST_F(GateTurn, holds_what_nobody_knows_while_a_neighbour_has_such_work_outstanding) {
  neighbour_has_it_for(20'000 * kMs - 100 * kMs);
  {
    Waiting waiting(*this, 0xabc0, 10'000);
    const std::uint64_t asked = claimed().turn_asked_ns, end = os::monotonic_ns() + 2'000 * kMs;
    while (claimed().turn_asked_ns.load() < asked + 20 * kMs && os::monotonic_ns() < end) std::this_thread::yield();
    EXPECT_FALSE(waiting.passed.load()) << "it has looked many times";
    EXPECT_NE(claimed().turn_asked_ns.load(), 0u) << "the neighbour can see that somebody waits";
    turn() = contract::long_turn(0, kNeighbour);
  }
  sync();
  EXPECT_EQ(contract::long_turn_owner(turn()), kMe);
  EXPECT_TRUE(is_free()) << "and is over, since it is known what it took";
  EXPECT_EQ(claimed().turn_asked_ns.load(), 0u);
}

TEST_F(GateTurn, holds_what_is_known_to_run_for_long_and_nothing_short) {
  teach(0xf0, 10'000);
  for (int i = 0; i < 10; ++i) launch(0xf1, 60 * kMs), sync();
  neighbour_has_it_for(20'000 * kMs - 1'000 * kMs);
  const std::uint64_t held = claimed().held_launches;
  for (int i = 0; i < 10; ++i) launch(0xf0, 10'000), sync();
  EXPECT_EQ(claimed().held_launches.load(), held) << "two processes may each have 50 ms outstanding";
  Waiting waiting(*this, 0xf1, 60 * kMs);
  EXPECT_FALSE(waiting.passed.load());
  turn() = 0;
}

TEST_F(GateTurn, has_the_turn_for_as_long_as_its_work_is_to_take_and_half_as_long_again) {
  for (int i = 0; i < 10; ++i) launch(0xf1, 60 * kMs), sync();
  const std::uint64_t from = os::monotonic_ns();
  launch(0xf1, 60 * kMs);
  EXPECT_EQ(contract::long_turn_owner(turn()), kMe);
  const std::uint64_t to = os::monotonic_ns(), until = contract::long_turn_until_ns(turn());
  EXPECT_GE(until, from + 75 * kMs);
  EXPECT_LE(until, to + 105 * kMs);
  sync();
  EXPECT_TRUE(is_free());
}

TEST_F(GateTurn, waits_no_longer_than_a_turn_lasts) {
  const std::uint64_t from = os::monotonic_ns();
  neighbour_has_it_for(50 * kMs);
  launch(0xabc0, 10'000);  // the neighbour has launched something and calls no more
  EXPECT_GE(since_ms(from), 49.0);
  sync();
}

TEST_F(GateTurn, waits_for_no_turn_of_who_is_gone_or_never_was) {
  const std::uint64_t held = claimed().held_launches;
  claim_->processes[1].state = contract::kSlotReaping;
  neighbour_has_it_for(10'000 * kMs);
  launch(0xabc0, 10'000), sync();
  turn() = contract::long_turn(os::monotonic_ns() + 10'000 * kMs, 1023);
  launch(0xabc1, 10'000), sync();
  turn() = ~0ull;
  launch(0xabc2, 10'000), sync();
  claim_->processes[1].state = contract::kSlotLive;
  turn() = contract::long_turn(~0ull, kNeighbour);  // until the end of time
  launch(0xabc3, 10'000), sync();
  turn() = contract::long_turn(os::monotonic_ns() + 10'000 * kMs, kMe);  // of who had the slot before
  launch(0xabc4, 10'000), sync();
  EXPECT_EQ(claimed().held_launches.load(), held);
}

TEST_F(GateTurn, is_for_the_one_that_has_asked_for_longest_and_soon_for_any) {
  LongTurn own, other;
  Device its = device_;
  its.mine = &neighbour();
  std::uint64_t now = os::monotonic_ns();
  const auto take = [&](LongTurn& turn, const Device& device, std::uint64_t after_ns) {
    now += after_ns;
    return turn.take(device, now, now + kTurnUnknownNs, kLook, false, false);
  };
  ASSERT_TRUE(take(own, device_, 0));
  EXPECT_FALSE(take(other, its, 10'000)) << "it is taken; now it has asked";
  own.give_back(device_, now);
  EXPECT_FALSE(take(own, device_, 10'000)) << "the neighbour has waited for longer";
  EXPECT_TRUE(take(other, its, 10'000));
  EXPECT_FALSE(take(own, device_, 10'000));
  other.give_back(its, now);
  EXPECT_FALSE(take(other, its, 10'000)) << "and now it is the other way round";
  EXPECT_TRUE(take(own, device_, 2 * kLook));
  own.give_back(device_, now);
  EXPECT_FALSE(take(own, device_, kLook));
  EXPECT_TRUE(take(own, device_, kLook + 2'000)) << "who does not come when it is free is not waited for";
  own.give_back(device_, now);
  EXPECT_TRUE(take(own, device_, 300 * kMs)) << "nor who has asked no more for long";
  own.give_back(device_, now);
  neighbour().turn_asked_ns = now + 1'000 * kMs;  // somebody wrote that
  EXPECT_TRUE(take(own, device_, 1'000));
}

TEST_F(GateTurn, keeps_the_turn_while_its_work_takes_longer_than_anybody_knew) {
  for (int i = 0; i < 10; ++i) launch(0xf1, 60 * kMs), sync();
  const std::uint64_t from = os::monotonic_ns();
  launch(0xf1, 400 * kMs);
  std::atomic<bool> over{false};
  std::thread asking([&] {
    while (!over.load()) neighbour().turn_asked_ns = os::monotonic_ns(), std::this_thread::yield();
    neighbour().turn_asked_ns = 0;
  });
  {
    Waiting waiting(*this, 0xf1, 60 * kMs);
    while (since_ms(from) < 200) std::this_thread::yield();
    EXPECT_FALSE(waiting.passed.load()) << "no more of its own beside that, since a neighbour waits";
    EXPECT_EQ(contract::long_turn_owner(turn()), kMe);
    EXPECT_GT(contract::long_turn_until_ns(turn()), os::monotonic_ns()) << "it would have lapsed after 90";
    while (!is_free() && since_ms(from) < 5'000) std::this_thread::yield();
    EXPECT_GE(since_ms(from), 400.0) << "and leaves it when its work is over";
    over = true;
    asking.join();
  }
  sync();
}

TEST_F(GateTurn, has_no_turn_for_a_launch_that_failed) {
  gate::Token token = gate::before_launch(device_, nullptr, {reinterpret_cast<const void*>(0xabc0), 1}, false);
  ASSERT_GT(contract::long_turn_until_ns(turn()), os::monotonic_ns());
  gate::after_launch(token, CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(is_free());
}

TEST_F(GateTurn, leaves_no_neighbour_waiting_for_a_program_that_launched_something_short_and_calls_no_more) {
  teach(0xf0, 10'000);  // what runs first may run beside another's tail
  launch(0xabc0, 100'000);
  EXPECT_TRUE(is_free());
  const std::uint64_t from = os::monotonic_ns();
  launch(0xabc1, 500 * kMs);
  EXPECT_LT(since_ms(from), 400.0) << "what takes longer is not waited for";
  EXPECT_GT(contract::long_turn_until_ns(turn()), os::monotonic_ns());
  sync();
}

TEST_F(GateTurn, has_the_turn_for_some_time_for_work_on_streams_that_it_cannot_follow) {
  teach(0xf0, 100'000);
  // Each of them stands for a thread that has launched and neither waits nor ends.
  std::vector<std::thread> threads;
  std::atomic<unsigned> launched{0};
  std::atomic<bool> over{false};
  for (std::uintptr_t i = 0; i < Timeline::kStreams; ++i) {
    threads.emplace_back([&, stream = reinterpret_cast<CUstream>(0x10000 + 0x100 * i)] {
      launch_on_lease(0xf0, 100'000, stream);
      ++launched;
      over.wait(false);
    });
    while (launched <= i) std::this_thread::yield();
  }
  launch(0xabc0, 10'000, reinterpret_cast<CUstream>(0x90000));
  gate::before_sync(device_, nullptr, false, false);
  EXPECT_GT(contract::long_turn_until_ns(turn()), os::monotonic_ns());
  EXPECT_EQ(contract::long_turn_owner(turn()), kMe);
  over = true;
  over.notify_all();
  for (std::thread& thread : threads) thread.join();
}

TEST_F(GateTurn, has_the_turn_no_longer_than_ten_seconds_however_long_its_work_runs) {
  LongTurn own;
  const std::uint64_t began = os::monotonic_ns();
  ASSERT_TRUE(own.take(device_, began, began + kTurnUnknownNs, kLook, false, false));
  for (std::uint64_t now = began; now < began + 30'000 * kMs; now += 1'000 * kMs)
    own.keep(device_, now + kTurnUnknownNs);
  EXPECT_LE(contract::long_turn_until_ns(turn()), began + kTurnWholeNs);
  LongTurn of_neighbour;
  Device seen_by_neighbour = device_;
  seen_by_neighbour.mine = &neighbour();
  const std::uint64_t later = began + kTurnWholeNs + kMs;
  EXPECT_TRUE(of_neighbour.take(seen_by_neighbour, later, later + kTurnUnknownNs, kLook, false, false));
  own.keep(device_, later + kTurnUnknownNs);
  EXPECT_FALSE(own.mine()) << "a neighbour has it now, and keeps it";
  EXPECT_EQ(contract::long_turn_owner(turn()), kNeighbour);
}

// A tenant may write anything into its page; it waits for it no longer than a turn can last.
TEST_F(GateTurn, waits_for_no_word_for_ever) {
  std::mt19937_64 random(7);
  const std::uint64_t now = os::monotonic_ns();
  const auto near = [&] { return now + random() % (100'000 * kMs) - 50'000 * kMs; };
  for (int i = 0; i < 10'000; ++i) {
    LongTurn own;
    claim_->processes[1].state = static_cast<std::uint32_t>(random() % 5);
    claim_->process_high = static_cast<std::uint32_t>(random() % 4 == 0 ? random() : 2);
    turn() = random() % 2 == 0 ? random() : contract::long_turn(near(), static_cast<std::uint32_t>(random() % 4));
    neighbour().turn_asked_ns = random() % 2 == 0 ? random() : near();
    neighbour().turn_since_ns = random() % 2 == 0 ? random() : near();
    std::uint64_t at = now;
    while (!own.take(device_, at, at + kTurnUnknownNs, kLook, random() % 2 == 0, random() % 2 == 0) &&
           at < now + 60'000 * kMs)
      at += 100 * kMs;
    ASSERT_LE(at, now + 51'000 * kMs) << i;  // 50 s, the furthest that it was written ahead, and what is believed then
  }
}

TEST_F(GateTurn, lets_two_processes_have_long_work_out_in_turns_and_never_together) {
  // The neighbour runs by the same rules, in a thread.
  constexpr int kRounds = 200;
  std::atomic<int> out{0}, most{0}, mine{0}, its{0};
  const auto play = [&](Device device, std::atomic<int>& rounds) {
    LongTurn own;
    while (mine.load() < kRounds || its.load() < kRounds) {
      if (!own.take(device, os::monotonic_ns(), os::monotonic_ns() + kTurnUnknownNs, kLook, false, false)) continue;
      const int together = out.fetch_add(1) + 1;
      if (together > most.load()) most = together;
      std::this_thread::yield();
      out.fetch_sub(1);
      rounds.fetch_add(1);
      own.give_back(device, os::monotonic_ns());
    }
  };
  Device other = device_;
  other.mine = &neighbour();
  std::thread thread([&] { play(other, its); });
  play(device_, mine);
  thread.join();
  EXPECT_EQ(most.load(), 1);
}

TEST_F(GateTurn, is_held_while_the_hypervisor_is_away_too) {
  grant_->heartbeat_ns = 1;
  granted().fallback_share = 9000;
  const std::uint64_t from = os::monotonic_ns();
  neighbour_has_it_for(50 * kMs);
  launch(0xabc0, 10'000);
  EXPECT_GE(since_ms(from), 49.0);
  sync();
}

TEST_F(GateTurn, fills_no_stream_after_another_with_long_work) {
  claim_->process_high = 1;
  for (int i = 0; i < 10; ++i) launch(0xf1, 60 * kMs), sync();
  const std::uint64_t from = os::monotonic_ns();
  // Streams run beside each other here: all are over after 60 ms, but nobody can tell that before.
  for (std::uintptr_t i = 0; i < 6; ++i) launch(0xf1, 60 * kMs, reinterpret_cast<CUstream>(0x5000 + 0x100 * i));
  EXPECT_GE(since_ms(from), 60.0) << "the third waits for one of the first two";
  for (std::uintptr_t i = 0; i < 6; ++i) sync(reinterpret_cast<CUstream>(0x5000 + 0x100 * i));
}

TEST_F(GateTurn, measures_one_by_one_what_is_launched_after_known_work_took_far_longer) {
  teach(0xf0, 100'000);
  launch(0xf0, 80 * kMs), sync();
  const std::uint64_t from = os::monotonic_ns();
  for (int i = 0; i < 4; ++i) launch(0xf0, 30 * kMs);
  EXPECT_GE(since_ms(from), 85.0) << "each waits for the one before";
  sync();
  const std::uint64_t launches = claimed().launches;
  for (int i = 0; i < 4; ++i) launch(0xf9, 10'000), sync();
  EXPECT_EQ(claimed().launches.load(), launches + 4) << "nothing is on a lease";
}

TEST(Trust, is_given_back_after_twice_as_many_launches_each_time) {
  Trust trust;
  EXPECT_FALSE(trust.low());
  for (const std::uint32_t needed : {16u, 32u, 64u}) {
    trust.was_broken(1'000 * kMs);
    trust.kept(needed - 1);
    EXPECT_TRUE(trust.low());
    trust.kept(1);
    EXPECT_FALSE(trust.low());
    trust.kept(5);
  }
  trust.was_broken(1'000 * kMs + 3 * Trust::kForgiveNs + 1);
  trust.kept(16);
  EXPECT_FALSE(trust.low()) << "long ago";
  for (int i = 0; i < 100; ++i) trust.was_broken(200'000 * kMs);
  trust.kept(Trust::kFirst << Trust::kMostSteps);
  EXPECT_FALSE(trust.low()) << "never more than that";
}

TEST(Trust, is_not_lost_to_the_turns_of_others) {
  EXPECT_FALSE(Trust::broken(40 * kMs, 400'000)) << "a busy device";
  EXPECT_FALSE(Trust::broken(900 * kMs, 100 * kMs)) << "long work, among eight others";
  EXPECT_TRUE(Trust::broken(500 * kMs, 10'000));
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
