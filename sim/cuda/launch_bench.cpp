// What a launch costs the program: process CPU (all threads) per cuLaunchKernel of an empty kernel, per busy kernel,
// and per launch of a kernel that must be executed. Last line: bench launch: empty_kernel_cpu_ns=…
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "sim/cuda/test_api.h"

namespace {

using namespace tensor_fusion::cuda;

std::uint64_t process_cpu_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(t.tv_nsec);
}

// Median over rounds, so that a round in which the machine was busy elsewhere does not count.
template <typename Round>
double median_ns(unsigned launches, Round round) {
  std::vector<double> costs;
  for (int i = 0; i < 31; ++i) {
    const std::uint64_t begin = process_cpu_ns();
    round();
    costs.push_back(static_cast<double>(process_cpu_ns() - begin) / launches);
    cuCtxSynchronize();
  }
  std::nth_element(costs.begin(), costs.begin() + 15, costs.end());
  return costs[15];
}

constexpr const char* kText = R"(
.version 6.3
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry tensor_fusion_busy(.param .u64 ns) { ret; }
.visible .entry store(.param .u64 word)
{
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [word];
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2], 1;
  ret;
}
)";

}  // namespace

int main() {
  char directory[] = "/dev/shm/tensor-fusion-launch-XXXXXX";
  if (::mkdtemp(directory) == nullptr) return 1;
  ::setenv("TENSOR_FUSION_SIM_DIR", directory, 1);
  ::setenv("TENSOR_FUSION_SIM", "h100", 1);
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction nothing = nullptr, busy = nullptr, store = nullptr;
  CUdeviceptr word = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS ||
      cuModuleLoadData(&module, kText) != CUDA_SUCCESS ||
      cuModuleGetFunction(&nothing, module, "nothing") != CUDA_SUCCESS ||
      cuModuleGetFunction(&busy, module, "tensor_fusion_busy") != CUDA_SUCCESS ||
      cuModuleGetFunction(&store, module, "store") != CUDA_SUCCESS || cuMemAlloc_v2(&word, 4) != CUDA_SUCCESS) {
    std::fprintf(stderr, "cannot set up\n");
    return 1;
  }
  constexpr unsigned kLaunches = 500;  // fewer than a lane holds: the device is not what is measured
  std::uint64_t ns = 1000;
  void* busy_params[] = {&ns};
  void* store_params[] = {&word};
  const auto many = [&](CUfunction function, void** params) {
    return [=] {
      for (unsigned i = 0; i < kLaunches; ++i) cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr);
    };
  };
  const double empty_ns = median_ns(kLaunches, many(nothing, nullptr));
  const double busy_ns = median_ns(kLaunches, many(busy, busy_params));
  const double executed_ns = median_ns(kLaunches, [&] {
    many(store, store_params)();
    cuCtxSynchronize();  // its execution counts
  });
  // With the device's own account of it: launches and the clock's advance, over many full lanes.
  const std::uint64_t begin = process_cpu_ns();
  ns = 100;
  for (unsigned i = 0; i < 200'000; ++i) cuLaunchKernel(busy, 1, 1, 1, 32, 1, 1, 0, nullptr, busy_params, nullptr);
  cuCtxSynchronize();
  const double sustained_ns = static_cast<double>(process_cpu_ns() - begin) / 200'000;
  std::filesystem::remove_all(directory);
  std::printf(
      "bench launch: empty_kernel_cpu_ns=%.0f busy_kernel_cpu_ns=%.0f sustained_cpu_ns=%.0f "
      "executed_kernel_cpu_ns=%.0f\n",
      empty_ns, busy_ns, sustained_ns, executed_ns);
  return 0;
}
