// The gate on a fake driver: streams are queues of durations, events carry end times. Its device waits for no host:
// work begins where the event before it passed, so that what markers measure does not depend on how busy this host is.
#include "guest/limiter/core/gate.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "guest/limiter/core/attachment.h"
#include "guest/limiter/core/driver.h"
#include "guest/limiter/core/durations.h"
#include "guest/limiter/core/os.h"
#include "guest/limiter/core/timeline.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kContext = 0xc0;

thread_local std::vector<std::uint64_t> t_pushed;  // contexts, over the one that is current by itself

// One device, one context; kernels of one stream in order, streams beside each other.
struct FakeGpu {
  std::mutex mutex;
  std::map<CUstream, std::uint64_t> end_of;
  std::map<CUstream, std::uint64_t> event_on;  // when the last one passes
  std::map<CUevent, std::uint64_t> time_of;
  std::map<CUevent, std::uint64_t> context_of;       // of an event: what was current when it was made
  std::map<CUstream, std::uint64_t> stream_context;  // of streams that are not of the usual one
  std::uintptr_t next_event = 0x1000;
  unsigned records = 0, queries = 0;
  bool capturing = false;

  static FakeGpu& get() {
    static FakeGpu gpu;
    return gpu;
  }
  std::uint64_t run(CUstream stream, std::uint64_t ns) {
    const std::lock_guard lock(mutex);
    std::uint64_t& end = end_of[stream];
    const auto event = event_on.find(stream);
    end = std::max(end, event != event_on.end() ? event->second : os::monotonic_ns()) + ns;
    return end;
  }
};

CUstream plain(CUstream stream) { return stream == nullptr ? reinterpret_cast<CUstream>(1) : stream; }

