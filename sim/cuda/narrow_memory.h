#pragma once
// Device memory whose addresses fit 32 bits, for the entry points from before CUDA 3.2: host memory in the lowest 4 GiB
// of this process, charged to its device like any other. It cannot be handed to another process. Thread-safe.
#include <cstdint>

#include "sim/cuda/abi.h"
#include "sim/cuda/address_space.h"
#include "sim/cuda/context.h"

namespace tensor_fusion::sim::cuda {

[[nodiscard]] constexpr bool is_narrow(std::uint64_t address) { return address >> 32 == 0; }
// OUT_OF_MEMORY also when there is room on the device but not at such addresses.
CUresult allocate_narrow(Context& context, std::uint64_t bytes, CUdeviceptr_v1& out);
void release_narrow(const Allocation& allocation);

}  // namespace tensor_fusion::sim::cuda
