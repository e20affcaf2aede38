#pragma once
// Allocating and freeing for the memory entry points: each maker charges, cuts, and enters the range into the address
// space, or does nothing. Thread-safe.
#include <cstdint>
#include <memory>

#include "sim/cuda/abi.h"
#include "sim/cuda/address_space.h"
#include "sim/cuda/context.h"

namespace tensor_fusion::sim::cuda {

inline constexpr std::uint64_t kManagedAlignment = 4096;

// Device or managed memory of the context's device.
CUresult allocate_device(Context& context, std::uint64_t bytes, Allocation::Kind kind, unsigned flags,
                         CUdeviceptr& out);
// Frees device or managed memory by its first address; waits for the context's work first, as the API does.
CUresult free_device(CUdeviceptr address);
CUresult allocate_host(Context& context, std::uint64_t bytes, unsigned flags, void*& out);
CUresult free_host(void* address);
// Everything the context owns, at its end.
void free_context_memory(Context& context);
// Gives the bytes behind an allocation back; it has left the address space already.
void give_back(Allocation& allocation);

}  // namespace tensor_fusion::sim::cuda
