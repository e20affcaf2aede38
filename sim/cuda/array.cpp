#include "sim/cuda/array.h"

#include <algorithm>

#include "sim/cuda/capture.h"
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {

HandleTable<Array>& arrays() {
  static auto* table = new HandleTable<Array>;
  return *table;
}
HandleTable<MipmappedArray>& mipmapped_arrays() {
  static auto* table = new HandleTable<MipmappedArray>;
  return *table;
}

std::uint64_t element_bytes(CUarray_format format, unsigned channels) {
  if (channels != 1 && channels != 2 && channels != 4) return 0;
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return std::uint64_t{2} * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return std::uint64_t{4} * channels;
  }
  return 0;
}

std::uint64_t Array::pitch() const { return shape.Width * element_bytes(shape.Format, shape.NumChannels); }

CUresult Array::create(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& shape, std::shared_ptr<Array>& out) {
  constexpr std::size_t kWidest = 131072, kDeepest = 16384;
  if (shape.Width == 0 || shape.Width > kWidest || shape.Height > kWidest || shape.Depth > kDeepest)
    return CUDA_ERROR_INVALID_VALUE;
  if (element_bytes(shape.Format, shape.NumChannels) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (shape.Depth != 0 && shape.Height == 0 && (shape.Flags & CUDA_ARRAY3D_LAYERED) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((shape.Flags & CUDA_ARRAY3D_CUBEMAP) != 0 &&
      (shape.Depth % 6 != 0 || shape.Depth == 0 || shape.Width != shape.Height))
    return CUDA_ERROR_INVALID_VALUE;
  auto array = std::make_shared<Array>(shape);
  array->device = &context.device();
  array->context = context.shared_from_this();
  const std::uint64_t bytes = array->pitch() * array->rows() * array->slices();
  if ((shape.Flags & CUDA_ARRAY3D_SPARSE) != 0) {
    if ((shape.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) != 0 || tile_of(shape).width == 0)
      return CUDA_ERROR_INVALID_VALUE;
    array->sparse = SparseBytes::reserve(bytes);
    if (!array->sparse) return CUDA_ERROR_OUT_OF_MEMORY;
    array->address = array->sparse->address();
    array->bytes = bytes;
  } else if ((shape.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) == 0) {
    TF_TRY(context.device().allocate(bytes, array->address));
    array->bytes = bytes;
  }
  array->handle_value = arrays().insert(array);
  out = std::move(array);
  return CUDA_SUCCESS;
}

Array::~Array() {
  if (bytes != 0 && !sparse) device->release(address, bytes);
}

namespace {

CUresult create(const char* symbol, CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
  Context* context = nullptr;
  TF_TRY(enter(symbol, "alloc", context));
  if (out == nullptr || shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TF_TRY(check_capture_unsafe());
  std::shared_ptr<Array> array;
  TF_TRY(Array::create(*context, *shape, array));
  *out = as_handle<CUarray>(array->handle_value);
  return CUDA_SUCCESS;
}

CUresult describe(const char* symbol, CUarray handle, CUDA_ARRAY3D_DESCRIPTOR* out) {
  TF_TRY(enter(symbol));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Array* array = arrays().find(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = array->shape;
  return CUDA_SUCCESS;
}

CUresult requirements(const std::vector<std::shared_ptr<Array>>& levels, CUDA_ARRAY_MEMORY_REQUIREMENTS* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = {};
  if (levels.front()->sparse) {
    out->alignment = kTileBytes;
    out->size = sparse_bytes(levels);
    return CUDA_SUCCESS;
  }
  out->alignment = kAllocationUnit;
  for (const auto& level : levels)
    out->size += round_up(level->pitch() * level->rows() * level->slices(), kAllocationUnit);
  return CUDA_SUCCESS;
}

template <typename Descriptor>
CUDA_ARRAY3D_DESCRIPTOR widened(const Descriptor& flat) {
  return {flat.Width, flat.Height, 0, flat.Format, flat.NumChannels, 0};
}

}  // namespace

TF_API(cuArrayCreate_v2, (CUarray * out, const CUDA_ARRAY_DESCRIPTOR* shape)) {
  const CUDA_ARRAY3D_DESCRIPTOR wide = shape != nullptr ? widened(*shape) : CUDA_ARRAY3D_DESCRIPTOR{};
  return create("cuArrayCreate", out, shape != nullptr ? &wide : nullptr);
}
TF_API(cuArrayCreate, (CUarray * out, const CUDA_ARRAY_DESCRIPTOR_v1* shape)) {
  const CUDA_ARRAY3D_DESCRIPTOR wide = shape != nullptr ? widened(*shape) : CUDA_ARRAY3D_DESCRIPTOR{};
  return create("cuArrayCreate", out, shape != nullptr ? &wide : nullptr);
}
TF_API(cuArray3DCreate_v2, (CUarray * out, const CUDA_ARRAY3D_DESCRIPTOR* shape)) {
  return create("cuArray3DCreate", out, shape);
}
TF_API(cuArray3DCreate, (CUarray * out, const CUDA_ARRAY3D_DESCRIPTOR_v1* shape)) {
  if (shape == nullptr) return create("cuArray3DCreate", out, nullptr);
  const CUDA_ARRAY3D_DESCRIPTOR wide{shape->Width,  shape->Height,      shape->Depth,
                                     shape->Format, shape->NumChannels, shape->Flags};
  return create("cuArray3DCreate", out, &wide);
}

TF_API(cuArrayDestroy, (CUarray handle)) {
  Context* context = nullptr;
  TF_TRY(enter("cuArrayDestroy", {}, context));
  const auto array = arrays().share(handle);
  if (!array || array->level) return CUDA_ERROR_INVALID_HANDLE;
  TF_TRY(array->context->synchronize());
  arrays().remove(handle);
  return CUDA_SUCCESS;
}

TF_API(cuArrayGetDescriptor_v2, (CUDA_ARRAY_DESCRIPTOR * out, CUarray handle)) {
  CUDA_ARRAY3D_DESCRIPTOR wide{};
  TF_TRY(describe("cuArrayGetDescriptor", handle, out != nullptr ? &wide : nullptr));
  *out = {wide.Width, wide.Height, wide.Format, wide.NumChannels};
  return CUDA_SUCCESS;
}
TF_API(cuArrayGetDescriptor, (CUDA_ARRAY_DESCRIPTOR_v1 * out, CUarray handle)) {
  CUDA_ARRAY3D_DESCRIPTOR wide{};
  TF_TRY(describe("cuArrayGetDescriptor", handle, out != nullptr ? &wide : nullptr));
  *out = {static_cast<unsigned>(wide.Width), static_cast<unsigned>(wide.Height), wide.Format, wide.NumChannels};
  return CUDA_SUCCESS;
}
TF_API(cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR * out, CUarray handle)) {
  return describe("cuArray3DGetDescriptor", handle, out);
}
TF_API(cuArray3DGetDescriptor, (CUDA_ARRAY3D_DESCRIPTOR_v1 * out, CUarray handle)) {
  CUDA_ARRAY3D_DESCRIPTOR wide{};
  TF_TRY(describe("cuArray3DGetDescriptor", handle, out != nullptr ? &wide : nullptr));
  *out = {static_cast<unsigned>(wide.Width),
          static_cast<unsigned>(wide.Height),
          static_cast<unsigned>(wide.Depth),
          wide.Format,
          wide.NumChannels,
          wide.Flags};
  return CUDA_SUCCESS;
}

TF_API(cuArrayGetMemoryRequirements, (CUDA_ARRAY_MEMORY_REQUIREMENTS * out, CUarray handle, CUdevice device)) {
  TF_TRY(enter("cuArrayGetMemoryRequirements"));
  Device* target = nullptr;
  TF_TRY(find_device(device, target));
  const auto array = arrays().share(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  return requirements({array}, out);
}

TF_API(cuMipmappedArrayCreate, (CUmipmappedArray * out, const CUDA_ARRAY3D_DESCRIPTOR* shape, unsigned levels)) {
  Context* context = nullptr;
  TF_TRY(enter("cuMipmappedArrayCreate", "alloc", context));
  if (out == nullptr || shape == nullptr || levels == 0) return CUDA_ERROR_INVALID_VALUE;
  TF_TRY(check_capture_unsafe());
  auto mipmap = std::make_shared<MipmappedArray>();
  CUDA_ARRAY3D_DESCRIPTOR next = *shape;
  const bool layered = (shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  CUresult result = CUDA_SUCCESS;
  for (unsigned i = 0; i < levels; ++i) {
    std::shared_ptr<Array> level;
    result = Array::create(*context, next, level);
    if (result != CUDA_SUCCESS) break;
    level->level = true;
    mipmap->levels.push_back(std::move(level));
    if (next.Width <= 1 && next.Height <= 1 && (layered || next.Depth <= 1)) break;
    next.Width = std::max<std::size_t>(next.Width / 2, 1);
    if (next.Height != 0) next.Height = std::max<std::size_t>(next.Height / 2, 1);
    if (next.Depth != 0 && !layered) next.Depth = std::max<std::size_t>(next.Depth / 2, 1);
  }
  if (result != CUDA_SUCCESS) {
    for (const auto& level : mipmap->levels) arrays().remove(level->handle_value);
    return result;
  }
  mipmap->handle_value = mipmapped_arrays().insert(mipmap);
  *out = as_handle<CUmipmappedArray>(mipmap->handle_value);
  return CUDA_SUCCESS;
}

TF_API(cuMipmappedArrayGetLevel, (CUarray * out, CUmipmappedArray handle, unsigned level)) {
  TF_TRY(enter("cuMipmappedArrayGetLevel"));
  const MipmappedArray* mipmap = mipmapped_arrays().find(handle);
  if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || level >= mipmap->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *out = as_handle<CUarray>(mipmap->levels[level]->handle_value);
  return CUDA_SUCCESS;
}

TF_API(cuMipmappedArrayDestroy, (CUmipmappedArray handle)) {
  Context* context = nullptr;
  TF_TRY(enter("cuMipmappedArrayDestroy", {}, context));
  TF_TRY(context->synchronize());
  const auto mipmap = mipmapped_arrays().remove(handle);
  if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& level : mipmap->levels) arrays().remove(level->handle_value);
  return CUDA_SUCCESS;
}

TF_API(cuMipmappedArrayGetMemoryRequirements,
       (CUDA_ARRAY_MEMORY_REQUIREMENTS * out, CUmipmappedArray handle, CUdevice device)) {
  TF_TRY(enter("cuMipmappedArrayGetMemoryRequirements"));
  Device* target = nullptr;
  TF_TRY(find_device(device, target));
  const MipmappedArray* mipmap = mipmapped_arrays().find(handle);
  if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return requirements(mipmap->levels, out);
}

TF_API(cuArrayGetPlane, (CUarray * out, CUarray handle, unsigned)) {
  TF_TRY(enter("cuArrayGetPlane"));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return arrays().find(handle) != nullptr ? CUDA_ERROR_INVALID_VALUE
                                          : CUDA_ERROR_INVALID_HANDLE;  // no planar formats here
}

}  // namespace tensor_fusion::sim::cuda
