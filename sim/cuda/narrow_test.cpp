// Entry points with addresses of 32 bits.
#include <array>

#include "sim/cuda/test_context.h"

extern "C" {
using namespace tensor_fusion::cuda;
CUresult cuMemAlloc(CUdeviceptr_v1*, unsigned);
CUresult cuMemAllocPitch(CUdeviceptr_v1*, unsigned*, unsigned, unsigned, unsigned);
CUresult cuMemFree(CUdeviceptr_v1);
CUresult cuMemGetAddressRange(CUdeviceptr_v1*, unsigned*, CUdeviceptr_v1);
CUresult cuMemcpyHtoD(CUdeviceptr_v1, const void*, unsigned);
CUresult cuMemcpyDtoHAsync(void*, CUdeviceptr_v1, unsigned, CUstream);
CUresult cuMemsetD32(CUdeviceptr_v1, unsigned, unsigned);
CUresult cuMemcpy2D(const void*);
}

namespace tensor_fusion::sim::cuda {

using Narrow = Cuda;

TEST_F(Narrow, memory_has_addresses_that_fit_and_is_charged_like_any_other) {
  const std::size_t before = free_bytes();
  CUdeviceptr_v1 at = 0;
  ASSERT_OK(cuMemAlloc(&at, 1000));
  EXPECT_NE(at, 0U);
  EXPECT_EQ(before - free_bytes(), 1024U);
  CUdeviceptr_v1 base = 0;
  unsigned bytes = 0;
  EXPECT_OK(cuMemGetAddressRange(&base, &bytes, at + 10));
  EXPECT_EQ(base, at);
  EXPECT_EQ(bytes, 1000U);
  CUipcMemHandle handle{};
  EXPECT_EQ(cuIpcGetMemHandle(&handle, at), CUDA_ERROR_INVALID_VALUE);  // of this process alone
  EXPECT_OK(cuMemFree(at));
  EXPECT_EQ(cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(cuMemAlloc(nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAlloc(&at, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Narrow, memory_is_written_by_kernels_copies_and_fills) {
  CUdeviceptr_v1 at = 0;
  ASSERT_OK(cuMemAlloc(&at, 16));
  EXPECT_OK(cuMemsetD32(at, 3, 4));
  const std::uint32_t five = 5;
  EXPECT_OK(cuMemcpyHtoD(at + 4, &five, 4));
  CUdeviceptr wide = at + 8;
  std::uint32_t value = 7;
  void* params[] = {&wide, &value};
  EXPECT_OK(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  std::array<std::uint32_t, 4> out{};
  EXPECT_OK(cuMemcpyDtoHAsync(out.data(), at, 16, nullptr));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(out, (std::array<std::uint32_t, 4>{3, 5, 7, 3}));
  EXPECT_OK(cuMemFree(at));
}

TEST_F(Narrow, rows_are_copied_as_their_older_description_says) {
  CUdeviceptr_v1 at = 0;
  unsigned pitch = 0;
  ASSERT_OK(cuMemAllocPitch(&at, &pitch, 8, 3, 4));
  EXPECT_EQ(pitch, 512U);
  const std::array<std::uint32_t, 6> in{1, 2, 3, 4, 5, 6};
  struct {
    unsigned srcXInBytes = 0, srcY = 0;
    CUmemorytype srcMemoryType = CU_MEMORYTYPE_HOST;
    const void* srcHost = nullptr;
    CUdeviceptr_v1 srcDevice = 0;
    CUarray srcArray = nullptr;
    unsigned srcPitch = 8, dstXInBytes = 0, dstY = 0;
    CUmemorytype dstMemoryType = CU_MEMORYTYPE_DEVICE;
    void* dstHost = nullptr;
    CUdeviceptr_v1 dstDevice = 0;
    CUarray dstArray = nullptr;
    unsigned dstPitch = 0, WidthInBytes = 8, Height = 3;
  } asked;
  asked.srcHost = in.data(), asked.dstDevice = at, asked.dstPitch = pitch;
  EXPECT_OK(cuMemcpy2D(&asked));
  std::uint32_t last = 0;
  EXPECT_OK(cuMemcpyDtoHAsync(&last, at + 2 * pitch + 4, 4, nullptr));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(last, 6U);
  EXPECT_OK(cuMemFree(at));
}

}  // namespace tensor_fusion::sim::cuda
