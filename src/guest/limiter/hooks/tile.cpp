// Sparse arrays: physical memory mapped into a part of an array, in stream order. It keeps the memory as a mapping at
// an address does, so each tile counts as one until it is unmapped, mapped anew, or its array is gone.
#include <initializer_list>

#include "guest/limiter/core/os.h"
#include "guest/limiter/hooks/charge.h"
#include "guest/limiter/hooks/physical.h"

namespace tensor_fusion::guest::limiter {
namespace {

std::atomic<std::uint32_t> g_tiles{0};  // 1 once there was any

std::uint64_t array_of(const CUarrayMapInfo& info) { return reinterpret_cast<std::uint64_t>(info.resource.array); }

// How an array is cut up. Where the driver does not say, a region is one piece and goes when all of it does.
struct Grid {
  std::uint64_t array = 0;
  unsigned width = 0, height = 0, depth = 0;
};

constexpr std::uint64_t kTailTile = 64 << 10;
constexpr std::uint64_t kMostTiles = 1 << 24;  // of one call: a TiB of them

bool in_tail(const CUarrayMapInfo& info) {
  return info.subresourceType != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
}

void look_at(const CUarrayMapInfo& info, Grid& grid) {
  if (grid.array == array_of(info)) return;
  CUDA_ARRAY_SPARSE_PROPERTIES properties{};
  const CUresult result = info.resourceType != 0
                              ? TF_REAL(cuMipmappedArrayGetSparseProperties)(&properties, info.resource.mipmap)
                              : TF_REAL(cuArrayGetSparseProperties)(&properties, info.resource.array);
  if (result != CUDA_SUCCESS) properties = {};
  grid = {array_of(info), properties.tileExtent.width, properties.tileExtent.height, properties.tileExtent.depth};
}

bool is_cut(const Grid& grid) { return grid.width != 0 && grid.height != 0 && grid.depth != 0; }

std::uint64_t pieces(std::uint64_t size, std::uint64_t piece) { return size / piece + (size % piece != 0 ? 1 : 0); }

// At most one more than kMostTiles.
std::uint64_t tiles_in(const CUarrayMapInfo& info, const Grid& grid) {
  if (!is_cut(grid)) return 1;
  std::uint64_t count = 1;
  const auto times = [&](std::uint64_t more) {
    if (__builtin_mul_overflow(count, more, &count) || count > kMostTiles) count = kMostTiles + 1;
  };
  if (in_tail(info)) {
    times(pieces(info.subresource.miptail.size, kTailTile));
  } else {
    const auto& level = info.subresource.sparseLevel;
    times(pieces(level.extentWidth, grid.width));
    times(pieces(level.extentHeight, grid.height));
    times(pieces(level.extentDepth, grid.depth));
  }
  return count;
}

// One number for a part of an array.
std::uint64_t place_of(const CUarrayMapInfo& info, std::initializer_list<std::uint64_t> words) {
  std::uint64_t mixed = array_of(info) + static_cast<std::uint64_t>(info.subresourceType);
  for (const std::uint64_t word : words) {
    mixed = (mixed ^ word) * 0x9e3779b97f4a7c15;
    mixed ^= mixed >> 31;
  }
  return mixed;
}

// Visits each tile by its number, with its size where that is needed to tell whether all of it goes.
template <class Visit>
void each_tile(const CUarrayMapInfo& info, const Grid& grid, Visit visit) {
  if (in_tail(info)) {
    const auto& tail = info.subresource.miptail;
    if (!is_cut(grid)) return visit(place_of(info, {tail.layer, tail.offset}), tail.size);
    for (std::uint64_t at = 0; at < tail.size; at += kTailTile)
      visit(place_of(info, {tail.layer, tail.offset + at}), 0);
    return;
  }
  const auto& level = info.subresource.sparseLevel;
  const auto place = [&](std::uint64_t x, std::uint64_t y, std::uint64_t z) {
    return place_of(info, {level.level, level.layer, level.offsetX + x, level.offsetY + y, level.offsetZ + z});
  };
  if (!is_cut(grid))
    return visit(place(0, 0, 0), std::uint64_t{level.extentWidth} * level.extentHeight * level.extentDepth);
  for (std::uint64_t z = 0; z < level.extentDepth; z += grid.depth)
    for (std::uint64_t y = 0; y < level.extentHeight; y += grid.height)
      for (std::uint64_t x = 0; x < level.extentWidth; x += grid.width) visit(place(x, y, z), 0);
}

// The records that lost tiles, to be counted down once the device has passed that point.
class Undone {
 public:
  struct Run {
    std::uint64_t record;
    int tiles;
  };
  explicit Undone(std::uint64_t most)
      : size_(most * sizeof(Run)), runs_(most <= kFew ? few_ : static_cast<Run*>(os::map_memory(size_))) {}
  ~Undone() {
    if (runs_ != few_ && runs_ != nullptr) os::unmap(runs_, size_);
  }
  Undone(const Undone&) = delete;
  Undone& operator=(const Undone&) = delete;

