// Arrays and mipmapped arrays: charged by their extent before the driver lays them out.
#include "guest/limiter/hooks/charge.h"
#include "guest/limiter/hooks/physical.h"

namespace tensor_fusion::guest::limiter {
namespace {

std::uint64_t channel_bytes(int format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    default:
      return 4;  // 32 bits, and an upper bound for the packed formats
  }
}

struct Extent {
  std::uint64_t width, height, depth, channels;
  int format;
  unsigned flags;
};

// Height and depth are 0 for arrays of fewer dimensions.
std::uint64_t array_bytes(const Extent& extent, unsigned levels) {
  // Memory comes later, by mapping: nothing is taken now.
  if ((extent.flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) return 0;
  std::uint64_t width = extent.width;
  std::uint64_t height = extent.height == 0 ? 1 : extent.height;
  std::uint64_t depth = extent.depth == 0 ? 1 : extent.depth;
  const std::uint64_t element = channel_bytes(extent.format) * (extent.channels == 0 ? 1 : extent.channels);
  const bool layers = (extent.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  std::uint64_t total = 0;
  for (unsigned level = 0; level < levels && level < 64; ++level) {
    std::uint64_t bytes;
    if (__builtin_mul_overflow(width, height, &bytes) || __builtin_mul_overflow(bytes, depth, &bytes) ||
        __builtin_mul_overflow(bytes, element, &bytes) || __builtin_add_overflow(total, bytes, &total))
      return ~std::uint64_t{0};
    width = width > 1 ? width / 2 : 1;
    height = height > 1 ? height / 2 : 1;
    if (!layers) depth = depth > 1 ? depth / 2 : 1;
  }
  return rounded(total);
}

template <class Descriptor>
Extent extent_of(const Descriptor& descriptor) {
  Extent extent{descriptor.Width, descriptor.Height, 0, descriptor.NumChannels, descriptor.Format, 0};
  if constexpr (requires { descriptor.Depth; }) {
    extent.depth = descriptor.Depth;
    extent.flags = descriptor.Flags;
  }
  return extent;
}

template <auto Member, class Descriptor>
CUresult create(CUarray* array, const Descriptor* descriptor) {
  Device* device = current_device();
  if (device == nullptr || array == nullptr || descriptor == nullptr)
    return must_refuse() ? refusal() : real<Member>()(array, descriptor);
  const std::uint64_t bytes = array_bytes(extent_of(*descriptor), 1);
  return charged(
      *device, bytes, [&] { return real<Member>()(array, descriptor); },
      [&] {
        Holding holding;
        holding.kind = Kind::array;
        holding.key = reinterpret_cast<std::uint64_t>(*array);
        return holding;
      },
      [&] { TF_REAL(cuArrayDestroy)(*array); });
}

}  // namespace

TF_ENTRY(cuArrayCreate, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR_v1* descriptor)) {
  return create<&Driver::cuArrayCreate>(array, descriptor);
}
TF_ENTRY(cuArrayCreate_v2, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR* descriptor)) {
  return create<&Driver::cuArrayCreate_v2>(array, descriptor);
}
TF_ENTRY(cuArray3DCreate, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR_v1* descriptor)) {
  return create<&Driver::cuArray3DCreate>(array, descriptor);
}
TF_ENTRY(cuArray3DCreate_v2, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor)) {
  return create<&Driver::cuArray3DCreate_v2>(array, descriptor);
}
TF_ENTRY(cuArrayDestroy, (CUarray array)) {
  const CUresult result =
      discharged(Kind::array, reinterpret_cast<std::uint64_t>(array), [&] { return TF_REAL(cuArrayDestroy)(array); });
  if (result == CUDA_SUCCESS) forget_tiles(reinterpret_cast<std::uint64_t>(array));
  return result;
}
TF_ENTRY(cuMipmappedArrayCreate,
         (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor, unsigned levels)) {
  Device* device = current_device();
  if (device == nullptr || array == nullptr || descriptor == nullptr)
    return TF_FORWARD(cuMipmappedArrayCreate, array, descriptor, levels);
  return charged(
      *device, array_bytes(extent_of(*descriptor), levels),
      [&] { return TF_REAL(cuMipmappedArrayCreate)(array, descriptor, levels); },
      [&] {
        Holding holding;
        holding.kind = Kind::mipmap;
        holding.key = reinterpret_cast<std::uint64_t>(*array);
        return holding;
      },
      [&] { TF_REAL(cuMipmappedArrayDestroy)(*array); });
}
TF_ENTRY(cuMipmappedArrayDestroy, (CUmipmappedArray array)) {
  const CUresult result = discharged(Kind::mipmap, reinterpret_cast<std::uint64_t>(array),
                                     [&] { return TF_REAL(cuMipmappedArrayDestroy)(array); });
  if (result == CUDA_SUCCESS) forget_tiles(reinterpret_cast<std::uint64_t>(array));
  return result;
}

}  // namespace tensor_fusion::guest::limiter
