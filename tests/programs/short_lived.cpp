// not a test by itself: needs arguments; tests/e2e/test_hostile.py calls it
// Launches a kernel of so many nanoseconds (of a simulated device), does something else for so many milliseconds and
// ends without waiting for it: by itself, or by a signal.
// Usage: short_lived NS MS exit|kill
#include <signal.h>
#include <unistd.h>

#include <cstdint>

#include "driver.h"

using namespace tensor_fusion::programs;

int main(int count, char** words) {
  if (count != 4) return 2;
  std::uint64_t ns = std::strtoull(words[1], nullptr, 10);
  void* arguments[] = {&ns};
  Driver d;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction busy = nullptr;
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS || d.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      d.cuCtxSetCurrent(context) != CUDA_SUCCESS || d.cuModuleLoadData(&module, kKernels) != CUDA_SUCCESS ||
      d.cuModuleGetFunction(&busy, module, "tensor_fusion_busy") != CUDA_SUCCESS ||
      d.cuLaunchKernel(busy, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr) != CUDA_SUCCESS)
    return 1;
  ::usleep(static_cast<useconds_t>(std::strtoul(words[2], nullptr, 10) * 1000));
  if (std::strcmp(words[3], "kill") == 0) ::kill(::getpid(), SIGKILL);
  ::_exit(0);
}
