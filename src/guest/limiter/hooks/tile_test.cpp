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
    fake.tile = 0;
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
INSTANTIATE_TEST_SUITE_P(Streams, SparseArray, ::testing::Values(&cuMemMapArrayAsync, &cuMemMapArrayAsync_ptsz),
                         [](const auto& call) { return call.param == &cuMemMapArrayAsync ? "legacy" : "per_thread"; });

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

TEST_P(SparseArray, waits_when_one_list_unmaps_all_there_is) {
  CUarrayMapInfo both[] = {part(CU_MEM_OPERATION_TYPE_MAP, 0), part(CU_MEM_OPERATION_TYPE_MAP, 256)};
  ASSERT_EQ(GetParam()(both, 2, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  for (CUarrayMapInfo& one : both) one.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
  ASSERT_EQ(GetParam()(both, 2, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(fake.waits, 1);
  EXPECT_EQ(fake.charged_at_wait, 2 * kMiB) << "given back before the device had unmapped it";
  EXPECT_EQ(fake.charged(), 0u);
  ASSERT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
}

TEST_P(SparseArray, is_unmapped_by_the_time_the_handle_goes) {
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_MAP, 0)), CUDA_SUCCESS);
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_MAP, 0)), CUDA_SUCCESS);  // the same again: nothing to wait for
  EXPECT_EQ(fake.waits, 0);
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_UNMAP, 0)), CUDA_SUCCESS);
  EXPECT_EQ(fake.waits, 1) << "the release gives the charge back at once";
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
  ASSERT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
}

TEST_P(SparseArray, gives_up_a_region_tile_by_tile) {
  fake.tile = 64;
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_MAP, 0, 256)), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_UNMAP, 192, 64)), CUDA_SUCCESS);
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_UNMAP, 0, 128)), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 2 * kMiB);
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_UNMAP, 128, 64)), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
  ASSERT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
}

TEST_P(SparseArray, gives_up_regions_that_one_call_unmaps_together) {
  fake.tile = 64;
  CUarrayMapInfo both[] = {part(CU_MEM_OPERATION_TYPE_MAP, 0), part(CU_MEM_OPERATION_TYPE_MAP, 256)};
  ASSERT_EQ(GetParam()(both, 2, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_UNMAP, 0, 512)), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
  ASSERT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
}

TEST_P(SparseArray, gives_up_the_tail_of_a_mipmap_in_pieces) {
  fake.tile = 64;
  constexpr std::uint64_t kTile = 64 << 10;
  CUarrayMapInfo tail = part(CU_MEM_OPERATION_TYPE_MAP, 0);
  tail.resourceType = 1;
  tail.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
  tail.subresource.miptail = {0, 0, 2 * kTile};
  ASSERT_EQ(call(tail), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  tail.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
  tail.subresource.miptail = {0, kTile, kTile};
  ASSERT_EQ(call(tail), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 2 * kMiB);
  tail.subresource.miptail = {0, 0, kTile};
  ASSERT_EQ(call(tail), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
  ASSERT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
}

TEST_P(SparseArray, refuses_more_tiles_than_any_device_has) {
  fake.tile = 1;
  CUarrayMapInfo all = part(CU_MEM_OPERATION_TYPE_MAP, 0, ~0u);
  all.subresource.sparseLevel.extentHeight = all.subresource.sparseLevel.extentDepth = ~0u;
  EXPECT_EQ(call(all), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  ASSERT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
}

TEST_P(SparseArray, gives_hundreds_of_tiles_back_with_its_end) {
  fake.tile = 8;
  ASSERT_EQ(call(part(CU_MEM_OPERATION_TYPE_MAP, 0)), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  ASSERT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
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
