// Every exported row of the driver, called with nothing but zeros: no row may crash on that, and those that refuse
// whatever they are given are the ones documented as missing (docs/internals/fidelity.md), no others.
#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "contract/cuda_symbols.h"
#include "sim/cuda/handle.h"
#include "sim/cuda/symbol_address.h"
#include "sim/cuda/test_context.h"

namespace tensor_fusion::sim::cuda {

using Rows = Cuda;

namespace {

// Beginnings of names; `=` in front: the whole name.
constexpr std::array kMissing = {
    // other interfaces of the driver: graphics, video, nodes for the semaphores of other libraries
    "cuGraphics", "cuGL", "cuEGL", "cuVDPAU", "=cuEventCreateFromEGLSync", "cuGraphAddExternalSemaphores",
    "cuGraphExternalSemaphores", "cuGraphExecExternalSemaphores", "=cuDeviceGetNvSciSyncAttributes",
    // texture and surface references, from before objects
    "cuTexRef", "cuSurfRef", "=cuModuleGetTexRef", "=cuModuleGetSurfRef", "=cuParamSetTexRef",
    // hardware that these machines do not have, and an identity of another operating system
    "=cuDeviceGetLuid", "=cuFlushGPUDirectRDMAWrites", "=cuLaunchCooperativeKernelMultiDevice",
    // notifications, the driver's own log
    "=cuDeviceRegisterAsyncNotification", "=cuDeviceUnregisterAsyncNotification", "cuLogs",
    // what drivers since CUDA 12 refuse, too
    "=cuProfilerInitialize",
    // 32-bit device addresses
    "=cuModuleGetGlobal", "=cuMemHostGetDevicePointer"};

bool documented_as_missing(std::string_view symbol) {
  return std::any_of(kMissing.begin(), kMissing.end(), [&](std::string_view each) {
    return each.front() == '=' ? symbol == each.substr(1) : symbol.starts_with(each);
  });
}

using AnyCall = CUresult (*)(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                             std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                             std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t);

}  // namespace

TEST_F(Rows, live_through_zeros_and_refuse_only_what_is_documented_as_missing) {
  for (const CUcontext current : {context, CUcontext{nullptr}}) {
    std::vector<std::string_view> missing, refusing;
    for (std::size_t row = 0; row < kCudaSymbolCount; ++row) {
      const std::string_view symbol = kCudaSymbols[row].exported;
      ASSERT_OK(cuCtxSetCurrent(current));
      const auto call = reinterpret_cast<AnyCall>(symbol_address(row));
      SCOPED_TRACE(symbol);
      const CUresult result = call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
      if (documented_as_missing(symbol)) missing.push_back(symbol);
      if (result == CUDA_ERROR_NOT_SUPPORTED) refusing.push_back(symbol);
    }
    EXPECT_EQ(refusing, missing);
  }
  ASSERT_OK(cuCtxSetCurrent(context));
  CUgraph begun = nullptr;  // the twin that begins a capture means this thread's stream by zero
  (void)cuStreamEndCapture(as_handle<CUstream>(kStreamPerThread), &begun);
  EXPECT_OK(launch(add, 1));
  EXPECT_EQ(read_word(), 1U);
}

}  // namespace tensor_fusion::sim::cuda
