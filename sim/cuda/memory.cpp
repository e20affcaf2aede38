#include "sim/cuda/memory.h"

#include <sys/mman.h>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/foreign_memory.h"
#include "sim/cuda/narrow_memory.h"

namespace tensor_fusion::sim::cuda {

CUresult allocate_device(Context& context, std::uint64_t bytes, Allocation::Kind kind, unsigned flags,
                         CUdeviceptr& out) {
  Device& device = context.device();
  std::uint64_t address = 0;
  TF_TRY(device.allocate(bytes, address, kind == Allocation::Kind::managed ? kManagedAlignment : kAllocationUnit));
  auto& addresses = Driver::get().addresses();
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = kind;
  allocation->base = address;
  allocation->size = bytes;
  allocation->extent = round_up(bytes, kAllocationUnit);
  allocation->device = &device;
  allocation->context_id = context.id();
  allocation->owner = context.weak_from_this();
  allocation->id = addresses.next_id();
  allocation->flags = flags;
  if (!addresses.add(allocation)) {
    device.release(address, bytes);
    return CUDA_ERROR_UNKNOWN;
  }
  out = address;
  return CUDA_SUCCESS;
}

CUresult allocate_host(Context& context, std::uint64_t bytes, unsigned flags, void*& out) {
  const std::uint64_t extent = round_up(bytes, 4096);
  void* address = ::mmap(nullptr, extent, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  auto& addresses = Driver::get().addresses();
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = Allocation::Kind::host;
  allocation->base = reinterpret_cast<std::uint64_t>(address);
  allocation->size = bytes;
  allocation->extent = extent;
  allocation->context_id = context.id();
  allocation->owner = context.weak_from_this();
  allocation->id = addresses.next_id();
  allocation->flags = flags;
  if (!addresses.add(allocation)) {
    ::munmap(address, extent);
    return CUDA_ERROR_UNKNOWN;
  }
  out = address;
  return CUDA_SUCCESS;
}

void give_back(Allocation& allocation) {
  switch (allocation.kind) {
    case Allocation::Kind::device:
    case Allocation::Kind::managed:
      if (is_narrow(allocation.base))
        release_narrow(allocation);
      else
        allocation.device->release(allocation.base, allocation.size);
      break;
    case Allocation::Kind::host:
      ::munmap(reinterpret_cast<void*>(allocation.base), allocation.extent);
      break;
    case Allocation::Kind::ipc:
      drop_foreign_memory(allocation.base);
      break;
    case Allocation::Kind::registered:
    case Allocation::Kind::mapped:
    case Allocation::Kind::pool:
      break;  // their keepers do it
  }
  allocation.keeper.reset();
}

CUresult free_device(CUdeviceptr address) {
  auto& addresses = Driver::get().addresses();
  const auto allocation = addresses.exact(address);
  if (!allocation || (allocation->kind != Allocation::Kind::device && allocation->kind != Allocation::Kind::managed))
    return CUDA_ERROR_INVALID_VALUE;
  if (const auto owner = allocation->owner.lock(); owner && !owner->destroyed()) TF_TRY(owner->synchronize());
  const auto removed = addresses.remove(address);
  if (!removed) return CUDA_ERROR_INVALID_VALUE;
  give_back(*removed);
  return CUDA_SUCCESS;
}

CUresult free_host(void* address) {
  auto& addresses = Driver::get().addresses();
  const auto allocation = addresses.exact(reinterpret_cast<std::uint64_t>(address));
  if (!allocation || allocation->kind != Allocation::Kind::host) return CUDA_ERROR_INVALID_VALUE;
  if (const auto owner = allocation->owner.lock(); owner && !owner->destroyed()) TF_TRY(owner->synchronize());
  const auto removed = addresses.remove(allocation->base);
  if (!removed) return CUDA_ERROR_INVALID_VALUE;
  give_back(*removed);
  return CUDA_SUCCESS;
}

void free_context_memory(Context& context) {
  auto& addresses = Driver::get().addresses();
  for (const auto& allocation : addresses.of_context(context.id()))
    if (const auto removed = addresses.remove(allocation->base)) give_back(*removed);
}

}  // namespace tensor_fusion::sim::cuda
