// Sparse arrays: physical memory mapped into a part of an array, in stream order. It keeps the memory as a mapping at
// an address does, so each part counts as one until it is unmapped, mapped anew, or its array is gone.
#include "guest/limiter/core/os.h"
#include "guest/limiter/hooks/charge.h"
#include "guest/limiter/hooks/physical.h"

namespace tensor_fusion::guest::limiter {
namespace {

std::atomic<std::uint32_t> g_tiles{0};  // 1 once there was any

std::uint64_t array_of(const CUarrayMapInfo& info) { return reinterpret_cast<std::uint64_t>(info.resource.array); }

std::uint64_t size_of(const CUarrayMapInfo& info) {
  if (info.subresourceType != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL) return info.subresource.miptail.size;
  const auto& level = info.subresource.sparseLevel;
  return std::uint64_t{level.extentWidth} * level.extentHeight * level.extentDepth;
}

// One number for where a part begins.
std::uint64_t place_of(const CUarrayMapInfo& info) {
  std::uint64_t mixed = array_of(info) + static_cast<std::uint64_t>(info.subresourceType);
  const auto mix = [&](std::uint64_t word) {
    mixed = (mixed ^ word) * 0x9e3779b97f4a7c15;
    mixed ^= mixed >> 31;
  };
  if (info.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL) {
    const auto& level = info.subresource.sparseLevel;
    for (const unsigned word : {level.level, level.layer, level.offsetX, level.offsetY, level.offsetZ}) mix(word);
  } else {
    mix(info.subresource.miptail.layer);
    mix(info.subresource.miptail.offset);
  }
  return mixed;
}

// The records that lost a part, to be counted down once the device has passed that point.
struct Undone {
  static constexpr unsigned kFew = 32;
  explicit Undone(unsigned most)
      : size(most * sizeof(std::uint64_t)),
        records(most <= kFew ? few : static_cast<std::uint64_t*>(os::map_memory(size))) {}
  ~Undone() {
    if (records != few && records != nullptr) os::unmap(records, size);
  }
  Undone(const Undone&) = delete;
  Undone& operator=(const Undone&) = delete;
  std::size_t size;
  std::uint64_t few[kFew];
  std::uint64_t* records;
  unsigned count = 0;
};

void note(Attachment& attached, const CUarrayMapInfo& info, Undone& undone) {
  Holding tile;
  const std::uint64_t place = place_of(info);
  const bool map = info.memOperationType == CU_MEM_OPERATION_TYPE_MAP;
  if (attached.holdings.find(Kind::tile, place, tile) && (map || size_of(info) >= tile.bytes)) {
    attached.holdings.take(Kind::tile, place, tile);
    undone.records[undone.count++] = tile.extra;
  }
  Holding physical;
  if (!map || !attached.holdings.find(Kind::physical, info.memHandle.memHandle, physical)) return;
  tile = {};
  tile.kind = Kind::tile;
  tile.key = place;
  tile.context = array_of(info);
  tile.bytes = size_of(info);
  tile.extra = physical.extra;
  g_tiles.store(1, std::memory_order_relaxed);
  count_physical(attached, physical.extra, 0, 1);
  attached.holdings.insert(tile);  // without memory for it the charge stays: too much rather than too little
}

template <class Call>
CUresult map_arrays(const CUarrayMapInfo* list, unsigned count, CUstream stream, bool own_stream, Call call) {
  Attachment* attached = attachment();
  if (attached == nullptr) return must_refuse() ? refusal() : call();
  if (list == nullptr || count == 0) return call();
  Undone undone(count);
  if (undone.records == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  bool ends = false;
  {
    Guard guard(attached->physical_mutex);
    const CUresult result = call();
    if (result != CUDA_SUCCESS) return result;
    for (unsigned i = 0; i < count; ++i) note(*attached, list[i], undone);
    for (unsigned i = 0; i < undone.count; ++i) ends |= last_mapping(*attached, undone.records[i]);
  }
  // Memory goes when the device has unmapped it, and not before.
  if (ends && own_stream) TF_REAL(cuStreamSynchronize_ptsz)(stream);
  if (ends && !own_stream) TF_REAL(cuStreamSynchronize)(stream);
  Guard guard(attached->physical_mutex);
  for (unsigned i = 0; i < undone.count; ++i) count_physical(*attached, undone.records[i], 0, -1);
  return CUDA_SUCCESS;
}

}  // namespace

bool any_tiles() { return g_tiles.load(std::memory_order_relaxed) != 0; }

void forget_tiles(std::uint64_t array) {
  Attachment* attached = attachment();
  if (attached == nullptr || !any_tiles()) return;
  Guard guard(attached->physical_mutex);
  for (bool found = true; found;) {
    found = false;
    std::uint64_t record = 0;
    attached->holdings.remove_if([&](const Holding& holding) {
      if (found || holding.kind != Kind::tile || holding.context != array) return false;
      record = holding.extra;
      found = true;
      return true;
    });
    if (found) count_physical(*attached, record, 0, -1);
  }
}

#define TF_MAP(symbol, own_stream)                                                                            \
  TF_ENTRY(symbol, (CUarrayMapInfo * list, unsigned count, CUstream stream)) {                                \
    return map_arrays(list, count, stream, own_stream, [&] { return TF_REAL(symbol)(list, count, stream); }); \
  }
TF_MAP(cuMemMapArrayAsync, false)
TF_MAP(cuMemMapArrayAsync_ptsz, true)
#undef TF_MAP

}  // namespace tensor_fusion::guest::limiter
