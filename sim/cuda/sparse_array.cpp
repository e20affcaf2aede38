#include "sim/cuda/sparse_array.h"

#include <sys/mman.h>

#include "sim/cuda/array.h"
#include "sim/cuda/device.h"

namespace tensor_fusion::sim::cuda {

Extent tile_of(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  if (shape.Height == 0) return {0, 0, 0};
  const bool flat = shape.Depth == 0 || (shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  switch (element_bytes(shape.Format, shape.NumChannels)) {
    case 1:
      return flat ? Extent{256, 256, 1} : Extent{64, 32, 32};
    case 2:
      return flat ? Extent{256, 128, 1} : Extent{32, 32, 32};
    case 4:
      return flat ? Extent{128, 128, 1} : Extent{32, 32, 16};
    case 8:
      return flat ? Extent{128, 64, 1} : Extent{32, 16, 16};
    case 16:
      return flat ? Extent{64, 64, 1} : Extent{16, 16, 16};
    default:
      return {0, 0, 0};
  }
}

bool in_tail(const CUDA_ARRAY3D_DESCRIPTOR& level) {
  const Extent tile = tile_of(level);
  return level.Width < tile.width || level.Height < tile.height || (tile.depth > 1 && level.Depth < tile.depth);
}

std::uint64_t tiled_bytes(const CUDA_ARRAY3D_DESCRIPTOR& level) {
  const Extent tile = tile_of(level);
  const auto tiles = [](std::uint64_t elements, std::uint64_t of) { return round_up(elements, of) / of; };
  const std::uint64_t slices = level.Depth == 0 ? 1 : level.Depth;
  return kTileBytes * tiles(level.Width, tile.width) * tiles(level.Height, tile.height) * tiles(slices, tile.depth);
}

std::shared_ptr<SparseBytes> SparseBytes::reserve(std::uint64_t bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  return std::shared_ptr<SparseBytes>(new SparseBytes(reinterpret_cast<std::uint64_t>(address), bytes));
}

SparseBytes::~SparseBytes() { ::munmap(reinterpret_cast<void*>(address_), bytes_); }

void SparseBytes::map(const Tile& tile, std::shared_ptr<void> memory) {
  const std::lock_guard lock(mutex_);
  mapped_[tile] = std::move(memory);
}

void SparseBytes::unmap(const Tile& tile) {
  const std::lock_guard lock(mutex_);
  mapped_.erase(tile);
}

}  // namespace tensor_fusion::sim::cuda
