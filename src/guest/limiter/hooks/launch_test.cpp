// The hooks of launches: what passes the gate, and on which device.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "guest/limiter/core/fake_gpu.h"
#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/testing/fake_memory.h"

namespace tensor_fusion::guest::limiter {
namespace {

using testing::FakeMemory;

std::atomic<int> g_launches;

// Both devices of the slice are limited, and its turn has come on both.
class Launch : public ::testing::Test {
 protected:
  Launch() {
    FakeMemory::get();
    FakeGpu::get().end_of.clear();
    FakeGpu::get().event_on.clear();
    FakeGpu::get().stream_context[FakeMemory::stream_of_second()] = 0xd0;
    g_driver.cuEventCreate = event_create;
    g_driver.cuEventRecord = event_record;
    g_driver.cuEventQuery = event_query;
    g_driver.cuEventElapsedTime = event_elapsed;
    g_driver.cuCtxPushCurrent_v2 = push_context;
    g_driver.cuCtxPopCurrent_v2 = pop_context;
    g_driver.cuStreamIsCapturing = is_capturing;
    g_driver.cuLaunchCooperativeKernelMultiDevice = [](CUDA_LAUNCH_PARAMS* parts, unsigned count, unsigned) {
      g_launches.fetch_add(1);
      for (unsigned i = 0; i < count; ++i) FakeGpu::get().run(parts[i].hStream, 10'000);
      return CUDA_SUCCESS;
    };
    g_driver.cuFuncSetBlockShape = [](CUfunction, int, int, int) { return CUDA_SUCCESS; };
    g_driver.cuLaunchGrid = [](CUfunction, int, int) {
      g_launches.fetch_add(1);
      return CUDA_SUCCESS;
    };
    g_launches = 0;
    EXPECT_EQ(cuCtxCreate_v2(&first_, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxCreate_v2(&second_, 0, 1), CUDA_SUCCESS);
    page().heartbeat_ns = os::monotonic_ns() + 10'000 * kMs;  // for as long as the test lasts
    for (int device : {0, 1}) {
      contract::GrantDevice& granted = page().devices[device];
      granted.flags.fetch_and(~contract::kComputeUnlimited);
      granted.window_ns = 2 * kMs;
      granted.estimate_scale = 1 << 16;
      granted.fallback_share = 3000;
      admit(device, true);
    }
  }
  ~Launch() override {
    page().heartbeat_ns = 0;  // there is none who would read the driver's account for a context's cost
    for (int device : {0, 1}) page().devices[device].flags.fetch_or(contract::kComputeUnlimited);
    EXPECT_EQ(cuCtxDestroy_v2(second_), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxDestroy_v2(first_), CUDA_SUCCESS);
  }
  static contract::GrantPage& page() { return FakeMemory::get().slice.grant(); }
  static void admit(int device, bool admitted) {
    page().devices[device].gate =
        admitted ? contract::kGateKnown | contract::kGateAdmitted : std::uint32_t{contract::kGateKnown};
  }
  static const contract::ClaimProcessDevice& claimed(int device) { return *attachment()->devices[device].mine; }
  static CUDA_LAUNCH_PARAMS part(std::uintptr_t function, CUstream stream) {
    CUDA_LAUNCH_PARAMS launch{};
    launch.function = reinterpret_cast<CUfunction>(function);
    launch.gridDimX = launch.gridDimY = launch.gridDimZ = launch.blockDimX = launch.blockDimY = launch.blockDimZ = 1;
    launch.hStream = stream;
    return launch;
  }
  static CUresult launch_on_both(std::uintptr_t function) {
    CUDA_LAUNCH_PARAMS parts[] = {part(function + 16, FakeMemory::stream_of_second()),
                                  part(function, FakeMemory::stream(1))};
    return cuLaunchCooperativeKernelMultiDevice(parts, 2, 0);
  }

  CUcontext first_ = nullptr, second_ = nullptr;
};

TEST_F(Launch, on_several_devices_is_charged_on_each_of_them) {
  const std::uint64_t before[] = {claimed(0).launches, claimed(1).launches};
  ASSERT_EQ(launch_on_both(0xa000), CUDA_SUCCESS);
  for (int device : {0, 1}) {
    EXPECT_EQ(claimed(device).launches.load(), before[device] + 1) << "device " << device;
    EXPECT_GT(claimed(device).launched_ns.load(), 0u) << "device " << device;
  }
  EXPECT_EQ(g_launches.load(), 1);
}

TEST_F(Launch, on_several_devices_waits_for_each_of_them) {
  for (int closed : {0, 1}) {
    g_launches = 0;
    admit(closed, false);
    const std::uint64_t held = claimed(closed).held_launches;
    std::thread launching([&] { EXPECT_EQ(launch_on_both(0xb000), CUDA_SUCCESS); });
    while (claimed(closed).held_launches.load() == held) std::this_thread::yield();
    EXPECT_EQ(g_launches.load(), 0) << "device " << closed << " is another slice's now";
    admit(closed, true);
    launching.join();
    EXPECT_EQ(g_launches.load(), 1);
  }
}

TEST_F(Launch, of_two_parts_on_one_device_is_none) {
  CUDA_LAUNCH_PARAMS parts[] = {part(0xc000, FakeMemory::stream(1)), part(0xc000, FakeMemory::stream(2))};
  EXPECT_EQ(cuLaunchCooperativeKernelMultiDevice(parts, 2, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(g_launches.load(), 0);
}

// Its shape is set by one thread and read by another: a sanitizer of threads looks.
TEST_F(Launch, of_a_shape_that_was_set_before_may_meet_another_thread_that_sets_one) {
  const auto function = reinterpret_cast<CUfunction>(0xd000);
  for (int device : {0, 1}) page().devices[device].window_ns = 1'000 * kMs;
  std::atomic<bool> stop{false};
  std::thread setting([&] {
    for (int x = 1; !stop.load(); x = x % 1024 + 1) EXPECT_EQ(cuFuncSetBlockShape(function, x, 1, 1), CUDA_SUCCESS);
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(cuLaunchGrid(function, 1, 1), CUDA_SUCCESS);
  stop = true;
  setting.join();
  EXPECT_EQ(g_launches.load(), 20);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
