#pragma once
// Device memory of another process, mapped here: the same bytes, charged to their owner alone. Its owner describes it
// in a few words that fit the API's handles. Opening the same memory again gives the same address and counts.
// Thread-safe.
#include <cstdint>
#include <memory>

#include "sim/cuda/abi.h"
#include "sim/cuda/address_space.h"

namespace tensor_fusion::sim::cuda {

struct ForeignMemory {
  std::uint32_t pid;
  std::int32_t fd;  // of the owner's arena
  std::uint32_t engine;
  std::uint32_t unused;
  std::uint64_t offset, bytes, id;
};

// Of device memory of this process.
[[nodiscard]] ForeignMemory describe_for_others(const Allocation& allocation);
// For a context, or for whatever keeps it (an imported pool). INVALID_DEVICE for a device not visible here, MAP_FAILED
// when the owner is gone.
CUresult open_foreign_memory(const ForeignMemory& what, Context* context, std::shared_ptr<void> keeper,
                             CUdeviceptr& out);
// Part of an imported allocation's file; each time at a place of its own.
CUresult map_foreign_file(int fd, std::uint64_t offset, std::uint64_t bytes, Device* device, Context& context,
                          std::shared_ptr<void> keeper, CUdeviceptr& out);
// INVALID_VALUE for an address that is not open. The caller has waited for those who may use it.
CUresult close_foreign_memory(CUdeviceptr address);
// However often it was opened: its context is going.
void drop_foreign_memory(CUdeviceptr address);

}  // namespace tensor_fusion::sim::cuda
