#pragma once
// A set of one device's multiprocessors, as device resources carry it. Splitting follows the granularity of the card's
// generation: groups of a least size, in steps. A value; nothing here is owned.
#include <array>
#include <bit>
#include <cstdint>

#include "contract/cuda_resource.h"
#include "sim/cuda/abi.h"

namespace tensor_fusion::sim::cuda {

class Device;

class Multiprocessors {
 public:
  Multiprocessors() = default;
  static Multiprocessors all_of(const Device& device);
  // INVALID_RESOURCE_TYPE for what is not a set of multiprocessors that this driver has given out.
  static CUresult from(const CUdevResource& resource, Multiprocessors& out);
  [[nodiscard]] CUdevResource as_resource() const;

  // Takes `count` of them out into a set of their own.
  [[nodiscard]] Multiprocessors take(unsigned count);
  // INVALID_RESOURCE_CONFIGURATION when the other is of another device or shares one with this.
  CUresult add(const Multiprocessors& other);

  [[nodiscard]] unsigned count() const;
  [[nodiscard]] int ordinal() const { return ordinal_; }

 private:
  int ordinal_ = -1;  // of the device
  std::array<std::uint64_t, 4> mask_{};
};

// How many multiprocessors a group holds that must have at least `wanted`.
[[nodiscard]] unsigned group_size(const Device& device, unsigned wanted, unsigned split_flags);

}  // namespace tensor_fusion::sim::cuda
