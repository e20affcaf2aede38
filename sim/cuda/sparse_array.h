#pragma once
// The memory of arrays that got none when they were made. Their bytes lie at addresses of their own that cost nothing;
// which of them memory stands behind is kept tile by tile, so that the memory lives while it is mapped. A tile of 64
// KiB has the shape that graphics interfaces give it. Reading where nothing is mapped gives zeros. Thread-safe.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "sim/cuda/abi.h"

namespace tensor_fusion::sim::cuda {

class Array;

inline constexpr std::uint64_t kTileBytes = 65536;

struct Extent {
  std::uint64_t width = 1, height = 1, depth = 1;  // elements
};

// Of an array with these properties; {0, 0, 0} when there are no such sparse arrays.
[[nodiscard]] Extent tile_of(const CUDA_ARRAY3D_DESCRIPTOR& shape);
// Whether a level is smaller than a tile, and therefore lies in the tail with all smaller ones.
[[nodiscard]] bool in_tail(const CUDA_ARRAY3D_DESCRIPTOR& level);
// Bytes of memory that fill a level outside the tail; of one layer, or all of them.
[[nodiscard]] std::uint64_t tiled_bytes(const CUDA_ARRAY3D_DESCRIPTOR& level);

class SparseBytes {
 public:
  static std::shared_ptr<SparseBytes> reserve(std::uint64_t bytes);
  ~SparseBytes();
  SparseBytes(const SparseBytes&) = delete;
  SparseBytes& operator=(const SparseBytes&) = delete;
  [[nodiscard]] std::uint64_t address() const { return address_; }

  using Tile = std::array<std::uint64_t, 4>;  // x, y, z or layer; or layer and offset of a tail, and which it is
  void map(const Tile& tile, std::shared_ptr<void> memory);
  void unmap(const Tile& tile);

 private:
  SparseBytes(std::uint64_t address, std::uint64_t bytes) : address_(address), bytes_(bytes) {}
  const std::uint64_t address_, bytes_;
  std::mutex mutex_;
  std::map<Tile, std::shared_ptr<void>> mapped_;
};

}  // namespace tensor_fusion::sim::cuda