CUresult event_create(CUevent* event, unsigned) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  *event = reinterpret_cast<CUevent>(gpu.next_event++);
  gpu.context_of[*event] = t_pushed.empty() ? t_current.context : t_pushed.back();
  return CUDA_SUCCESS;
}
std::uint64_t context_of(FakeGpu& gpu, CUstream stream) {
  const auto found = gpu.stream_context.find(stream);
  return found == gpu.stream_context.end() ? kContext : found->second;
}
CUresult stream_context(CUstream stream, CUcontext* context) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  *context = reinterpret_cast<CUcontext>(context_of(gpu, stream));
  return CUDA_SUCCESS;
}
CUresult push_context(CUcontext context) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  t_pushed.push_back(reinterpret_cast<std::uint64_t>(context));
  return CUDA_SUCCESS;
}
CUresult pop_context(CUcontext*) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  t_pushed.pop_back();
  return CUDA_SUCCESS;
}
CUresult event_record(CUevent event, CUstream stream) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  if (gpu.context_of[event] != context_of(gpu, stream)) return CUDA_ERROR_INVALID_HANDLE;
  ++gpu.records;
  gpu.time_of[event] = gpu.event_on[plain(stream)] = std::max(gpu.end_of[plain(stream)], os::monotonic_ns());
  return CUDA_SUCCESS;
}
CUresult event_query(CUevent event) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  ++gpu.queries;
  return gpu.time_of[event] <= os::monotonic_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult event_elapsed(float* ms, CUevent from, CUevent to) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  *ms = static_cast<float>(static_cast<double>(static_cast<std::int64_t>(gpu.time_of[to] - gpu.time_of[from])) / 1e6);
  return CUDA_SUCCESS;
}
CUresult stream_query(CUstream stream) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  return gpu.end_of[plain(stream)] <= os::monotonic_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult is_capturing(CUstream, CUstreamCaptureStatus* status) {
  *status = FakeGpu::get().capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult graph_nodes(CUgraph, CUgraphNode*, std::size_t* count) {
  *count = 300;
  return CUDA_SUCCESS;
}

class Gate : public ::testing::Test {
 protected:
  Gate() {
    FakeGpu& gpu = FakeGpu::get();
    gpu.end_of.clear();
    gpu.time_of.clear();
    gpu.event_on.clear();
    gpu.stream_context.clear();
    gpu.records = gpu.queries = 0;
    gpu.capturing = false;
    g_driver.cuEventCreate = event_create;
    g_driver.cuEventRecord = event_record;
    g_driver.cuEventQuery = event_query;
    g_driver.cuEventElapsedTime = event_elapsed;
    g_driver.cuStreamQuery = stream_query;
    g_driver.cuStreamGetCtx = stream_context;
    g_driver.cuCtxPushCurrent_v2 = push_context;
    g_driver.cuCtxPopCurrent_v2 = pop_context;
    g_driver.cuStreamIsCapturing = is_capturing;
    g_driver.cuStreamIsCapturing_ptsz = is_capturing;
    g_driver.cuGraphGetNodes = graph_nodes;
    gate::forked();  // forget the test before
    grant_ = static_cast<contract::GrantPage*>(page(sizeof(contract::GrantPage)));
    claim_ = static_cast<contract::ClaimPage*>(page(sizeof(contract::ClaimPage)));
    claim_->process_high = 1;
    claim_->processes[0].state = contract::kSlotLive;
    g_shared.slice.claim = claim_;
    device_ = {0, 0, &grant_->devices[0], grant_, &claim_->devices[0], &claim_->processes[0].devices[0]};
    granted().window_ns = 2 * kMs;
    granted().estimate_scale = 1 << 16;
    granted().fallback_share = 3000;
    granted().gate = contract::kGateAdmitted | contract::kGateKnown;
    t_current.context = kContext;
    beat();
  }
  ~Gate() override {
    g_shared.slice.claim = nullptr;
    ::munmap(grant_, sizeof *grant_);
    ::munmap(claim_, sizeof *claim_);
  }
  static void* page(std::size_t size) {
    return ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  void beat() { grant_->heartbeat_ns = os::monotonic_ns() + 10'000 * kMs; }  // for as long as the test lasts
  contract::GrantDevice& granted() { return grant_->devices[0]; }
  const contract::ClaimProcessDevice& claimed() const { return claim_->processes[0].devices[0]; }

  // What the hooks do around one launch.
  void launch(std::uintptr_t function, std::uint64_t ns, CUstream stream = nullptr) {
    gate::Token token = gate::before_launch(device_, stream, {reinterpret_cast<const void*>(function), 1}, false);
    FakeGpu::get().run(plain(stream), ns);
    if (token.word[0] != 0) gate::after_launch(token, CUDA_SUCCESS);
  }
  void sync(CUstream stream = nullptr) {
    gate::before_sync(device_, stream, true, false);
    while (stream_query(stream) != CUDA_SUCCESS) std::this_thread::yield();
    gate::after_sync(device_, stream, true, false);
  }
  void teach(std::uintptr_t function, std::uint64_t ns) {
    // What runs in the first millisecond after an admission may run beside another's tail and teaches nothing.
    const std::uint64_t begin = os::monotonic_ns();
    for (int i = 0; i < 12 || os::monotonic_ns() - begin < 4'000'000; ++i) {
      launch(function, ns);
      sync();
    }
  }
  std::uint64_t measured() const { return claimed().measured_ns.load(); }
  // Time this thread was ready to run and did not: what a busy host adds to every wait.
  static double late_ms() {
    std::ifstream file("/proc/thread-self/schedstat");
    std::uint64_t ran = 0, waited = 0;
    file >> ran >> waited;
    return static_cast<double>(waited) / 1e6;
  }
  static double since_ms(std::uint64_t from) { return static_cast<double>(os::monotonic_ns() - from) / 1e6; }

  contract::GrantPage* grant_ = nullptr;
  contract::ClaimPage* claim_ = nullptr;
  Device device_{};
};

TEST_F(Gate, learns_what_a_function_costs_from_its_first_launches) {
  teach(0xf0, 300'000);
  const std::uint64_t before = claimed().launched_ns;
  for (int i = 0; i < 10; ++i) launch(0xf0, 300'000);
  sync();
  EXPECT_NEAR(static_cast<double>(claimed().launched_ns - before), 3e6, 0.4e6);
}

TEST_F(Gate, charges_what_a_thread_launched_that_ended_without_a_sync) {
  teach(0xf0, 100'000);
  teach(0xf0, 100'000);
  const std::uint64_t launches = claimed().launches;
  std::thread([&] {
    t_current.context = kContext;
    for (int i = 0; i < 3; ++i) launch(0xf0, 100'000);
  }).join();
  ASSERT_LT(claimed().launches.load(), launches + 3) << "it had no lease";
  const std::uint64_t end = os::monotonic_ns() + 2'000 * kMs;
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
      ::alarm(5);
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

TEST_F(Gate, lets_no_more_ahead_than_the_window_and_subtracts_what_has_run) {
  teach(0xf0, 500'000);
  const std::uint64_t from = os::monotonic_ns();
  const double late_before = late_ms();
  for (int i = 0; i < 40; ++i) launch(0xf0, 500'000);
  // 20 ms of work through a window of 2 ms (and one kernel more): it cannot all be queued before 17 ms have passed.
  EXPECT_GE(since_ms(from), 14.0);
  EXPECT_GT(claimed().held_launches.load(), 0u);
  sync();
  EXPECT_LE(since_ms(from) - (late_ms() - late_before), 40.0) << "and the device was not left to idle";
}

TEST_F(Gate, holds_a_launch_until_it_is_admitted_and_tells_that_it_waits) {
  granted().gate = 0;
  std::atomic<bool> passed{false};
  std::thread thread([&] {
    t_current.context = kContext;
    launch(0xf0, 10'000);
    passed = true;
  });
  while (claimed().blocked.load() == 0) std::this_thread::yield();
  EXPECT_FALSE(passed);
  EXPECT_EQ(claimed().launches.load(), 0u);
  granted().gate = contract::kGateStep | contract::kGateAdmitted;
  os::futex_wake(&granted().gate, 100, true);
  thread.join();
  EXPECT_EQ(claimed().blocked.load(), 0u);
  EXPECT_EQ(claimed().held_launches.load(), 1u);
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

TEST_F(Gate, takes_no_turn_of_others_for_a_pause_of_its_own) {
  teach(0xf0, 200'000);
  for (int i = 0; i < 20; ++i) {
    FakeGpu::get().run(plain(nullptr), 2 * kMs);  // another's slice
    launch(0xf0, 200'000);
    sync();
  }
  EXPECT_LT(claimed().gap_ns.load(), 1'000'000u);
}

TEST_F(Gate, waits_for_work_that_takes_far_longer_than_it_used_to) {
  teach(0xf0, 100'000);
  launch(0xf0, 60 * kMs);
  gate::before_sync(device_, nullptr, false, false);  // a marker behind it
  const std::uint64_t from = os::monotonic_ns();
  while (since_ms(from) < 4) std::this_thread::yield();
  launch(0xf0, 100'000);
  EXPECT_GE(since_ms(from), 45.0);
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
  launch(0xabc0, 6 * kMs);
  EXPECT_EQ(claimed().held_launches.load(), 0u);
  launch(0xabc0, 6 * kMs);
  EXPECT_EQ(claimed().held_launches.load(), 1u);
  EXPECT_GE(since_ms(from), 5.0) << "the second waits for the first measurement";
  sync();
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

TEST_F(Gate, tells_of_work_on_a_lease_before_it_is_counted) {
  teach(0xf0, 20'000);
  sync();
  ASSERT_EQ(claimed().open_since_ns.load(), 0u);
  const std::uint64_t launches = claimed().launches;
  launch(0xf0, 20'000);
  ASSERT_EQ(claimed().launches.load(), launches) << "it was on no lease";
  EXPECT_NE(claimed().open_since_ns.load(), 0u) << "a marker is to come that starts before now";
  sync();
  EXPECT_EQ(claimed().open_since_ns.load(), 0u);
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

TEST_F(Gate, holds_no_work_of_streams_it_cannot_follow_to_be_outstanding_for_ever) {
  teach(0xf0, 200'000);
  for (std::uintptr_t i = 0; i < 2 * Timeline::kStreams; ++i)
    launch(0xf0, 200'000, reinterpret_cast<CUstream>(0x10000 + 0x100 * i));
  for (std::uintptr_t i = 0; i < 2 * Timeline::kStreams; ++i)
    gate::stream_destroyed(device_, reinterpret_cast<CUstream>(0x10000 + 0x100 * i));
  sync();
  EXPECT_EQ(claimed().completed_ns.load(), claimed().launched_ns.load());
}

TEST_F(Gate, rings_for_every_launch_that_the_hypervisor_may_have_slept_through) {
  char directory[] = "/tmp/gate-bell-XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string bell = std::string(directory) + "/" + contract::kBellFile;
  ASSERT_EQ(::mkfifo(bell.c_str(), 0600), 0);
  const int file = ::open(bell.c_str(), O_RDWR | O_NONBLOCK);
  const auto before = g_shared.slice.directory;
  g_shared.slice.directory = {};
  g_shared.slice.directory.add(directory);
  const auto rings = [&] {
    char sink[4096];
    const auto got = ::read(file, sink, sizeof sink);
    return got < 0 ? 0 : static_cast<int>(got);
  };
  teach(0xf0, 10'000);
  launch(0xf0, 10'000);
  sync();
  EXPECT_EQ(rings(), 0) << "it is looked at anyway";
  granted().gate = contract::kGateStep | contract::kGateAdmitted;
  sync();
  beat();
  launch(0xf0, 10'000);  // right after the last, as if the hypervisor had been told only just now
  EXPECT_EQ(rings(), 1);
  sync();
  g_shared.slice.directory = before;
  ::close(file);
  ::unlink(bell.c_str());
  ::rmdir(directory);
}

TEST_F(Gate, never_holds_a_launch_in_capture_and_makes_no_driver_call_then) {
  teach(0xf0, 10'000);
  FakeGpu& gpu = FakeGpu::get();
  gpu.capturing = true;
  gate::capture_began(nullptr, false);
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
  gate::capture_ended(nullptr, false);
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

TEST_F(Gate, refills_at_the_fallback_share_when_the_heartbeat_is_old_and_does_not_hang) {
  teach(0xf0, 500'000);
  grant_->heartbeat_ns = os::monotonic_ns() - 2 * contract::kHeartbeatLateNs;
  granted().gate = 0;  // shut by the last word of the hypervisor
  const std::uint64_t from = os::monotonic_ns();
  std::uint64_t launched = 0;
  while (since_ms(from) < 400) {
    launch(0xf0, 500'000);
    ++launched;
  }
  const double share = static_cast<double>(launched) * 0.5 / since_ms(from) * 100;
  EXPECT_NEAR(share, 30, 5);
  beat();
  granted().gate = contract::kGateAdmitted | contract::kGateKnown;
  launch(0xf0, 500'000);
  sync();
}

TEST_F(Gate, counts_launches_of_many_threads_and_loses_none) {
  teach(0xf0, 1'000);
  granted().window_ns = 10'000 * kMs;
  const std::uint64_t before = claimed().launches;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      t_current.context = kContext;
      const auto stream = reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(0x5000 + 0x100 * t));
      for (int i = 0; i < 20'000; ++i) launch(0xf0, 0, stream);
      gate::before_sync(device_, stream, false, false);
      gate::after_sync(device_, stream, false, false);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(claimed().launches.load() - before, 160'000u);
}

TEST_F(Gate, forgets_streams_and_contexts_that_are_gone) {
  const auto stream = reinterpret_cast<CUstream>(0x7000);
  launch(0xf0, 3 * kMs, stream);
  gate::stream_destroyed(device_, stream);
  EXPECT_EQ(claimed().streams.load(), 0u);
  launch(0xf1, 3 * kMs);
  gate::context_destroyed(device_, reinterpret_cast<CUcontext>(kContext));
  EXPECT_EQ(claimed().streams.load(), 0u);
  EXPECT_EQ(claimed().open_since_ns.load(), 0u);
}

TEST_F(Gate, charges_a_lease_whose_stream_another_thread_destroyed_and_to_no_other_stream) {
  const auto stream = reinterpret_cast<CUstream>(0x7000), next = reinterpret_cast<CUstream>(0x7100);
  teach(0xf0, 20'000);
  const std::uint64_t launches = claimed().launches;
  std::atomic<int> turn{0};
  std::thread thread([&] {
    t_current.context = kContext;
    launch(0xf0, 20'000, stream);
    turn = 1;
    while (turn.load() != 2) std::this_thread::yield();
    gate::before_sync(device_, stream, true, false);
  });
  while (turn.load() != 1) std::this_thread::yield();
  ASSERT_EQ(claimed().launches.load(), launches) << "it was on no lease";
  gate::stream_destroyed(device_, stream);
  launch(0xf0, 20'000, next);  // the same place in the table
  ASSERT_EQ(claimed().launches.load(), launches) << "it was on no lease";
  turn = 2;
  thread.join();
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
  launch(0xf0, 20 * kMs);  // works on
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
  gate::capture_began(reinterpret_cast<CUstream>(0x6000), false);
  const std::uint64_t launches = claimed().launches;
  for (int i = 0; i < 5; ++i) launch(0xf0, 10'000, reinterpret_cast<CUstream>(0x8000));
  EXPECT_EQ(asked.load(), 0u);
  EXPECT_EQ(claimed().launches.load(), launches + 5) << "counted all the same";
  gate::capture_ended(reinterpret_cast<CUstream>(0x6000), false);
  launch(0xf0, 10'000, reinterpret_cast<CUstream>(0x8000));
  EXPECT_EQ(asked.load(), 1u);
}

TEST_F(Gate, refuses_nothing_when_the_tenant_has_been_removed) {
  granted().gate = 0;
  grant_->closed = 1;
  const std::uint64_t from = os::monotonic_ns();
  launch(0xf0, 1'000);  // whether new work is refused is the hooks' affair: the gate must not hang on it
  EXPECT_LE(since_ms(from), 50.0);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
