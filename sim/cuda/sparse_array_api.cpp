// Entry points of sparse arrays: their tiles, and memory behind them.
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <vector>

#include "sim/cuda/array.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/command.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/sparse_array.h"
#include "sim/cuda/vmm.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr int kOfArray = 0, kOfMipmap = 1;              // CUresourcetype
constexpr unsigned short kTilePool = 1;                 // usage of the memory
constexpr std::uint64_t kTailTile = ~std::uint64_t{0};  // in a tile's place: one of the tail

using Levels = std::vector<std::shared_ptr<Array>>;

bool layered(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  return (shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
}

unsigned first_of_tail(const Levels& levels) {
  const auto found = std::find_if(levels.begin(), levels.end(), [](const auto& each) { return in_tail(each->shape); });
  return static_cast<unsigned>(found - levels.begin());
}

// Of one layer.
std::uint64_t tail_bytes(const Levels& levels) {
  std::uint64_t bytes = 0;
  for (std::size_t i = first_of_tail(levels); i < levels.size(); ++i) {
    const Array& level = *levels[i];
    bytes += level.pitch() * level.rows() * (layered(level.shape) ? 1 : level.slices());
  }
  return round_up(bytes, kTileBytes);
}

// One thing to do when the stream comes to it, already found to be right.
struct Change {
  std::shared_ptr<Array> array;
  SparseBytes::Tile tile{};
  std::shared_ptr<PhysicalMemory> memory;  // null: unmap
  Extent from{0, 0, 0}, extent{0, 0, 0};   // elements of the array

  void make() const {
    if (memory) {
      array->sparse->map(tile, memory);
      return;
    }
    array->sparse->unmap(tile);
    const std::uint64_t element = element_bytes(array->shape.Format, array->shape.NumChannels);
    for (std::uint64_t z = from.depth; z < from.depth + extent.depth; ++z)
      for (std::uint64_t y = from.height; y < from.height + extent.height; ++y)
        std::memset(
            reinterpret_cast<void*>(array->address + (z * array->rows() + y) * array->pitch() + from.width * element),
            0, extent.width * element);
  }
};

// Whether [at, at + size) of `whole` starts on a tile and ends on one or at the edge.
bool on_tiles(std::uint64_t at, std::uint64_t size, std::uint64_t whole, std::uint64_t tile) {
  return size != 0 && at < whole && size <= whole - at && at % tile == 0 && (size % tile == 0 || at + size == whole);
}

CUresult add_level(const CUarrayMapInfo& info, const Levels& levels, const std::shared_ptr<PhysicalMemory>& memory,
                   std::vector<Change>& changes) {
  const auto& part = info.subresource.sparseLevel;
  if (part.level >= levels.size()) return CUDA_ERROR_INVALID_VALUE;
  const auto& array = levels[part.level];
  const auto& shape = array->shape;
  const Extent tile = tile_of(shape);
  const bool layers = layered(shape);
  if ((levels.size() > 1 && in_tail(shape)) || part.layer >= (layers ? shape.Depth : 1) ||
      !on_tiles(part.offsetX, part.extentWidth, shape.Width, tile.width) ||
      !on_tiles(part.offsetY, part.extentHeight, shape.Height, tile.height) ||
      !on_tiles(part.offsetZ, part.extentDepth, layers ? 1 : array->slices(), tile.depth))
    return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t used = 0;
  for (std::uint64_t z = part.offsetZ; z < part.offsetZ + part.extentDepth; z += tile.depth)
    for (std::uint64_t y = part.offsetY; y < part.offsetY + part.extentHeight; y += tile.height)
      for (std::uint64_t x = part.offsetX; x < part.offsetX + part.extentWidth; x += tile.width) {
        const std::uint64_t slice = layers ? part.layer : z;
        changes.push_back({array,
                           {x, y, slice, 0},
                           memory,
                           {x, y, slice},
                           {std::min(tile.width, shape.Width - x), std::min(tile.height, shape.Height - y),
                            layers ? 1 : std::min(tile.depth, array->slices() - z)}});
        used += kTileBytes;
      }
  return memory && (info.offset > memory->bytes || used > memory->bytes - info.offset) ? CUDA_ERROR_INVALID_VALUE
                                                                                       : CUDA_SUCCESS;
}

CUresult add_tail(const CUarrayMapInfo& info, const Levels& levels, const std::shared_ptr<PhysicalMemory>& memory,
                  std::vector<Change>& changes) {
  const auto& part = info.subresource.miptail;
  const std::uint64_t all = tail_bytes(levels);
  if (part.size == 0 || part.offset % kTileBytes != 0 || part.size % kTileBytes != 0 || part.offset > all ||
      part.size > all - part.offset || part.layer >= (layered(levels.front()->shape) ? levels.front()->shape.Depth : 1))
    return CUDA_ERROR_INVALID_VALUE;
  if (memory && (info.offset > memory->bytes || part.size > memory->bytes - info.offset))
    return CUDA_ERROR_INVALID_VALUE;
  const bool whole = part.offset == 0 && part.size == all;
  const unsigned first = first_of_tail(levels);
  for (std::uint64_t at = part.offset; at < part.offset + part.size; at += kTileBytes)
    changes.push_back({levels[first], {part.layer, at, 0, kTailTile}, memory});
  if (memory || !whole) return CUDA_SUCCESS;
  for (std::size_t i = first; i < levels.size(); ++i) {  // the tail is gone: zeros from now on
    const Array& level = *levels[i];
    const bool layers = layered(level.shape);
    changes.push_back({levels[i],
                       {part.layer, kTailTile, i, kTailTile},
                       nullptr,
                       {0, 0, layers ? part.layer : 0},
                       {level.shape.Width, level.rows(), layers ? 1 : level.slices()}});
  }
  return CUDA_SUCCESS;
}

CUresult add_changes(const CUarrayMapInfo& info, const Context& context, std::vector<Change>& changes) {
  Levels levels;
  if (info.resourceType == kOfArray) {
    if (auto array = arrays().share(info.resource.array)) levels.push_back(std::move(array));
  } else if (info.resourceType == kOfMipmap) {
    if (const auto mipmap = mipmapped_arrays().share(info.resource.mipmap)) levels = mipmap->levels;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (levels.empty()) return CUDA_ERROR_INVALID_HANDLE;
  const bool map = info.memOperationType == CU_MEM_OPERATION_TYPE_MAP;
  if (!levels.front()->sparse || (!map && info.memOperationType != CU_MEM_OPERATION_TYPE_UNMAP) ||
      info.memHandleType != 0 || info.flags != 0 || info.reserved[0] != 0 || info.reserved[1] != 0 ||
      info.deviceBitMask != 1U << context.device().ordinal)
    return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<PhysicalMemory> memory;
  if (map) {
    memory = physicals().share(info.memHandle.memHandle);
    if (!memory || memory->team || memory->properties.allocFlags.usage != kTilePool || info.offset % kTileBytes != 0)
      return CUDA_ERROR_INVALID_VALUE;
  } else if (info.memHandle.memHandle != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (info.subresourceType) {
    case CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL:
      return add_level(info, levels, memory, changes);
    case CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL:
      return info.resourceType == kOfMipmap ? add_tail(info, levels, memory, changes) : CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult map_arrays(Flavour flavour, const CUarrayMapInfo* list, unsigned count, CUstream handle) {
  TF_TRY(enter("cuMemMapArrayAsync"));
  if (list == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  TF_TRY(find_work_stream(handle, flavour, stream));
  std::vector<Change> changes;
  for (unsigned i = 0; i < count; ++i) TF_TRY(add_changes(list[i], stream->context(), changes));
  const std::lock_guard lock(stream->mutex());
  if (stream->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  TF_TRY(check_capture_conflict(*stream));
  device::Work work;
  work.kind = device::WorkKind::gate;  // the memory unit's doing: takes none of the engines
  enqueue_effect(*stream, work, true, [changes = std::move(changes)](bool skip) -> std::uint64_t {
    if (!skip)
      for (const Change& change : changes) change.make();
    return 0;
  });
  return CUDA_SUCCESS;
}

CUresult properties_of(const Levels& levels, bool mipmap, CUDA_ARRAY_SPARSE_PROPERTIES* out) {
  if (out == nullptr || (levels.front()->shape.Flags & CUDA_ARRAY3D_SPARSE) == 0) return CUDA_ERROR_INVALID_VALUE;
  const Extent tile = tile_of(levels.front()->shape);
  *out = {};
  out->tileExtent = {static_cast<unsigned>(tile.width), static_cast<unsigned>(tile.height),
                     static_cast<unsigned>(tile.depth)};
  if (!mipmap) return CUDA_SUCCESS;
  out->miptailFirstLevel = first_of_tail(levels);
  out->miptailSize = tail_bytes(levels);
  return CUDA_SUCCESS;
}

}  // namespace

TF_API(cuArrayGetSparseProperties, (CUDA_ARRAY_SPARSE_PROPERTIES * out, CUarray handle)) {
  TF_TRY(enter("cuArrayGetSparseProperties"));
  const auto array = arrays().share(handle);
  return array ? properties_of({array}, false, out) : CUDA_ERROR_INVALID_HANDLE;
}

TF_API(cuMipmappedArrayGetSparseProperties, (CUDA_ARRAY_SPARSE_PROPERTIES * out, CUmipmappedArray handle)) {
  TF_TRY(enter("cuMipmappedArrayGetSparseProperties"));
  const auto mipmap = mipmapped_arrays().share(handle);
  return mipmap ? properties_of(mipmap->levels, true, out) : CUDA_ERROR_INVALID_HANDLE;
}

TF_STREAM_API(cuMemMapArrayAsync, (const CUarrayMapInfo* list, unsigned count, CUstream stream),
              { return map_arrays(kFlavour, list, count, stream); })

// What fills an array without a gap: the tiles of its levels, and of each layer's tail.
std::uint64_t sparse_bytes(const Levels& levels) {
  const auto& shape = levels.front()->shape;
  if (levels.size() == 1) return tiled_bytes(shape);
  std::uint64_t bytes = tail_bytes(levels) * (layered(shape) ? shape.Depth : 1);
  for (unsigned i = 0; i < first_of_tail(levels); ++i) bytes += tiled_bytes(levels[i]->shape);
  return bytes;
}

}  // namespace tensor_fusion::sim::cuda
