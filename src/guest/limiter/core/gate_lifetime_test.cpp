// The gate: streams, events, contexts and threads that come, go, are in capture or belong to others.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "guest/limiter/core/captures.h"
#include "guest/limiter/core/durations.h"
#include "guest/limiter/core/gate_fixture.h"
#include "guest/limiter/core/timeline.h"

namespace tensor_fusion::guest::limiter {
namespace {

TEST_F(Gate, charges_what_a_thread_launched_that_ended_without_a_sync) {
  teach(0xf0, 100'000);
  teach(0xf0, 100'000);
  const std::uint64_t launches = claimed().launches;
  std::thread([&] {
    t_current.context = kContext;
    for (int i = 0; i < 3; ++i) launch(0xf0, 100'000);
  }).join();
  ASSERT_LT(claimed().launches.load(), launches + 3) << "it had no lease";
  const std::uint64_t end = os::monotonic_ns() + 30'000 * kMs;
  while (claimed().launches.load() < launches + 3 && os::monotonic_ns() < end) sync();
  EXPECT_EQ(claimed().launches.load(), launches + 3);
  sync();
  EXPECT_EQ(claimed().completed_ns.load(), claimed().launched_ns.load()) << "its lease is still open";
  EXPECT_EQ(claimed().streams.load(), 0u);
}

TEST_F(Gate, waits_for_no_thread_that_a_fork_left_behind) {
  // A fork while another thread is in the gate: its lock comes along, the thread does not.
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    t_current.context = kContext;
    while (!stop.load()) gate::after_sync(device_, nullptr, true, false);
  });
  for (int i = 0; i < 200; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);
      gate::forked();
      gate::before_sync(device_, nullptr, true, false);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_EQ(status, 0) << "after " << i;
  }
  stop = true;
  busy.join();
}

TEST_F(Gate, marks_a_stream_of_another_context_than_the_current_one) {
  const auto stream = reinterpret_cast<CUstream>(0x9000);
  FakeGpu::get().stream_context[stream] = 0xd0;
  const std::uint64_t before = measured();
  for (int i = 0; i < 12; ++i) {
    launch(0xf7, 300'000, stream);
    sync(stream);
  }
  EXPECT_NEAR(static_cast<double>(measured() - before), 12 * 300e3, 0.5e6);
  gate::context_destroyed(device_, reinterpret_cast<CUcontext>(0xd0));
  EXPECT_EQ(claimed().streams.load(), 0u);
}

// Found by an attacker: what ran on more streams than can be followed was charged as if one had run after the other,
// and then nothing ran for seconds.
TEST_F(Gate, follows_what_runs_on_more_streams_than_it_has_places_for_some_at_a_time) {
  teach(0xf0, kMs);
  const std::uint64_t before = measured(), launched = claimed().launched_ns;
  constexpr std::uintptr_t kMany = 2 * Timeline::kStreams;
  for (std::uintptr_t i = 0; i < kMany; ++i) {
    const auto stream = reinterpret_cast<CUstream>(0x10000 + 0x100 * i);
    launch(0xf0, kMs, stream);
    gate::stream_destroyed(device_, stream);
  }
  const std::uint64_t from = os::monotonic_ns();
  while (claimed().completed_ns.load() != claimed().launched_ns.load() && since_ms(from) < 10'000) {
    launch(0xf0, 1'000);
    sync();
  }
  EXPECT_EQ(claimed().completed_ns.load(), claimed().launched_ns.load()) << "none is outstanding for ever";
  EXPECT_GT(claimed().launched_ns.load() - launched, kMany * kMs * 3 / 4);
  EXPECT_GT(measured() - before, kMany * kMs / 2) << "by markers, and not by what they were estimated at";
}

TEST_F(Gate, never_holds_a_launch_in_capture_and_makes_no_driver_call_then) {
  teach(0xf0, 10'000);
  FakeGpu& gpu = FakeGpu::get();
  gpu.capturing = true;
  gate::capture_begins();
  granted().gate = 0;
  const unsigned records = gpu.records, queries = gpu.queries;
  const std::uint64_t launched = claimed().launched_ns;
  for (int i = 0; i < 1000; ++i) {
    gate::Token token = gate::before_launch(device_, nullptr, {reinterpret_cast<const void*>(0xf0), 1}, false);
    EXPECT_EQ(token.word[0], 0u);
  }
  EXPECT_EQ(gpu.records, records);
  EXPECT_EQ(gpu.queries, queries);
  EXPECT_EQ(claimed().launched_ns.load(), launched) << "charged when the graph is launched";
  gate::g_captures.drop();
}

TEST_F(Gate, lets_a_capture_begin_only_when_no_marker_is_on_its_way_and_puts_none_down_from_then_on) {
  static std::atomic<bool> armed, inside, begun, begun_beside;
  armed = inside = begun = begun_beside = false;
  g_driver.cuEventRecord = [](CUevent event, CUstream stream) {
    if (armed.exchange(false)) {
      inside = true;
      while (!gate::g_captures.any()) std::this_thread::yield();
      const std::uint64_t end = os::monotonic_ns() + 50 * kMs;  // for who does not wait to come first
      while (!begun.load() && os::monotonic_ns() < end) std::this_thread::yield();
      begun_beside = begun.load();
    }
    return event_record(event, stream);
  };
  teach(0xf0, 20'000);
  armed = true;
  std::thread marking([&] {
    t_current.context = kContext;
    while (armed.load()) {
      launch(0xf0, 20'000);
      gate::before_sync(device_, nullptr, true, false);
    }
  });
  while (!inside.load()) std::this_thread::yield();
  gate::capture_begins();
  begun = true;
  const unsigned records = FakeGpu::get().records;
  marking.join();
  EXPECT_FALSE(begun_beside.load());
  for (int i = 0; i < 10; ++i) {
    launch(0xf0, 20'000);
    gate::before_sync(device_, nullptr, true, false);
  }
  EXPECT_EQ(FakeGpu::get().records, records);
  gate::g_captures.drop();
  sync();
}

// A driver since CUDA 10.1. What is launched beside a capture that never ends is held and measured like all else.
TEST_F(Gate, measures_what_is_launched_beside_a_capture_by_calls_that_cannot_spoil_it) {
  static std::atomic<int> spoilt, fallen_in;
  spoilt = fallen_in = 0;
  static const auto captured = reinterpret_cast<CUstream>(0x9000);
  const auto other = reinterpret_cast<CUstream>(0x9100);
  g_driver.cuThreadExchangeStreamCaptureMode = exchange_capture_mode;
  g_driver.cuStreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* status) {
    *status = stream == captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  g_driver.cuEventQuery = [](CUevent event) {
    if (gate::g_captures.any() && t_capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED) ++spoilt;
    return event_query(event);
  };
  g_driver.cuEventRecord = [](CUevent event, CUstream stream) {
    if (gate::g_captures.any() && stream == captured) ++fallen_in;
    return event_record(event, stream);
  };
  launch(0xf0, 10'000, captured);
  std::thread([&] {
    gate::capture_begins();
    gate::g_captures.began(captured, false, kContext);
  }).join();
  const std::uint64_t from = os::monotonic_ns();
  for (std::uintptr_t i = 0; i < 8; ++i) launch(0xabc000 + 64 * i, 25 * kMs, other);
  EXPECT_GE(since_ms(from), 170.0) << "one at a time, as without a capture";
  launch(0xf0, 1'000, captured);  // into the graph
  gate::before_sync(device_, other, false, false);
  while (stream_query(other) != CUDA_SUCCESS) std::this_thread::yield();
  gate::after_sync(device_, other, false, false);
  EXPECT_NEAR(static_cast<double>(measured()), 200e6, 20e6);
  EXPECT_EQ(spoilt.load(), 0);
  EXPECT_EQ(fallen_in.load(), 0);
  EXPECT_EQ(claimed().unmeasured.load(), 0u);
  EXPECT_EQ(t_capture_mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "the thread's own word stands again";
  gate::g_captures.ended(captured, false);
}

TEST_F(Gate, is_quiet_no_longer_for_the_capture_of_a_thread_that_is_gone_with_its_stream) {
  std::thread([&] {
    gate::capture_begins();
    gate::g_captures.began(nullptr, true, kContext);
  }).join();
  ASSERT_TRUE(gate::g_captures.any());
  const std::uint64_t end = os::monotonic_ns() + 30'000 * kMs;
  for (std::uint64_t blocks = 1; gate::g_captures.any() && os::monotonic_ns() < end; ++blocks)
    launch(0xf0, 1'000, nullptr, blocks << 20);
  EXPECT_FALSE(gate::g_captures.any());
}

TEST_F(Gate, follows_the_work_of_a_stream_that_is_destroyed_to_its_end) {
  const auto stream = reinterpret_cast<CUstream>(0x7000);
  const std::uint64_t from = os::monotonic_ns();
  for (std::uintptr_t i = 0; i < 4; ++i) {  // on a new stream with the old one's handle each time
    launch(0xabc000 + 64 * i, 30 * kMs, stream);
    gate::stream_destroyed(device_, stream);
    EXPECT_EQ(claimed().streams.load(), 1u);
  }
  EXPECT_GE(since_ms(from), 85.0) << "nobody has measured what it takes: one at a time";
  sync(stream);
  EXPECT_NEAR(static_cast<double>(measured()), 120e6, 10e6);
  EXPECT_EQ(claimed().streams.load(), 0u);
  EXPECT_EQ(claimed().completed_ns.load(), claimed().launched_ns.load());
  EXPECT_EQ(claimed().open_since_ns.load(), 0u);
}

TEST_F(Gate, charges_what_runs_in_a_context_that_is_destroyed_for_as_long_as_it_has) {
  launch(0xf1, 3'000 * kMs);
  const std::uint64_t from = os::monotonic_ns();
  while (since_ms(from) < 50) std::this_thread::yield();
  gate::context_destroyed(device_, reinterpret_cast<CUcontext>(kContext));
  EXPECT_GE(static_cast<double>(measured()), 50e6);
  EXPECT_LE(static_cast<double>(measured()), since_ms(from) * 1e6 + 5e6);
  EXPECT_EQ(claimed().streams.load(), 0u);
  EXPECT_EQ(claimed().open_since_ns.load(), 0u);
}

TEST_F(Gate, charges_what_is_over_when_its_context_is_destroyed_for_what_it_took) {
  teach(0xf0, 20'000);
  const std::uint64_t before = measured();
  const std::uint64_t from = os::monotonic_ns();
  launch(0xf0, 20'000);
  while (since_ms(from) < 50) std::this_thread::yield();
  gate::context_destroyed(device_, reinterpret_cast<CUcontext>(kContext));
  EXPECT_LE(measured() - before, 5 * kMs) << "and not for the time that its program computed since";
}

// Ends with the test, wherever that returns.
struct OtherThread {
  std::atomic<int>& turn;
  std::thread thread;
  ~OtherThread() { join(); }
  void join() {
    turn = 2;
    if (thread.joinable()) thread.join();
  }
};

TEST_F(Gate, charges_a_lease_whose_stream_another_thread_destroyed_and_to_no_other_stream) {
  const auto stream = reinterpret_cast<CUstream>(0x7000), next = reinterpret_cast<CUstream>(0x7100);
  teach(0xf0, 20'000);
  std::atomic<int> turn{0};
  std::atomic<bool> leased{false};
  OtherThread other{turn, std::thread([&] {
                      t_current.context = kContext;
                      leased = launch_on_lease(0xf0, 20'000, stream);
                      turn = 1;
                      while (turn.load() != 2) std::this_thread::yield();
                      gate::before_sync(device_, stream, true, false);
                    })};
  while (turn.load() != 1) std::this_thread::yield();
  ASSERT_TRUE(leased.load());
  gate::stream_destroyed(device_, stream);
  ASSERT_TRUE(launch_on_lease(0xf0, 20'000, next));  // the same place in the table
  const std::uint64_t launches = claimed().launches;
  other.join();
  EXPECT_EQ(claimed().launches.load(), launches + 1);
  EXPECT_EQ(claimed().streams.load(), 0u) << "the other stream's work is on a lease still, and nobody else's is there";
  EXPECT_NE(claimed().open_since_ns.load(), 0u) << "that lease is open";
  sync(next);
  EXPECT_EQ(claimed().launches.load(), launches + 2);
  EXPECT_EQ(claimed().completed_ns.load(), claimed().launched_ns.load());
}

TEST_F(Gate, leaves_no_queue_behind_that_a_destroyed_stream_had_on_a_lease) {
  const auto stream = reinterpret_cast<CUstream>(0x7000);
  teach(0xf0, 20'000);
  std::atomic<bool> launched{false}, destroyed{false};
  std::thread thread([&] {
    t_current.context = kContext;
    launch(0xf0, 20'000, stream);
    launched = true;
    while (!destroyed.load()) std::this_thread::yield();
    gate::before_sync(device_, stream, true, false);
  });
  while (!launched.load()) std::this_thread::yield();
  gate::stream_destroyed(device_, stream);
  destroyed = true;
  thread.join();
  EXPECT_EQ(claimed().completed_ns.load(), claimed().launched_ns.load());
}

TEST_F(Gate, leaves_no_queue_behind_of_a_context_that_is_destroyed_while_another_works) {
  const auto stream = reinterpret_cast<CUstream>(0x9000);
  FakeGpu::get().stream_context[stream] = 0xd0;
  teach(0xf0, 20'000);
  launch(0xf0, 500 * kMs);  // works on, however late a busy host comes with the rest
  gate::before_sync(device_, nullptr, true, false);
  const std::uint64_t outstanding = claimed().launched_ns - claimed().completed_ns;
  launch(0xf0, 20 * kMs, stream);
  gate::before_sync(device_, stream, true, false);
  ASSERT_GT(claimed().launched_ns - claimed().completed_ns, outstanding);
  gate::context_destroyed(device_, reinterpret_cast<CUcontext>(0xd0));
  EXPECT_EQ(claimed().launched_ns - claimed().completed_ns, outstanding);
  sync();
}

TEST_F(Gate, files_no_event_of_another_context_when_the_streams_own_cannot_be_entered) {
  const auto stream = reinterpret_cast<CUstream>(0x9000);
  FakeGpu& gpu = FakeGpu::get();
  gpu.stream_context[stream] = 0xd0;
  g_driver.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_ERROR_INVALID_CONTEXT; };
  for (int i = 0; i < 3; ++i) {
    launch(0xf7, 300'000, stream);
    sync(stream);
  }
  g_driver.cuCtxPushCurrent_v2 = push_context;
  const std::uint64_t before = measured();
  for (int i = 0; i < 12; ++i) {
    launch(0xf7, 300'000, stream);
    sync(stream);
  }
  EXPECT_GT(measured() - before, 11 * 300'000u) << "its events are of its own context";
}

TEST_F(Gate, asks_nothing_of_a_new_stream_while_another_is_in_capture) {
  teach(0xf0, 10'000);
  static std::atomic<unsigned> asked{0};
  asked = 0;
  g_driver.cuStreamGetCtx = [](CUstream of, CUcontext* context) {
    ++asked;
    return stream_context(of, context);
  };
  gate::capture_begins();
  const std::uint64_t launches = claimed().launches;
  for (int i = 0; i < 5; ++i) launch(0xf0, 10'000, reinterpret_cast<CUstream>(0x8000));
  EXPECT_EQ(asked.load(), 0u);
  EXPECT_EQ(claimed().launches.load(), launches + 5) << "counted all the same";
  EXPECT_EQ(claimed().unmeasured.load(), 5u);
  gate::g_captures.drop();
  launch(0xf0, 10'000, reinterpret_cast<CUstream>(0x8000));
  EXPECT_EQ(asked.load(), 1u);
  EXPECT_EQ(claimed().unmeasured.load(), 5u) << "and none since";
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
