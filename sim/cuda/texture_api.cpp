// Texture and surface objects and tensor maps. They can be made, asked and destroyed; no kernel of ours reads through
// one. A tensor map is a pure function of its arguments, checked as documented.
#include <cstring>

#include "sim/cuda/array.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/texture.h"

namespace tensor_fusion::sim::cuda {

HandleTable<TextureObject>& textures() {
  static auto* table = new HandleTable<TextureObject>;
  return *table;
}
HandleTable<SurfaceObject>& surfaces() {
  static auto* table = new HandleTable<SurfaceObject>;
  return *table;
}

namespace {

enum ResourceType : int { kArrayResource = 0, kMipmapResource = 1, kLinearResource = 2, kPitchResource = 3 };

// The resource's union as memory without an array sees it.
struct LinearResource {
  CUdeviceptr address;
  CUarray_format format;
  unsigned channels;
  std::size_t bytes;
};
struct PitchResource {
  CUdeviceptr address;
  CUarray_format format;
  unsigned channels;
  std::size_t width, height, pitch;
};

constexpr std::uint64_t kTextureAlignment = 512, kPitchAlignment = 32;  // as the device's attributes say

bool reachable(CUdeviceptr address, std::uint64_t bytes) {
  const auto allocation = Driver::get().addresses().find(address);
  return allocation != nullptr && bytes != 0 && bytes <= allocation->base + allocation->extent - address;
}

CUresult check_resource(const CUDA_RESOURCE_DESC* resource) {
  if (resource == nullptr || resource->flags != 0) return CUDA_ERROR_INVALID_VALUE;
  bool good = false;
  switch (resource->resType) {
    case kArrayResource:
      good = arrays().find(resource->res.word) != nullptr;
      break;
    case kMipmapResource:
      good = mipmapped_arrays().find(resource->res.word) != nullptr;
      break;
    case kLinearResource: {
      LinearResource linear;
      std::memcpy(&linear, &resource->res, sizeof linear);
      good = element_bytes(linear.format, linear.channels) != 0 && linear.address % kTextureAlignment == 0 &&
             reachable(linear.address, linear.bytes);
      break;
    }
    case kPitchResource: {
      PitchResource rows;
      std::memcpy(&rows, &resource->res, sizeof rows);
      const std::uint64_t element = element_bytes(rows.format, rows.channels);
      good = element != 0 && rows.height != 0 && rows.address % kTextureAlignment == 0 &&
             rows.pitch % kPitchAlignment == 0 && rows.width * element <= rows.pitch &&
             reachable(rows.address, (rows.height - 1) * rows.pitch + rows.width * element);
      break;
    }
    default:
      break;
  }
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Our own form of a tensor map: address first, so that it can be replaced.
struct PackedMap {
  std::uint64_t address;
  std::uint8_t type, rank, interleave, swizzle, l2, fill, im2col, unused;
  std::uint64_t dims[5];
  std::uint64_t strides[4];
  std::uint32_t box[5];
};
static_assert(sizeof(PackedMap) <= sizeof(CUtensorMap));

CUresult encode(CUtensorMap* out, int type, unsigned rank, void* address, const std::uint64_t* dims,
                const std::uint64_t* strides, const unsigned* box, const unsigned* steps, int interleave, int swizzle,
                int l2, int fill, bool im2col) {
  TF_TRY(enter("cuTensorMapEncode"));
  if (out == nullptr || reinterpret_cast<std::uintptr_t>(out) % 64 != 0 || address == nullptr ||
      reinterpret_cast<std::uintptr_t>(address) % 16 != 0 || rank < (im2col ? 3U : 1U) || rank > 5 || dims == nullptr ||
      (rank > 1 && strides == nullptr) || steps == nullptr || type < 0 || type > 15 || interleave < 0 ||
      interleave > 2 || swizzle < 0 || swizzle > 7 || l2 < 0 || l2 > 3 || fill < 0 || fill > 1)
    return CUDA_ERROR_INVALID_VALUE;
  PackedMap map{};
  map.address = reinterpret_cast<std::uint64_t>(address);
  map.type = static_cast<std::uint8_t>(type), map.rank = static_cast<std::uint8_t>(rank);
  map.interleave = static_cast<std::uint8_t>(interleave), map.swizzle = static_cast<std::uint8_t>(swizzle);
  map.l2 = static_cast<std::uint8_t>(l2), map.fill = static_cast<std::uint8_t>(fill), map.im2col = im2col;
  for (unsigned i = 0; i < rank; ++i) {
    if (dims[i] == 0 || dims[i] > (std::uint64_t{1} << 32) || steps[i] == 0 || steps[i] > 8)
      return CUDA_ERROR_INVALID_VALUE;
    map.dims[i] = dims[i];
    if (!im2col) {
      if (box == nullptr || box[i] == 0 || box[i] > 256) return CUDA_ERROR_INVALID_VALUE;
      map.box[i] = box[i];
    }
    if (i + 1 < rank) {
      if (strides[i] % 16 != 0 || strides[i] >= (std::uint64_t{1} << 40)) return CUDA_ERROR_INVALID_VALUE;
      map.strides[i] = strides[i];
    }
  }
  *out = {};
  std::memcpy(out, &map, sizeof map);
  return CUDA_SUCCESS;
}

}  // namespace

TF_API(cuTexObjectCreate,
       (CUtexObject * out, const CUDA_RESOURCE_DESC* resource, const void* texture, const void* view)) {
  Context* context = nullptr;
  TF_TRY(enter("cuTexObjectCreate", {}, context));
  if (out == nullptr || texture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TF_TRY(check_resource(resource));
  auto object = std::make_shared<TextureObject>();
  object->context_id = context->id();
  object->resource = *resource;
  std::memcpy(object->texture, texture, sizeof object->texture);
  if (view != nullptr) std::memcpy(object->view, view, sizeof object->view);
  object->has_view = view != nullptr;
  *out = textures().insert(object);
  return CUDA_SUCCESS;
}
TF_API(cuTexObjectDestroy, (CUtexObject handle)) {
  TF_TRY(enter("cuTexObjectDestroy"));
  return textures().remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
TF_API(cuTexObjectGetResourceDesc, (CUDA_RESOURCE_DESC * out, CUtexObject handle)) {
  TF_TRY(enter("cuTexObjectGetResourceDesc"));
  const auto object = textures().share(handle);
  if (out == nullptr || !object) return CUDA_ERROR_INVALID_VALUE;
  *out = object->resource;
  return CUDA_SUCCESS;
}
TF_API(cuTexObjectGetTextureDesc, (void* out, CUtexObject handle)) {
  TF_TRY(enter("cuTexObjectGetTextureDesc"));
  const auto object = textures().share(handle);
  if (out == nullptr || !object) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(out, object->texture, sizeof object->texture);
  return CUDA_SUCCESS;
}
TF_API(cuTexObjectGetResourceViewDesc, (void* out, CUtexObject handle)) {
  TF_TRY(enter("cuTexObjectGetResourceViewDesc"));
  const auto object = textures().share(handle);
  if (out == nullptr || !object || !object->has_view) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(out, object->view, sizeof object->view);
  return CUDA_SUCCESS;
}
TF_API(cuSurfObjectCreate, (CUsurfObject * out, const CUDA_RESOURCE_DESC* resource)) {
  Context* context = nullptr;
  TF_TRY(enter("cuSurfObjectCreate", {}, context));
  if (out == nullptr || resource == nullptr || resource->resType != kArrayResource) return CUDA_ERROR_INVALID_VALUE;
  TF_TRY(check_resource(resource));
  if ((arrays().find(resource->res.word)->shape.Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0)
    return CUDA_ERROR_INVALID_VALUE;  // made for textures and copies only
  auto object = std::make_shared<SurfaceObject>();
  object->context_id = context->id();
  object->resource = *resource;
  *out = surfaces().insert(object);
  return CUDA_SUCCESS;
}
TF_API(cuSurfObjectDestroy, (CUsurfObject handle)) {
  TF_TRY(enter("cuSurfObjectDestroy"));
  return surfaces().remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
TF_API(cuSurfObjectGetResourceDesc, (CUDA_RESOURCE_DESC * out, CUsurfObject handle)) {
  TF_TRY(enter("cuSurfObjectGetResourceDesc"));
  const auto object = surfaces().share(handle);
  if (out == nullptr || !object) return CUDA_ERROR_INVALID_VALUE;
  *out = object->resource;
  return CUDA_SUCCESS;
}

TF_API(cuTensorMapEncodeTiled, (CUtensorMap * out, int type, unsigned rank, void* address, const std::uint64_t* dims,
                                const std::uint64_t* strides, const unsigned* box, const unsigned* steps,
                                int interleave, int swizzle, int l2, int fill)) {
  return encode(out, type, rank, address, dims, strides, box, steps, interleave, swizzle, l2, fill, false);
}
TF_API(cuTensorMapEncodeIm2col, (CUtensorMap * out, int type, unsigned rank, void* address, const std::uint64_t* dims,
                                 const std::uint64_t* strides, const int* lower, const int* upper, unsigned, unsigned,
                                 const unsigned* steps, int interleave, int swizzle, int l2, int fill)) {
  if (lower == nullptr || upper == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return encode(out, type, rank, address, dims, strides, nullptr, steps, interleave, swizzle, l2, fill, true);
}
TF_API(cuTensorMapEncodeIm2colWide,
       (CUtensorMap * out, int type, unsigned rank, void* address, const std::uint64_t* dims,
        const std::uint64_t* strides, int, int, unsigned, unsigned, const unsigned* steps, int interleave, int,
        int swizzle, int l2, int fill)) {
  return encode(out, type, rank, address, dims, strides, nullptr, steps, interleave, swizzle, l2, fill, true);
}
TF_API(cuTensorMapReplaceAddress, (CUtensorMap * map, void* address)) {
  TF_TRY(enter("cuTensorMapReplaceAddress"));
  if (map == nullptr || address == nullptr || reinterpret_cast<std::uintptr_t>(address) % 16 != 0)
    return CUDA_ERROR_INVALID_VALUE;
  map->opaque[0] = reinterpret_cast<std::uint64_t>(address);
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
