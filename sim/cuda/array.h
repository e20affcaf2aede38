#pragma once
// CUDA arrays: device memory with a shape. Ours lie in rows without padding; sparse ones get their memory later, tile
// by tile (sparse_array.h), deferred ones have none, and both cost nothing. Mipmapped arrays are a list of arrays.
// Immutable after they are made.
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/context.h"
#include "sim/cuda/handle.h"
#include "sim/cuda/sparse_array.h"

namespace tensor_fusion::sim::cuda {

class Array {
 public:
  static constexpr HandleKind kHandleKind = HandleKind::array;
  // INVALID_VALUE for a shape that no device has, OUT_OF_MEMORY.
  static CUresult create(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& shape, std::shared_ptr<Array>& out);
  explicit Array(const CUDA_ARRAY3D_DESCRIPTOR& array_shape) : shape(array_shape) {}
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  const CUDA_ARRAY3D_DESCRIPTOR shape;
  Device* device = nullptr;
  std::shared_ptr<Context> context;
  std::uint64_t address = 0, bytes = 0;  // 0 bytes: nothing to read or write
  std::shared_ptr<SparseBytes> sparse;   // set: where these bytes lie, which nothing was charged for
  bool level = false;                    // part of a mipmapped array: not to be destroyed alone
  std::uint64_t handle_value = 0;
  [[nodiscard]] bool belongs_to(const Context& owner) const { return context.get() == &owner; }
  [[nodiscard]] std::uint64_t pitch() const;
  [[nodiscard]] std::uint64_t rows() const { return shape.Height == 0 ? 1 : shape.Height; }
  [[nodiscard]] std::uint64_t slices() const { return shape.Depth == 0 ? 1 : shape.Depth; }
};

struct MipmappedArray {
  static constexpr HandleKind kHandleKind = HandleKind::mipmap;
  std::vector<std::shared_ptr<Array>> levels;  // at least one
  [[nodiscard]] bool belongs_to(const Context& owner) const { return levels.front()->belongs_to(owner); }
  std::uint64_t handle_value = 0;
};

[[nodiscard]] HandleTable<Array>& arrays();
[[nodiscard]] HandleTable<MipmappedArray>& mipmapped_arrays();
[[nodiscard]] std::uint64_t sparse_bytes(const std::vector<std::shared_ptr<Array>>& levels);  // of memory for all tiles
[[nodiscard]] std::uint64_t element_bytes(CUarray_format format, unsigned channels);          // 0: unknown

}  // namespace tensor_fusion::sim::cuda
