#include <gtest/gtest.h>

#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/testing/fake_memory.h"

namespace tensor_fusion::guest::limiter {
namespace {

using testing::FakeMemory;
constexpr std::size_t kMiB = 1 << 20;

TEST(ContextLimit, charges_what_kernels_may_take_beyond_a_new_context) {
  FakeMemory& fake = FakeMemory::get();
  for (const CUlimit limit : {CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE}) {
    fake.limits[limit] = 8 * kMiB;
    ASSERT_EQ(cuCtxSetLimit(limit, 4 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(fake.charged(), 0u);
    ASSERT_EQ(cuCtxSetLimit(limit, 108 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(fake.charged(), 100 * kMiB);
    EXPECT_EQ(cuCtxSetLimit(limit, 2 * FakeMemory::kLimit), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(fake.limits[limit], 108 * kMiB) << "the driver was asked all the same";
    EXPECT_EQ(fake.charged(), 100 * kMiB);
    ASSERT_EQ(cuCtxSetLimit(limit, 18 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(fake.charged(), 10 * kMiB);
    ASSERT_EQ(cuCtxSetLimit(limit, 8 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(fake.charged(), 0u);
  }
  ASSERT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 64 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
}

TEST(Context, gives_back_with_its_end_what_was_mapped_into_any_of_its_arrays) {
  FakeMemory& fake = FakeMemory::get();
  fake.tile = 0;
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  for (int i = 0; i < 200; ++i) {
    CUarray array = nullptr;
    const CUDA_ARRAY3D_DESCRIPTOR shape{256, 256, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
    ASSERT_EQ(cuArray3DCreate_v2(&array, &shape), CUDA_SUCCESS);
    CUmemAllocationProp prop{};
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle memory = 0;
    ASSERT_EQ(cuMemCreate(&memory, kMiB, &prop, 0), CUDA_SUCCESS);
    CUarrayMapInfo info{};
    info.resource.array = array;
    info.subresource.sparseLevel.extentWidth = info.subresource.sparseLevel.extentHeight = 256;
    info.subresource.sparseLevel.extentDepth = 1;
    info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    info.memHandle.memHandle = memory;
    ASSERT_EQ(cuMemMapArrayAsync(&info, 1, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  }
  EXPECT_EQ(fake.charged(), 200 * kMiB);
  ASSERT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
