#pragma once
// The gate of a process with one device, on the fake driver and on pages in memory. Tests only.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <fstream>
#include <thread>

#include "guest/limiter/core/attachment.h"
#include "guest/limiter/core/driver.h"
#include "guest/limiter/core/fake_gpu.h"
#include "guest/limiter/core/gate.h"
#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter {

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
    g_driver.cuThreadExchangeStreamCaptureMode = nullptr;
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
  void beat() { grant_->heartbeat_ns = os::monotonic_ns() + 100'000 * kMs; }  // for as long as the test lasts
  contract::GrantDevice& granted() { return grant_->devices[0]; }
  const contract::ClaimProcessDevice& claimed() const { return claim_->processes[0].devices[0]; }

  // What the hooks do around one launch.
  void launch(std::uintptr_t function, std::uint64_t ns, CUstream stream = nullptr, std::uint64_t blocks = 0) {
    const gate::LaunchKey key{reinterpret_cast<const void*>(function), blocks * 2048 + 1};
    gate::Token token = gate::before_launch(device_, stream, key, false);
    FakeGpu::get().run(plain(stream), ns);
    if (token.word[0] != 0) gate::after_launch(token, CUDA_SUCCESS);
  }
  // Now and then a launch is measured by itself, for the clock says so: on a busy host any may be. True: this one was
  // charged to nobody yet.
  bool launch_on_lease(std::uintptr_t function, std::uint64_t ns, CUstream stream) {
    for (int tries = 0; tries < 100; ++tries) {
      const std::uint64_t before = claimed().launches;
      launch(function, ns, stream);
      if (claimed().launches.load() == before) return true;
      sync(stream);
    }
    return false;
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

}  // namespace tensor_fusion::guest::limiter
