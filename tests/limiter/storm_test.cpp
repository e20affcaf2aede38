// The limiter as part of this very program, on the simulated card, with everything at once: what the thread sanitizer
// is to watch. The driver is loaded, the hooks are called by name.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/hooks/nvml.h"
#include "tests/limiter/machine.h"

namespace tensor_fusion::tests {
namespace {

namespace hooks = guest::limiter;
using namespace tensor_fusion::cuda;
using hooks::cuCtxCreate_v2, hooks::cuCtxDestroy_v2, hooks::cuCtxSetCurrent, hooks::cuDevicePrimaryCtxRetain;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr int kThreads = 8;
constexpr int kRounds = 200;
constexpr const char* kKernel = R"(
.version 6.3
.target sm_70
.address_size 64
.visible .entry tensor_fusion_busy(.param .u64 ns)
{
  ret;
}
)";

class Storm : public ::testing::Test {
 protected:
  Storm() : machine_(0) {
    contract::GrantDevice& grant = machine_.slice().grant().devices[0];
    grant.flags = 0;
    grant.request_share = grant.limit_share = grant.fallback_share = 5000;
    grant.memory_limit_bytes = 3 * machine_.overhead() + 400 * kMiB;
    setenv("TENSOR_FUSION_SLICE", machine_.slice().directory().c_str(), 1);
    setenv("TENSOR_FUSION_SIM_DIR", (machine_.state() + "/sim").c_str(), 1);
    const std::string build = TF_BUILD_FOLDER;
    driver_ = dlopen((build + "/sim/libcuda.so.1").c_str(), RTLD_NOW);
    management_ = dlopen((build + "/sim/libnvidia-ml.so.1").c_str(), RTLD_NOW);
  }
  template <class... Arguments>
  CUresult plain(const char* name, Arguments... arguments) {  // what has no hook
    return reinterpret_cast<CUresult (*)(Arguments...)>(dlsym(driver_, name))(arguments...);
  }

  LimitedMachine machine_;
  void* driver_ = nullptr;
  void* management_ = nullptr;
};

// One thread's work: each kind of memory, launches on a stream of its own, a graph, and waiting for that stream.
// (Waiting for the whole context would spoil what another thread records.)
struct Worker {
  CUcontext context;
  CUfunction function;
  int number;
  std::string wrong;  // codes that should not have come, and where

  void expect(CUresult result, int line = __builtin_LINE()) {
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY) return;
    wrong += std::to_string(result) + " in line " + std::to_string(line) + "; ";
  }
  CUresult launch(CUstream stream) {
    std::uint64_t ns = 20'000;
    void* parameters[] = {&ns};
    return hooks::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
  }
  void memory(CUstream stream, int round) {
    CUdeviceptr pointer = 0;
    CUdeviceptr pooled = 0;
    const std::size_t bytes = kMiB * static_cast<std::size_t>(1 + (round + number) % 7);
    const CUresult taken = hooks::cuMemAlloc_v2(&pointer, bytes);
    const CUresult from_pool = hooks::cuMemAllocAsync(&pooled, bytes, stream);
    expect(taken);
    expect(from_pool);
    if (from_pool == CUDA_SUCCESS) expect(hooks::cuMemFreeAsync(pooled, stream));
    if (taken == CUDA_SUCCESS) expect(hooks::cuMemFree_v2(pointer));
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle physical = 0;
    const CUresult made = hooks::cuMemCreate(&physical, 2 * kMiB, &prop, 0);
    expect(made);
    if (made == CUDA_SUCCESS) expect(hooks::cuMemRelease(physical));
    std::size_t left = 0;
    std::size_t total = 0;
    expect(hooks::cuMemGetInfo_v2(&left, &total));
  }
  void pool_of_its_own(CUstream stream) {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool pool = nullptr;
    CUdeviceptr pointer = 0;
    expect(hooks::cuMemPoolCreate(&pool, &props));
    const CUresult taken = hooks::cuMemAllocFromPoolAsync(&pointer, kMiB, pool, stream);
    expect(taken);
    expect(hooks::cuMemPoolDestroy(pool));  // before its memory is given back
    if (taken == CUDA_SUCCESS) expect(hooks::cuMemFreeAsync(pointer, stream));
  }
  void graph(CUstream stream) {
    CUgraph recorded = nullptr;
    CUgraphExec exec = nullptr;
    expect(hooks::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    expect(launch(stream));
    expect(hooks::cuStreamEndCapture(stream, &recorded));
    expect(hooks::cuGraphInstantiateWithFlags(&exec, recorded, 0));
    expect(hooks::cuGraphLaunch(exec, stream));
    expect(hooks::cuStreamSynchronize(stream));
    expect(hooks::cuGraphExecDestroy(exec));
  }
  void work() {
    expect(cuCtxSetCurrent(context));
    CUstream stream = nullptr;
    expect(hooks::cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < kRounds; ++round) {
      memory(stream, round);
      for (int i = 0; i < 4; ++i) expect(launch(stream));
      if (round % 8 == number % 8) graph(stream);
      if (round % 8 == 3) pool_of_its_own(stream);
      if (round % 4 == 1) expect(hooks::cuStreamSynchronize(stream));
    }
    expect(hooks::cuStreamSynchronize(stream));
    expect(hooks::cuStreamDestroy_v2(stream));
  }
};

TEST_F(Storm, of_threads_leaves_the_books_in_order) {
  ASSERT_NE(driver_, nullptr) << dlerror();
  ASSERT_EQ(hooks::cuInit(0), CUDA_SUCCESS);
  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(plain("cuModuleLoadData", &module, static_cast<const void*>(kKernel)), CUDA_SUCCESS);
  ASSERT_EQ(plain("cuModuleGetFunction", &function, module, "tensor_fusion_busy"), CUDA_SUCCESS);
  std::vector<Worker> workers;
  for (int number = 0; number < kThreads; ++number) workers.push_back({context, function, number, {}});
  std::vector<std::thread> threads;
  for (Worker& worker : workers) threads.emplace_back([&worker] { worker.work(); });
  // Beside them: contexts that come and go, the view of tools, and children of fork.
  for (int round = 0; round < 10; ++round) {
    CUcontext second = nullptr;
    const CUresult made = cuCtxCreate_v2(&second, 0, 0);
    EXPECT_TRUE(made == CUDA_SUCCESS || made == CUDA_ERROR_OUT_OF_MEMORY) << made;
    if (made == CUDA_SUCCESS) {
      EXPECT_EQ(cuCtxDestroy_v2(second), CUDA_SUCCESS);
    }
    unsigned count = 0;
    hooks::nvmlDeviceGetCount_v2(&count);
    const pid_t child = fork();
    if (child == 0) {
      CUdeviceptr pointer = 0;
      _exit(hooks::cuMemAlloc_v2(&pointer, kMiB) == CUDA_SUCCESS ? 1 : 0);  // the driver does not survive a fork
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  for (std::thread& thread : threads) thread.join();
  for (const Worker& worker : workers) EXPECT_EQ(worker.wrong, "") << worker.number;
  EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  EXPECT_EQ(hooks::cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(machine_.ledger(), machine_.tenants_real_bytes());
  EXPECT_EQ(machine_.ledger(), machine_.overhead());
  EXPECT_GE(machine_.slice().claim().processes[0].devices[0].launches.load(), std::uint64_t{kThreads * kRounds * 4});
}

}  // namespace
}  // namespace tensor_fusion::tests
