// The gate: who may launch, how much, and what is told of it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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

TEST_F(Gate, takes_no_turn_of_others_for_a_pause_of_its_own) {
  teach(0xf0, 200'000);
  const double late_before = late_ms();
  for (int i = 0; i < 20; ++i) {
    FakeGpu::get().run(plain(nullptr), 2 * kMs);  // another's slice
    launch(0xf0, 200'000);
    sync();
  }
  EXPECT_LT(static_cast<double>(claimed().gap_ns.load()) / 1e6, 1.0 + (late_ms() - late_before));
}

TEST_F(Gate, tells_of_work_on_a_lease_before_it_is_counted) {
  teach(0xf0, 20'000);
  sync();
  ASSERT_EQ(claimed().open_since_ns.load(), 0u);
  ASSERT_TRUE(launch_on_lease(0xf0, 20'000, nullptr));
  EXPECT_NE(claimed().open_since_ns.load(), 0u) << "a marker is to come that starts before now";
  sync();
  EXPECT_EQ(claimed().open_since_ns.load(), 0u);
}

// The bell of the slice, as the hypervisor would hear it.
class Bell {
 public:
  Bell() : before_(g_shared.slice.directory) {
    EXPECT_NE(::mkdtemp(directory_), nullptr);
    path_ = std::string(directory_) + "/" + contract::kBellFile;
    EXPECT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    file_ = ::open(path_.c_str(), O_RDWR | O_NONBLOCK);
    g_shared.slice.directory = {};
    g_shared.slice.directory.add(directory_);
  }
  ~Bell() {
    g_shared.slice.directory = before_;
    ::close(file_);
    ::unlink(path_.c_str());
    ::rmdir(directory_);
  }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  int rings() {  // since it was asked last
    char sink[4096];
    const auto got = ::read(file_, sink, sizeof sink);
    return got < 0 ? 0 : static_cast<int>(got);
  }

 private:
  decltype(g_shared.slice.directory) before_;
  char directory_[32] = "/tmp/gate-bell-XXXXXX";
  std::string path_;
  int file_ = -1;
};

TEST_F(Gate, rings_for_every_launch_that_the_hypervisor_may_have_slept_through) {
  Bell bell;
  launch(0xf0, 10'000);
  sync();
  bell.rings();
  launch(0xf0, 10'000);
  sync();
  EXPECT_EQ(bell.rings(), 0) << "it is looked at anyway";
  granted().gate = contract::kGateStep | contract::kGateAdmitted;
  sync();
  beat();
  launch(0xf0, 10'000);  // right after the last, as if the hypervisor had been told only just now
  EXPECT_EQ(bell.rings(), 1);
  sync();
}

TEST_F(Gate, rings_before_markers_are_written_over_that_the_hypervisor_may_not_have_read) {
  teach(0xf0, 500'000);
  Bell bell;
  for (std::size_t i = 0; i < contract::kMarkers; ++i) {
    launch(0xf0, 500'000);
    sync();
  }
  EXPECT_GE(bell.rings(), 1);
}

// With streams that overlapped when the hypervisor was last there, a slice of 10 % had 32 % without it.
TEST_F(Gate, charges_the_fallback_share_no_less_because_work_overlapped_before) {
  granted().estimate_scale = (1 << 16) * 3 / 10;
  EXPECT_EQ(gate::scaled_for_bucket(device_, 1'000'000), 900'000u);
  granted().estimate_scale = (1 << 16) * 3 / 2;
  EXPECT_EQ(gate::scaled_for_bucket(device_, 1'000'000), 1'500'000u);
}

TEST_F(Gate, refills_at_the_fallback_share_when_the_heartbeat_is_old_and_does_not_hang) {
  teach(0xf0, 500'000);
  grant_->heartbeat_ns = os::monotonic_ns() - 2 * contract::kHeartbeatLateNs;
  granted().gate = 0;  // shut by the last word of the hypervisor
  // Never more; less only while a busy host keeps this thread from asking for what is there.
  double most = 0;
  for (int tries = 0; tries < 20 && most < 25; ++tries) {
    const std::uint64_t from = os::monotonic_ns();
    std::uint64_t launched = 0;
    while (since_ms(from) < 400) {
      launch(0xf0, 500'000);
      ++launched;
    }
    most = std::max(most, static_cast<double>(launched) * 0.5 / since_ms(from) * 100);
    ASSERT_LE(most, 35);
  }
  EXPECT_GE(most, 25);
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

TEST_F(Gate, refuses_nothing_when_the_tenant_has_been_removed) {
  granted().gate = 0;
  grant_->closed = 1;
  launch(0xf0, 1'000);  // whether new work is refused is the hooks' affair: the gate must not hang on it
  EXPECT_EQ(claimed().held_launches.load(), 0u);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
