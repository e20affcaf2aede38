#include "sim/cuda/narrow_memory.h"

#include <sys/mman.h>

#include <mutex>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr std::uint64_t kFirst = 0x1000'0000, kEnd = std::uint64_t{1} << 32;  // above where programs lie
constexpr std::uint64_t kPage = 4096;

// Host memory at an address that fits; 0 when there is none. Looks on from where it found some last.
std::uint64_t map_low(std::uint64_t bytes) {
  static std::mutex mutex;
  static std::uint64_t next = kFirst;
  const std::lock_guard lock(mutex);
  const std::uint64_t step = round_up(bytes, kChunkBytes);
  for (std::uint64_t tried = 0; tried < kEnd; tried += step, next += step) {
    if (next + bytes > kEnd) next = kFirst;
    if (next + bytes > kEnd) return 0;
    void* const wish = reinterpret_cast<void*>(next);
    void* const got =
        ::mmap(wish, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED) continue;
    if (got == wish) {
      next += step;
      return reinterpret_cast<std::uint64_t>(got);
    }
    ::munmap(got, bytes);
  }
  return 0;
}

}  // namespace

CUresult allocate_narrow(Context& context, std::uint64_t bytes, CUdeviceptr_v1& out) {
  Device& device = context.device();
  const std::uint64_t extent = round_up(bytes, kAllocationUnit);
  TF_TRY(device.charge(extent));
  const std::uint64_t base = map_low(round_up(bytes, kPage));
  if (base == 0) {
    device.uncharge(extent);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto& addresses = Driver::get().addresses();
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = Allocation::Kind::device;
  allocation->base = base;
  allocation->size = bytes;
  allocation->extent = extent;
  allocation->device = &device;
  allocation->context_id = context.id();
  allocation->owner = context.weak_from_this();
  allocation->id = addresses.next_id();
  if (!addresses.add(allocation)) {  // the program has registered host memory there
    release_narrow(*allocation);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  out = static_cast<CUdeviceptr_v1>(base);
  return CUDA_SUCCESS;
}

void release_narrow(const Allocation& allocation) {
  ::munmap(reinterpret_cast<void*>(allocation.base), round_up(allocation.size, kPage));
  allocation.device->uncharge(allocation.extent);
}

}  // namespace tensor_fusion::sim::cuda