  bool usable() const { return runs_ != nullptr; }
  bool empty() const { return count_ == 0; }
  void add(std::uint64_t record) {
    if (count_ != 0 && runs_[count_ - 1].record == record) {
      ++runs_[count_ - 1].tiles;
    } else {
      runs_[count_++] = {record, 1};
    }
  }
  void count_down(Attachment& attached) const {
    for (std::uint64_t i = 0; i < count_; ++i) count_physical(attached, runs_[i].record, 0, -runs_[i].tiles);
  }

 private:
  static constexpr unsigned kFew = 32;
  std::size_t size_;
  Run few_[kFew];
  Run* runs_;
  std::uint64_t count_ = 0;
};

void note(Attachment& attached, const CUarrayMapInfo& info, const Grid& grid, Undone& undone) {
  const bool map = info.memOperationType == CU_MEM_OPERATION_TYPE_MAP;
  Holding physical;
  const bool known = map && attached.holdings.find(Kind::physical, info.memHandle.memHandle, physical);
  int mapped = 0;
  each_tile(info, grid, [&](std::uint64_t place, std::uint64_t bytes) {
    Holding tile;
    if (attached.holdings.find(Kind::tile, place, tile) && (map || bytes >= tile.bytes)) {
      if (known && tile.extra == physical.extra && tile.bytes == bytes) return;  // what it had before
      attached.holdings.take(Kind::tile, place, tile);
      undone.add(tile.extra);
    }
    if (!known) return;
    tile = {};
    tile.kind = Kind::tile;
    tile.key = place;
    tile.context = array_of(info);
    tile.bytes = bytes;
    tile.extra = physical.extra;
    ++mapped;
    attached.holdings.insert(tile);  // without memory for it the charge stays: too much rather than too little
  });
  if (mapped == 0) return;
  g_tiles.store(1, std::memory_order_relaxed);
  count_physical(attached, physical.extra, 0, mapped);
}

template <class Call>
CUresult map_arrays(const CUarrayMapInfo* list, unsigned count, CUstream stream, bool own_stream, Call call) {
  Attachment* attached = attachment();
  if (attached == nullptr) return must_refuse() ? refusal() : call();
  if (list == nullptr || count == 0) return call();
  std::uint64_t most = 0;
  Grid grid;
  for (unsigned i = 0; i < count && most <= kMostTiles; ++i) {
    look_at(list[i], grid);
    most += tiles_in(list[i], grid);
  }
  if (most > kMostTiles) {
    explain("one call maps more tiles of sparse arrays than can be kept account of (16777216)");
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Undone undone(most);
  if (!undone.usable()) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    Guard guard(attached->physical_mutex);
    const CUresult result = call();
    if (result != CUDA_SUCCESS) return result;
    for (unsigned i = 0; i < count; ++i) {
      look_at(list[i], grid);
      note(*attached, list[i], grid, undone);
    }
  }
  if (undone.empty()) return CUDA_SUCCESS;
  // Memory goes when the device has unmapped it and not before, however many mappings or handles are left by then: the
  // last of them may be gone before the device comes here.
  if (own_stream) {
    TF_REAL(cuStreamSynchronize_ptsz)(stream);
  } else {
    TF_REAL(cuStreamSynchronize)(stream);
  }
  Guard guard(attached->physical_mutex);
  undone.count_down(*attached);
  return CUDA_SUCCESS;
}

}  // namespace

bool any_tiles() { return g_tiles.load(std::memory_order_relaxed) != 0; }

void forget_tiles(std::uint64_t array) {
  Attachment* attached = attachment();
  if (attached == nullptr || !any_tiles()) return;
  Guard guard(attached->physical_mutex);
  constexpr std::size_t kAtOnce = 64;
  std::uint64_t records[kAtOnce];
  for (std::size_t count = kAtOnce; count == kAtOnce;) {
    count = 0;
    attached->holdings.remove_if([&](const Holding& holding) {
      if (count == kAtOnce || holding.kind != Kind::tile || holding.context != array) return false;
      records[count++] = holding.extra;
      return true;
    });
    for (std::size_t i = 0; i < count; ++i) count_physical(*attached, records[i], 0, -1);
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
