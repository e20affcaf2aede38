// Texture and surface objects and tensor maps. They can be made, asked and destroyed; no kernel of ours reads through
// one. A tensor map is a pure function of its arguments, checked as documented.
#include <cstring>

#include "sim/cuda/array.h"
#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {
namespace {

struct TextureObject {
  static constexpr HandleKind kHandleKind = HandleKind::texture;
  CUDA_RESOURCE_DESC resource{};
  std::byte texture[104]{}, view[64 + 48]{};  // of the API's own sizes
  bool has_view = false;
};
struct SurfaceObject {
  static constexpr HandleKind kHandleKind = HandleKind::surface;
  CUDA_RESOURCE_DESC resource{};
};

HandleTable<TextureObject>& textures() {
  static auto* table = new HandleTable<TextureObject>;
  return *table;
}
HandleTable<SurfaceObject>& surfaces() {
  static auto* table = new HandleTable<SurfaceObject>;
  return *table;
}

constexpr int kArrayResource = 0, kLastResource = 3;

CUresult check_resource(const CUDA_RESOURCE_DESC* resource) {
  if (resource == nullptr || resource->resType < 0 || resource->resType > kLastResource || resource->flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (resource->resType == kArrayResource && arrays().find(resource->res.word) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
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
  auto object = std::make_shared<SurfaceObject>();
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
