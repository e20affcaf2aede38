// The gate: what launches take, and what may be launched before that is known.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "guest/limiter/core/durations.h"
#include "guest/limiter/core/gate_fixture.h"
#include "guest/limiter/core/state.h"
#include "guest/limiter/core/timeline.h"

namespace tensor_fusion::guest::limiter {
namespace {

TEST_F(Gate, learns_what_a_function_costs_from_its_first_launches) {
  teach(0xf0, 300'000);
  const std::uint64_t before = claimed().launched_ns;
  for (int i = 0; i < 10; ++i) launch(0xf0, 300'000);
  sync();
  EXPECT_NEAR(static_cast<double>(claimed().launched_ns - before), 3e6, 0.4e6);
}

TEST_F(Gate, reports_all_device_time_in_markers_once_it_is_over) {
  teach(0xf0, 200'000);
  const std::uint64_t launched = claimed().launched_ns, before = measured();
  for (int i = 0; i < 40; ++i) launch(0xf0, 200'000);
  sync();
  EXPECT_NEAR(static_cast<double>(measured() - before), 8e6, 0.3e6);
  EXPECT_EQ(claimed().completed_ns.load(), claimed().launched_ns.load());
  EXPECT_GT(claimed().launched_ns.load(), launched);
  EXPECT_EQ(claimed().open_since_ns.load(), 0u) << "nothing is to come";
  EXPECT_EQ(claimed().streams.load(), 0u);
}

TEST_F(Gate, places_markers_on_the_hosts_clock) {
  teach(0xf0, 500'000);
  const std::uint64_t from = os::monotonic_ns();
  launch(0xf0, 500'000);
  sync();
  const std::uint64_t to = os::monotonic_ns();
  const std::uint64_t n = claimed().marker_count;
  ASSERT_GT(n, 0u);
  const contract::Marker& marker = claimed().markers[(n - 1) % contract::kMarkers];
  EXPECT_GE(marker.start_ns.load() + 100'000, from);
  EXPECT_LE(marker.end_ns.load(), to + 100'000);
  EXPECT_NEAR(static_cast<double>(marker.end_ns - marker.start_ns), 500'000, 60'000);
}

TEST_F(Gate, lets_no_launch_buy_a_pass_by_being_new) {
  const std::uint64_t from = os::monotonic_ns();
  std::uint64_t passed = 0;
  for (std::uintptr_t i = 0; i < 8; ++i, ++passed) launch(0xabc000 + 64 * i, 25 * kMs);
  // Each is measured before the next is let through, and takes longer than any patience.
  EXPECT_GE(since_ms(from), 170.0);
  sync();
  EXPECT_NEAR(static_cast<double>(measured()), 200e6, 20e6);
}

TEST_F(Gate, charges_the_local_bucket_for_what_turned_out_to_take_longer) {
  grant_->heartbeat_ns = 1;
  granted().fallback_share = 5000;
  const std::uint64_t from = os::monotonic_ns();
  for (std::uintptr_t i = 0; i < 6; ++i) launch(0xabc000 + 64 * i, 20 * kMs);
  EXPECT_GE(since_ms(from), 180.0) << "five of 20 ms at half of the device";
}

TEST_F(Gate, lets_a_few_short_new_ones_through_together) {
  for (std::uintptr_t i = 0; i < 40; ++i) launch(0xabc000 + 64 * i, 20'000);
  const std::uint64_t held = claimed().held_launches;
  for (std::uintptr_t i = 0; i < 3; ++i) sync(), launch(0xdef000 + 64 * i, 20'000);
  EXPECT_EQ(claimed().held_launches.load(), held);
  sync();
  for (std::uintptr_t i = 0; i < 3; ++i) launch(0xeee000 + 64 * i, 20'000);
  EXPECT_EQ(claimed().held_launches.load(), held) << "what came before was short";
  sync();
}

TEST_F(Gate, waits_for_work_that_takes_far_longer_than_it_used_to) {
  teach(0xf0, 100'000);
  const std::uint64_t from = os::monotonic_ns();
  launch(0xf0, 60 * kMs);
  gate::before_sync(device_, nullptr, false, false);  // a marker behind it
  while (since_ms(from) < 4) std::this_thread::yield();
  launch(0xf0, 100'000);
  EXPECT_GE(since_ms(from), 50.0);
  sync();
}

TEST_F(Gate, lets_new_grids_through_together_once_their_family_has_kept_its_word) {
  teach(0xf8, 20'000);  // what runs first may run beside another's tail
  for (std::uint64_t blocks = 1024; blocks < 1056; ++blocks) launch(0xf0, blocks * 200, nullptr, blocks), sync();
  const std::uint64_t held = claimed().held_launches, before = claimed().launched_ns;
  for (std::uint64_t blocks = 1200; blocks < 1206; ++blocks) launch(0xf0, blocks * 200, nullptr, blocks);
  EXPECT_EQ(claimed().held_launches.load(), held);
  EXPECT_NEAR(static_cast<double>(claimed().launched_ns - before), 6 * 1203 * 200, 0.3e6) << "and charged by its word";
  sync();
}

TEST_F(Gate, lets_no_new_grid_of_a_function_buy_more_than_one_round_of_passes) {
  teach(0xf8, 20'000);
  for (std::uint64_t blocks = 1024; blocks < 1056; ++blocks) launch(0xf0, 20'000, nullptr, blocks), sync();
  // It vouches for a few, which betray it, and then for no more.
  const std::uint64_t from = os::monotonic_ns();
  for (std::uint64_t blocks = 1100; blocks < 1130; ++blocks) launch(0xf0, 10 * kMs, nullptr, blocks);
  EXPECT_GE(since_ms(from), 10.0 * (30 - 12 - 1));
  sync();
  for (std::uint64_t blocks = 1130; blocks < 1134; ++blocks) launch(0xf0, 20'000, nullptr, blocks), sync();
  const std::uint64_t again = os::monotonic_ns();
  for (std::uint64_t blocks = 1200; blocks < 1210; ++blocks) launch(0xf0, 10 * kMs, nullptr, blocks);
  EXPECT_GE(since_ms(again), 80.0) << "twice as many must have kept its word";
  sync();
}

TEST_F(Gate, takes_no_familys_word_for_what_took_far_longer_than_it_was_known_to) {
  teach(0xf8, 20'000);
  for (std::uint64_t blocks = 1024; blocks < 1056; ++blocks) launch(0xf0, 20'000, nullptr, blocks), sync();
  launch(0xf0, 80 * kMs, nullptr, 1024), sync();              // known, and broken
  for (int i = 0; i < 40; ++i) launch(0xf8, 20'000), sync();  // believed again
  const std::uint64_t from = os::monotonic_ns();
  for (std::uint64_t blocks = 1100; blocks < 1103; ++blocks) launch(0xf0, 30 * kMs, nullptr, blocks);
  EXPECT_GE(since_ms(from), 55.0) << "each new one waits for the one before";
  sync();
}

TEST_F(Gate, forgets_what_is_unknown_when_the_launch_fails) {
  for (std::uintptr_t i = 0; i < 8; ++i) {
    gate::Token token =
        gate::before_launch(device_, nullptr, {reinterpret_cast<const void*>(0xabc000 + 64 * i), 1}, false);
    ASSERT_NE(token.word[0], 0u);
    gate::after_launch(token, CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(claimed().held_launches.load(), 0u);
}

TEST_F(Gate, sends_one_launch_of_an_unknown_function_at_a_time) {
  const std::uint64_t from = os::monotonic_ns();
  launch(0xabc0, 200 * kMs);  // longer than a busy host keeps this thread from coming with the second
  EXPECT_EQ(claimed().held_launches.load(), 0u);
  launch(0xabc0, 6 * kMs);
  EXPECT_EQ(claimed().held_launches.load(), 1u);
  EXPECT_GE(since_ms(from), 190.0) << "the second waits for the first measurement";
  sync();
}

// Found by an attacker: the kernel that ran late waited for this launch (an event, a word of memory, a callback of the
// host), and the program hung.
TEST_F(Gate, goes_on_after_a_while_where_what_runs_late_may_wait_for_the_launch) {
  teach(0xf0, 100'000);
  const auto blocked = reinterpret_cast<CUstream>(0x9000), other = reinterpret_cast<CUstream>(0x9100);
  launch(0xf0, 60'000 * kMs, blocked);
  gate::before_sync(device_, blocked, false, false);
  const std::uint64_t from = os::monotonic_ns();
  while (os::monotonic_ns() < from + 2 * gate::State::kOverdueNs) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) launch(0xf0, 100'000, other);
  const double took = since_ms(from);
  EXPECT_GE(took, 1'900) << "it is not passed by at once";
  EXPECT_LT(took, 20'000);
}

TEST_F(Gate, waits_for_the_first_measurement_of_a_launch_however_long_it_takes) {
  const auto exec = reinterpret_cast<CUgraphExec>(0xe1);
  gate::graph_instantiated(device_, exec, nullptr);
  const auto launch_graph = [&] {
    gate::Token token = gate::before_graph_launch(device_, exec, nullptr, false);
    FakeGpu::get().run(plain(nullptr), 60 * kMs);
    if (token.word[0] != 0) gate::after_launch(token, CUDA_SUCCESS);
  };
  const std::uint64_t from = os::monotonic_ns();
  launch_graph();
  launch_graph();
  EXPECT_GE(since_ms(from), 55.0);
  sync();
  gate::graph_destroyed(exec);
}

TEST_F(Gate, believes_a_shorter_measurement_whoever_else_was_on_the_device) {
  Duration duration{};
  duration.estimated_ns = 100'000;
  for (std::uint64_t n = 1; n <= 20; ++n) duration.learn(8 * kMs, Measured::alone, n * kMs);
  const std::uint32_t long_one = duration.estimated_ns;
  duration.learn(4 * kMs, Measured::disturbed, 30 * kMs);
  EXPECT_LT(duration.estimated_ns.load(), long_one);
}

TEST_F(Gate, believes_a_longer_measurement_beside_others_only_when_told_that_estimates_are_short) {
  Duration duration{};
  duration.estimated_ns = 100'000;
  for (std::uint64_t n = 1; n <= 20; ++n) duration.learn(4 * kMs, Measured::alone, n * kMs);
  const std::uint32_t known = duration.estimated_ns;
  for (std::uint64_t n = 1; n <= 20; ++n) duration.learn(9 * kMs, Measured::disturbed, n * 2'000 * kMs);
  EXPECT_EQ(duration.estimated_ns.load(), known);
  for (std::uint64_t n = 21; n <= 60; ++n) duration.learn(9 * kMs, Measured::wanting, n * 2'000 * kMs);
  EXPECT_GT(duration.estimated_ns.load(), known * 3 / 2);
}

TEST_F(Gate, charges_a_graph_launch_by_the_executable_graph) {
  const auto exec = reinterpret_cast<CUgraphExec>(0xe0);
  gate::graph_instantiated(device_, exec, nullptr);
  for (int i = 0; i < 12; ++i) {
    gate::Token token = gate::before_graph_launch(device_, exec, nullptr, false);
    FakeGpu::get().run(plain(nullptr), kMs);
    if (token.word[0] != 0) gate::after_launch(token, CUDA_SUCCESS);
    sync();
  }
  const std::uint64_t before = claimed().launched_ns;
  gate::Token token = gate::before_graph_launch(device_, exec, nullptr, false);
  EXPECT_NEAR(static_cast<double>(claimed().launched_ns - before), 1e6, 0.2e6);
  if (token.word[0] != 0) gate::after_launch(token, CUDA_SUCCESS);
  gate::graph_destroyed(exec);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
