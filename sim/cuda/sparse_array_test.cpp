// Arrays that get their memory tile by tile.
#include <vector>

#include "sim/cuda/test_context.h"

namespace tensor_fusion::cuda {
extern "C" {
CUresult cuMemMapArrayAsync(const CUarrayMapInfo*, unsigned, CUstream);
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray);
CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUmipmappedArray);
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray, CUdevice);
CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUmipmappedArray, CUdevice);
CUresult cuMipmappedArrayGetLevel(CUarray*, CUmipmappedArray, unsigned);
}
}  // namespace tensor_fusion::cuda

namespace tensor_fusion::sim::cuda {
namespace {

constexpr std::size_t kUnit = std::size_t{2} << 20;
constexpr unsigned kTile = 128;  // of floats, in both directions
constexpr CUDA_ARRAY3D_DESCRIPTOR kShape{512, 256, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};

class Sparse : public Cuda {
 protected:
  static CUmemGenericAllocationHandle memory_for_tiles(unsigned short usage = 1) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.allocFlags.usage = usage;
    CUmemGenericAllocationHandle memory = 0;
    EXPECT_OK(cuMemCreate(&memory, kUnit, &properties, 0));
    return memory;
  }
  static CUarrayMapInfo info(CUarray array, CUmemGenericAllocationHandle memory, unsigned x, unsigned width) {
    CUarrayMapInfo all{};
    all.resource.array = array;
    all.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
    auto& level = all.subresource.sparseLevel;
    level = {0, 0, x, 0, 0, width, kTile, 1};
    all.memOperationType = memory != 0 ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
    all.memHandle.memHandle = memory;
    all.deviceBitMask = 1;
    return all;
  }
};

}  // namespace

