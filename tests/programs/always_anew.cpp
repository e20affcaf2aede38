// not a test by itself: needs arguments; tests/e2e/test_hostile.py calls it
// Launches kernels of so many nanoseconds (of a simulated device) for ever: a function of a new module for each, which
// is waited for; a new stream for each, destroyed at once; or so many streams in turns.
// Usage: always_anew NS functions|streams|COUNT
#include <cstdint>
#include <vector>

#include "driver.h"

using namespace tensor_fusion::programs;

int main(int count, char** words) {
  if (count != 3) return 2;
  std::uint64_t ns = std::strtoull(words[1], nullptr, 10);
  void* arguments[] = {&ns};
  const std::string what = words[2];
  Driver d;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction busy = nullptr;
  const auto load = [&] {
    return d.cuModuleLoadData(&module, kKernels) == CUDA_SUCCESS &&
           d.cuModuleGetFunction(&busy, module, "tensor_fusion_busy") == CUDA_SUCCESS;
  };
  const auto launch = [&](CUstream stream) {
    return d.cuLaunchKernel(busy, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr) == CUDA_SUCCESS;
  };
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS || d.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      d.cuCtxSetCurrent(context) != CUDA_SUCCESS || !load())
    return 1;
  std::vector<CUstream> streams(std::strtoul(words[2], nullptr, 10));
  for (CUstream& stream : streams)
    if (d.cuStreamCreate(&stream, 1) != CUDA_SUCCESS) return 1;
  for (std::size_t n = 0;; ++n) {
    bool launched = false;
    if (what == "functions") {
      launched =
          load() && launch(nullptr) && d.cuCtxSynchronize() == CUDA_SUCCESS && d.cuModuleUnload(module) == CUDA_SUCCESS;
    } else if (what == "streams") {
      CUstream stream = nullptr;
      launched = d.cuStreamCreate(&stream, 1) == CUDA_SUCCESS && launch(stream) &&
                 d.cuStreamDestroy_v2(stream) == CUDA_SUCCESS;
    } else {
      launched = launch(streams[n % streams.size()]);
    }
    if (!launched) return 1;
  }
}
