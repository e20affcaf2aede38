#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "sim/cuda/test_context.h"

namespace tensor_fusion::sim::cuda {

// Byte by byte: what was handed over comes back as it was.
template <typename T>
bool same(const T& a, const T& b) {
  const auto* const first = reinterpret_cast<const unsigned char*>(&a);
  return std::equal(first, first + sizeof a, reinterpret_cast<const unsigned char*>(&b));
}

class Arrays : public Cuda {
 protected:
  static constexpr std::size_t kWidth = 16, kHeight = 8, kDepth = 4, kFloats = kWidth * kHeight * kDepth;
  static constexpr CUDA_ARRAY3D_DESCRIPTOR kShape{kWidth, kHeight, kDepth, CU_AD_FORMAT_FLOAT, 1, 0};

  Arrays() : from_(kFloats), to_(kFloats) { std::iota(from_.begin(), from_.end(), 1.0F); }
  static CUDA_MEMCPY3D whole() {
    CUDA_MEMCPY3D copy{};
    copy.WidthInBytes = kWidth * 4, copy.Height = kHeight, copy.Depth = kDepth;
    return copy;
  }
  CUresult write(CUarray array) {
    auto copy = whole();
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = from_.data();
    copy.srcPitch = kWidth * 4, copy.srcHeight = kHeight;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY, copy.dstArray = array;
    return cuMemcpy3D_v2(&copy);
  }
  CUDA_MEMCPY3D reading(CUarray array) {
    auto copy = whole();
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY, copy.srcArray = array;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = to_.data();
    copy.dstPitch = kWidth * 4, copy.dstHeight = kHeight;
    return copy;
  }
  CUarray make(const CUDA_ARRAY3D_DESCRIPTOR& shape = kShape) {
    CUarray array = nullptr;
    EXPECT_OK(cuArray3DCreate_v2(&array, &shape));
    return array;
  }
  std::vector<float> from_, to_;
};

TEST_F(Arrays, of_three_dimensions_carry_every_byte_through_copies) {
  const std::size_t before = free_bytes();
  const CUarray array = make();
  EXPECT_EQ(before - free_bytes(), kFloats * 4);
  CUDA_ARRAY3D_DESCRIPTOR told{};
  EXPECT_OK(cuArray3DGetDescriptor_v2(&told, array));
  EXPECT_TRUE(same(told, kShape));
  EXPECT_OK(write(array));
  CUstream stream = nullptr;
  ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto all = reading(array);
  EXPECT_OK(cuMemcpy3DAsync_v2(&all, stream));
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(from_, to_);
  auto part = reading(array);  // one value: x 3, y 2, slice 1
  part.srcXInBytes = 12, part.srcY = 2, part.srcZ = 1;
  part.WidthInBytes = 4, part.Height = part.Depth = 1;
  EXPECT_OK(cuMemcpy3D_v2(&part));
  EXPECT_EQ(to_[0], from_[kWidth * kHeight + 2 * kWidth + 3]);
  part.srcZ = kDepth;
  EXPECT_EQ(cuMemcpy3D_v2(&part), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuArrayDestroy(array));
  EXPECT_EQ(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMemcpy3D_v2(&all), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuArray3DGetDescriptor_v2(&told, array), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(Arrays, with_levels_halve_and_are_written_level_by_level) {
  const std::size_t before = free_bytes();
  CUmipmappedArray mipmap = nullptr;
  ASSERT_OK(cuMipmappedArrayCreate(&mipmap, &kShape, 3));
  CUarray level = nullptr;
  for (unsigned i = 0; i < 3; ++i) {
    ASSERT_OK(cuMipmappedArrayGetLevel(&level, mipmap, i));
    CUDA_ARRAY3D_DESCRIPTOR told{};
    EXPECT_OK(cuArray3DGetDescriptor_v2(&told, level));
    EXPECT_EQ(told.Width, kWidth >> i);
    EXPECT_EQ(told.Height, kHeight >> i);
    EXPECT_EQ(told.Depth, kDepth >> i);
    if (i == 0) {
      EXPECT_OK(write(level));
      const auto all = reading(level);
      EXPECT_OK(cuMemcpy3D_v2(&all));
      EXPECT_EQ(from_, to_);
    }
  }
  EXPECT_EQ(cuMipmappedArrayGetLevel(&level, mipmap, 3), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);  // a level is not to be destroyed alone
  EXPECT_OK(cuMipmappedArrayDestroy(mipmap));
  EXPECT_EQ(cuMipmappedArrayDestroy(mipmap), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(Arrays, move_between_two_cards) {
  const CUarray here = make();
  EXPECT_OK(write(here));
  CUcontext second = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&second, 0, 1));
  const CUarray there = make();
  CUDA_MEMCPY3D_PEER copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = here, copy.srcContext = context, copy.dstArray = there, copy.dstContext = second;
  copy.WidthInBytes = kWidth * 4, copy.Height = kHeight, copy.Depth = kDepth;
  EXPECT_OK(cuMemcpy3DPeer(&copy));
  EXPECT_OK(cuMemcpy3DPeerAsync(&copy, nullptr));
  const auto all = reading(there);
  EXPECT_OK(cuMemcpy3D_v2(&all));
  EXPECT_EQ(from_, to_);
  copy.dstContext = reinterpret_cast<CUcontext>(module);
  EXPECT_EQ(cuMemcpy3DPeer(&copy), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_OK(cuCtxDestroy_v2(second));
}

TEST_F(Arrays, and_flat_memory_go_in_batches) {
  CUstream stream = nullptr;
  ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr flat = 0;
  ASSERT_OK(cuMemAlloc_v2(&flat, kFloats * 4));
  const auto source = reinterpret_cast<CUdeviceptr>(from_.data()), target = reinterpret_cast<CUdeviceptr>(to_.data());
  CUdeviceptr to[] = {flat, flat + kFloats * 2}, from[] = {source, source + kFloats * 2};
  std::size_t bytes[] = {kFloats * 2, kFloats * 2}, starts[] = {0}, failed = 0;
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = 1;
  EXPECT_OK(cuMemcpyBatchAsync_v2(to, from, bytes, 2, &attributes, starts, 1, stream));
  const CUarray array = make();
  CUDA_MEMCPY3D_BATCH_OP operation{};
  operation.src.type = 1, operation.src.op.ptr = {flat, kWidth, kHeight, {}};
  operation.dst.type = 2, operation.dst.op.array.array = array;
  operation.extent = {kWidth, kHeight, kDepth};
  operation.srcAccessOrder = 1;
  EXPECT_OK(cuMemcpy3DBatchAsync_v2(1, &operation, 0, stream));
  EXPECT_OK(cuStreamSynchronize(stream));
  const auto all = reading(array);
  EXPECT_OK(cuMemcpy3D_v2(&all));
  EXPECT_EQ(from_, to_);
  to[1] = 0;
  from[0] = flat, to[0] = target;
  EXPECT_EQ(cuMemcpyBatchAsync(to, from, bytes, 2, &attributes, starts, 1, &failed, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(failed, 1U);
  EXPECT_EQ(cuMemcpyBatchAsync_v2(to, from, bytes, 1, &attributes, starts, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Arrays, of_shapes_that_no_device_has_are_refused) {
  CUarray array = nullptr;
  for (const CUDA_ARRAY3D_DESCRIPTOR& shape : std::vector<CUDA_ARRAY3D_DESCRIPTOR>{
           {0, 1, 1, CU_AD_FORMAT_FLOAT, 1, 0},
           {16, 16, 16, CU_AD_FORMAT_FLOAT, 3, 0},
           {16, 16, 16, static_cast<CUarray_format>(0x77), 1, 0},
           {16, 0, 16, CU_AD_FORMAT_FLOAT, 1, 0},
           {16, 16, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP},
           {1 << 20, 16, 16, CU_AD_FORMAT_FLOAT, 1, 0},
       })
    EXPECT_EQ(cuArray3DCreate_v2(&array, &shape), CUDA_ERROR_INVALID_VALUE);
}

class Textures : public Arrays {
 protected:
  static CUDA_RESOURCE_DESC of_array(CUarray array) {
    CUDA_RESOURCE_DESC resource{};
    resource.res.word = reinterpret_cast<std::uintptr_t>(array);
    return resource;
  }
  // Memory without an array: address, format, channels, then what the kind has.
  static CUDA_RESOURCE_DESC of_memory(int type, CUdeviceptr address, CUarray_format format, unsigned channels,
                                      std::initializer_list<std::size_t> sizes) {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = type;
    auto* at = reinterpret_cast<char*>(&resource.res);
    std::memcpy(at, &address, 8);
    std::memcpy(at + 8, &format, 4);
    std::memcpy(at + 12, &channels, 4);
    std::memcpy(at + 16, sizes.begin(), sizes.size() * 8);
    return resource;
  }
  CUresult make_texture(const CUDA_RESOURCE_DESC& resource) {
    return cuTexObjectCreate(&texture_, &resource, sampling_, nullptr);
  }
  CUtexObject texture_ = 0;
  unsigned char sampling_[104] = {1, 2, 3};
};

TEST_F(Textures, tell_what_they_were_made_of) {
  const CUarray array = make();
  const auto resource = of_array(array);
  unsigned char view[112] = {4, 5, 6}, told[112] = {};
  ASSERT_OK(cuTexObjectCreate(&texture_, &resource, sampling_, view));
  CUDA_RESOURCE_DESC again{};
  EXPECT_OK(cuTexObjectGetResourceDesc(&again, texture_));
  EXPECT_TRUE(same(again, resource));
  EXPECT_OK(cuTexObjectGetTextureDesc(told, texture_));
  EXPECT_EQ(std::memcmp(told, sampling_, sizeof sampling_), 0);
  EXPECT_OK(cuTexObjectGetResourceViewDesc(told, texture_));
  EXPECT_EQ(std::memcmp(told, view, sizeof view), 0);
  EXPECT_OK(cuTexObjectDestroy(texture_));
  EXPECT_EQ(cuTexObjectDestroy(texture_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuTexObjectGetResourceDesc(&again, texture_), CUDA_ERROR_INVALID_VALUE);
  ASSERT_OK(make_texture(resource));
  EXPECT_EQ(cuTexObjectGetResourceViewDesc(told, texture_), CUDA_ERROR_INVALID_VALUE);  // made without one
}

TEST_F(Textures, of_what_is_no_memory_of_theirs_are_refused) {
  CUdeviceptr rows = 0;
  std::size_t pitch = 0;
  ASSERT_OK(cuMemAllocPitch_v2(&rows, &pitch, 256, 16, 4));
  constexpr auto kFloat = CU_AD_FORMAT_FLOAT;
  EXPECT_OK(make_texture(of_memory(2, rows, kFloat, 1, {256})));
  EXPECT_OK(make_texture(of_memory(3, rows, kFloat, 1, {64, 16, pitch})));
  EXPECT_EQ(make_texture(of_memory(2, rows + 4, kFloat, 1, {256})), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(make_texture(of_memory(2, rows, kFloat, 3, {256})), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(make_texture(of_memory(2, rows, kFloat, 1, {1 << 20})), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(make_texture(of_memory(2, 512, kFloat, 1, {256})), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(make_texture(of_memory(3, rows, kFloat, 1, {64, 16, 260})), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(make_texture(of_memory(3, rows, kFloat, 1, {64, 17, pitch})), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(make_texture(of_memory(4, rows, kFloat, 1, {64})), CUDA_ERROR_INVALID_VALUE);
  const CUarray array = make();
  CUmipmappedArray mipmap = nullptr;
  ASSERT_OK(cuMipmappedArrayCreate(&mipmap, &kShape, 2));
  auto of_levels = of_array(reinterpret_cast<CUarray>(mipmap));
  EXPECT_EQ(make_texture(of_levels), CUDA_ERROR_INVALID_VALUE);  // named as an array
  of_levels.resType = 1;
  EXPECT_OK(make_texture(of_levels));
  EXPECT_OK(cuArrayDestroy(array));
  EXPECT_EQ(make_texture(of_array(array)), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Textures, for_writing_want_an_array_made_for_it) {
  CUsurfObject surface = 0;
  const auto plain = of_array(make());
  EXPECT_EQ(cuSurfObjectCreate(&surface, &plain), CUDA_ERROR_INVALID_VALUE);
  auto shape = kShape;
  shape.Flags = CUDA_ARRAY3D_SURFACE_LDST;
  const auto good = of_array(make(shape));
  ASSERT_OK(cuSurfObjectCreate(&surface, &good));
  CUDA_RESOURCE_DESC told{};
  EXPECT_OK(cuSurfObjectGetResourceDesc(&told, surface));
  EXPECT_TRUE(same(told, good));
  EXPECT_OK(cuSurfObjectDestroy(surface));
  EXPECT_EQ(cuSurfObjectDestroy(surface), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace tensor_fusion::sim::cuda