TEST_F(Sparse, arrays_tell_their_tiles_and_what_would_fill_them) {
  CUarray array = nullptr;
  const std::size_t before = free_bytes();
  ASSERT_OK(cuArray3DCreate_v2(&array, &kShape));
  EXPECT_EQ(free_bytes(), before);
  CUDA_ARRAY_SPARSE_PROPERTIES tiles{};
  EXPECT_OK(cuArrayGetSparseProperties(&tiles, array));
  EXPECT_EQ(tiles.tileExtent.width, kTile);
  EXPECT_EQ(tiles.tileExtent.height, kTile);
  EXPECT_EQ(tiles.tileExtent.depth, 1U);
  CUDA_ARRAY_MEMORY_REQUIREMENTS memory{};
  EXPECT_OK(cuArrayGetMemoryRequirements(&memory, array, 0));
  EXPECT_EQ(memory.size, 8U * 65536);
  EXPECT_EQ(memory.alignment, 65536U);
  EXPECT_OK(cuArrayDestroy(array));

  CUmipmappedArray mipmap = nullptr;
  ASSERT_OK(cuMipmappedArrayCreate(&mipmap, &kShape, 10));  // 512×256, 256×128, then too small for tiles
  EXPECT_OK(cuMipmappedArrayGetSparseProperties(&tiles, mipmap));
  EXPECT_EQ(tiles.miptailFirstLevel, 2U);
  EXPECT_EQ(tiles.miptailSize, 65536U);
  EXPECT_OK(cuMipmappedArrayGetMemoryRequirements(&memory, mipmap, 0));
  EXPECT_EQ(memory.size, (8U + 2 + 1) * 65536);
  EXPECT_OK(cuMipmappedArrayDestroy(mipmap));
  const CUDA_ARRAY3D_DESCRIPTOR line{512, 0, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
  EXPECT_EQ(cuArray3DCreate_v2(&array, &line), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Sparse, tiles_hold_what_is_written_while_memory_is_behind_them_and_keep_it_alive) {
  CUarray array = nullptr;
  ASSERT_OK(cuArray3DCreate_v2(&array, &kShape));
  const std::size_t before = free_bytes();
  const auto memory = memory_for_tiles();
  const auto map = info(array, memory, kTile, 2 * kTile);
  ASSERT_OK(cuMemMapArrayAsync(&map, 1, nullptr));
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(free_bytes(), before - kUnit);
  const std::uint32_t value = 77;
  std::uint32_t seen = 0;
  EXPECT_OK(cuMemcpyHtoA_v2(array, kTile * 4, &value, 4));
  EXPECT_OK(cuMemcpyAtoH_v2(&seen, array, kTile * 4, 4));
  EXPECT_EQ(seen, 77U);
  const auto first = info(array, 0, kTile, kTile), second = info(array, 0, 2 * kTile, kTile);
  ASSERT_OK(cuMemMapArrayAsync(&second, 1, nullptr));
  EXPECT_EQ(free_bytes(), before - kUnit);  // the first tile still has some of it
  EXPECT_OK(cuMemcpyAtoH_v2(&seen, array, kTile * 4, 4));
  EXPECT_EQ(seen, 77U);
  ASSERT_OK(cuMemMapArrayAsync(&first, 1, nullptr));
  EXPECT_OK(cuMemcpyAtoH_v2(&seen, array, kTile * 4, 4));
  EXPECT_EQ(seen, 0U);
  EXPECT_OK(cuArrayDestroy(array));
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(Sparse, mappings_happen_in_stream_order) {
  CUarray array = nullptr;
  CUstream stream = nullptr;
  ASSERT_OK(cuArray3DCreate_v2(&array, &kShape));
  ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto memory = memory_for_tiles();
  const auto map = info(array, memory, 0, kTile);
  const auto unmap = info(array, 0, 0, kTile);
  ASSERT_OK(cuMemMapArrayAsync(&map, 1, nullptr));
  const std::uint32_t value = 5;
  std::uint32_t seen = 0;
  EXPECT_OK(cuMemcpyHtoA_v2(array, 0, &value, 4));
  EXPECT_OK(cuStreamWaitValue32_v2(stream, word, 1, 0));
  EXPECT_OK(cuMemMapArrayAsync(&unmap, 1, stream));
  EXPECT_OK(cuMemcpyAtoH_v2(&seen, array, 0, 4));
  EXPECT_EQ(seen, 5U);
  EXPECT_OK(cuMemsetD32_v2(word, 1, 1));
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_OK(cuMemcpyAtoH_v2(&seen, array, 0, 4));
  EXPECT_EQ(seen, 0U);
  EXPECT_OK(cuMemRelease(memory));
}

TEST_F(Sparse, tails_are_mapped_as_one_and_misuse_is_refused) {
  CUmipmappedArray mipmap = nullptr;
  CUarray plain = nullptr, small = nullptr;
  ASSERT_OK(cuMipmappedArrayCreate(&mipmap, &kShape, 10));
  ASSERT_OK(cuMipmappedArrayGetLevel(&small, mipmap, 3));
  const std::size_t before = free_bytes();
  const auto memory = memory_for_tiles();
  CUarrayMapInfo tail{};
  tail.resourceType = 1;
  tail.resource.mipmap = mipmap;
  tail.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
  tail.subresource.miptail = {0, 0, 65536};
  tail.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
  tail.memHandle.memHandle = memory;
  tail.deviceBitMask = 1;
  ASSERT_OK(cuMemMapArrayAsync(&tail, 1, nullptr));
  const std::uint32_t value = 9;
  std::uint32_t seen = 0;
  EXPECT_OK(cuMemcpyHtoA_v2(small, 0, &value, 4));
  EXPECT_OK(cuMemcpyAtoH_v2(&seen, small, 0, 4));
  EXPECT_EQ(seen, 9U);
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(free_bytes(), before - kUnit);
  tail.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
  tail.memHandle.memHandle = 0;
  ASSERT_OK(cuMemMapArrayAsync(&tail, 1, nullptr));
  EXPECT_EQ(free_bytes(), before);
  EXPECT_OK(cuMemcpyAtoH_v2(&seen, small, 0, 4));
  EXPECT_EQ(seen, 0U);

  const auto refused = [](CUarrayMapInfo what) { return cuMemMapArrayAsync(&what, 1, nullptr); };
  CUarray array = nullptr;
  ASSERT_OK(cuArray3DCreate_v2(&array, &kShape));
  CUDA_ARRAY3D_DESCRIPTOR dense = kShape;
  dense.Flags = 0;
  ASSERT_OK(cuArray3DCreate_v2(&plain, &dense));
  const auto good = memory_for_tiles(), other = memory_for_tiles(0);
  EXPECT_EQ(refused(info(plain, good, 0, kTile)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused(info(nullptr, good, 0, kTile)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(refused(info(array, other, 0, kTile)), CUDA_ERROR_INVALID_VALUE);  // not for tiles
  EXPECT_EQ(refused(info(array, good, 1, kTile)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused(info(array, good, 0, kTile - 1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused(info(array, good, 512, kTile)), CUDA_ERROR_INVALID_VALUE);
  CUarrayMapInfo far = info(array, good, 0, kTile);
  far.offset = kUnit;
  EXPECT_EQ(refused(far), CUDA_ERROR_INVALID_VALUE);
  far.offset = 0;
  far.deviceBitMask = 2;
  EXPECT_EQ(refused(far), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace tensor_fusion::sim::cuda
