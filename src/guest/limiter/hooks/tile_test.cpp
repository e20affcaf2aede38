#include <gtest/gtest.h>

#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/testing/fake_memory.h"

namespace tensor_fusion::guest::limiter {
namespace {

using testing::FakeMemory;
constexpr std::uint64_t kMiB = 1 << 20;

using MapArray = CUresult (*)(CUarrayMapInfo*, unsigned, CUstream);
class SparseArray : public ::testing::TestWithParam<MapArray> {
 protected:
  SparseArray() {
    fake.waits = 0;
    CUDA_ARRAY3D_DESCRIPTOR shape{1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
    EXPECT_EQ(cuArray3DCreate_v2(&array, &shape), CUDA_SUCCESS);
    EXPECT_EQ(fake.charged(), 0u);
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    EXPECT_EQ(cuMemCreate(&memory, 2 * kMiB, &prop, 0), CUDA_SUCCESS);
    EXPECT_EQ(fake.charged(), 2 * kMiB);
  }
  CUarrayMapInfo part(CUmemOperationType operation, unsigned x, unsigned extent = 256) const {
    CUarrayMapInfo info{};
    info.resource.array = array;
    info.subresource.sparseLevel.offsetX = x;
    info.subresource.sparseLevel.extentWidth = extent;
    info.subresource.sparseLevel.extentHeight = 256;
    info.subresource.sparseLevel.extentDepth = 1;
    info.memOperationType = operation;
    info.memHandle.memHandle = operation == CU_MEM_OPERATION_TYPE_MAP ? memory : 0;
    info.deviceBitMask = 1;
    return info;
  }
  CUresult call(CUarrayMapInfo info) { return GetParam()(&info, 1, FakeMemory::stream(1)); }

  FakeMemory& fake = FakeMemory::get();
  CUarray array = nullptr;
  CUmemGenericAllocationHandle memory = 0;
};
INSTANTIATE_TEST_SUITE_P(Streams, SparseArray, ::testing::Values(&cuMemMapArrayAsync, &cuMemMapArrayAsync_ptsz));

TEST_P(SparseArray, keeps_its_memory_charged_after_the_handle_is_released) {
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_MAP, 0)), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 2 * kMiB);
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_UNMAP, 0)), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
  EXPECT_EQ(fake.waits, 1) << "the memory is there until the device has unmapped it";
  ASSERT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
}

TEST_P(SparseArray, counts_each_of_its_parts) {
  CUarrayMapInfo both[] = {part(CU_MEM_OPERATION_TYPE_MAP, 0), part(CU_MEM_OPERATION_TYPE_MAP, 256)};
  ASSERT_EQ(GetParam()(both, 2, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_MAP, 256)), CUDA_SUCCESS);  // anew: still one
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_UNMAP, 256)), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 2 * kMiB);
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_UNMAP, 0, 64)), CUDA_SUCCESS);  // less than the part: some of it stays
  EXPECT_EQ(fake.charged(), 2 * kMiB);
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_UNMAP, 0, 512)), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
  ASSERT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
}

TEST_P(SparseArray, gives_all_back_with_its_end) {
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_MAP, 0)), CUDA_SUCCESS);
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_MAP, 512)), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 2 * kMiB);
  ASSERT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
