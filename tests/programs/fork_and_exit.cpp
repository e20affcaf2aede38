// CUDA cannot be used in a child forked after cuInit: every call there says so, and the parent goes on. At the end
// calls are made while the process is being torn down, after static destructors of this program, as runtime libraries
// do. Exit 0: all as it should be.
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

using namespace tensor_fusion::programs;

namespace {
Driver* driver = nullptr;
CUmodule module = nullptr;

struct LateCaller {
  ~LateCaller() {
    if (driver == nullptr) return;
    driver->cuModuleUnload(module);
    driver->cuCtxSynchronize();
    driver->cuDevicePrimaryCtxRelease_v2(0);
    CUcontext current = nullptr;
    driver->cuCtxGetCurrent(&current);
  }
} late_caller;
}  // namespace

int main() {
  driver = new Driver;
  Driver& d = *driver;
  CUcontext context = nullptr;
  if (d.library == nullptr) return driver = nullptr, std::fprintf(stderr, "no libcuda.so.1 here\n"), 77;
  int count = 0;
  if (d.cuDeviceGetCount(&count) != CUDA_ERROR_NOT_INITIALIZED)
    return std::fprintf(stderr, "usable before cuInit\n"), 1;
  if (d.cuInit(0) != CUDA_SUCCESS) return driver = nullptr, std::fprintf(stderr, "no CUDA device here\n"), 77;
  if (d.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || d.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
      d.cuModuleLoadData(&module, kKernels) != CUDA_SUCCESS)
    return 1;
  const pid_t pid = ::fork();
  if (pid == 0) {
    CUdeviceptr p = 0;
    const bool refused = d.cuMemAlloc_v2(&p, 4) == CUDA_ERROR_NOT_INITIALIZED &&
                         d.cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                         d.cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED;
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  CUfunction nothing = nullptr;
  const bool parent = d.cuModuleGetFunction(&nothing, module, "nothing") == CUDA_SUCCESS &&
                      d.cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_SUCCESS &&
                      d.cuCtxSynchronize() == CUDA_SUCCESS;
  const bool child = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  Line("fork_and_exit", parent && child ? "ok" : "wrong").number("parent", parent).number("child", child);
  return parent && child ? 0 : 1;
}
