#include "sim/cuda/foreign_memory.h"

#include <unistd.h>

#include <map>
#include <mutex>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {
namespace {

struct Opened {
  std::uint32_t pid = 0;
  std::uint64_t id = 0;
  std::byte* mapped = nullptr;
  std::uint64_t mapped_bytes = 0;
  unsigned count = 0;
};
std::mutex mutex;
std::map<CUdeviceptr, Opened>& opened() {  // by address
  static auto* all = new std::map<CUdeviceptr, Opened>;
  return *all;
}

void unmap(std::map<CUdeviceptr, Opened>::iterator which) {  // under mutex
  Driver::get().addresses().remove(which->first);
  device::free_addresses(which->second.mapped, which->second.mapped_bytes);
  opened().erase(which);
}

CUresult map(Opened as, int fd, std::uint64_t offset, std::uint64_t length, Device* device, Context* context,
             std::shared_ptr<void> keeper, CUdeviceptr& out) {  // under mutex
  const std::uint64_t first = offset / device::kArenaPage * device::kArenaPage;
  const std::uint64_t bytes = round_up(offset + length, device::kArenaPage) - first;
  const auto place = device::reserve_addresses(bytes, device::kArenaPage);
  const bool mapped =
      place && device::map_at(*place, bytes, fd, first) && device::protect(*place, bytes, device::Access::read_write);
  if (!mapped) {
    if (place) device::free_addresses(*place, bytes);
    return CUDA_ERROR_MAP_FAILED;
  }
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = Allocation::Kind::ipc;
  allocation->base = reinterpret_cast<std::uint64_t>(*place) + (offset - first);
  allocation->size = length;
  allocation->extent = round_up(length, kAllocationUnit);
  allocation->device = device;
  if (context != nullptr) {
    allocation->context_id = context->id();
    allocation->owner = context->weak_from_this();
  }
  allocation->id = Driver::get().addresses().next_id();
  allocation->keeper = std::move(keeper);
  Driver::get().addresses().add(allocation);
  as.mapped = *place;
  as.mapped_bytes = bytes;
  as.count = 1;
  opened()[allocation->base] = as;
  out = allocation->base;
  return CUDA_SUCCESS;
}

}  // namespace

ForeignMemory describe_for_others(const Allocation& allocation) {
  const auto* arena = allocation.device->arena();
  allocation.device->let_others_open();
  return {static_cast<std::uint32_t>(::getpid()),
          arena->fd(),
          allocation.device->engine.id,
          0,
          allocation.base - reinterpret_cast<std::uint64_t>(arena->base()),
          allocation.size,
          allocation.id};
}

CUresult open_foreign_memory(const ForeignMemory& what, Context* context, std::shared_ptr<void> keeper,
                             CUdeviceptr& out) {
  Device* device = nullptr;
  for (const auto& each : Driver::get().devices())
    if (each->engine.id == what.engine) device = each.get();
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(mutex);
  for (auto& [address, known] : opened()) {
    if (known.pid != what.pid || known.id != what.id) continue;
    ++known.count;
    out = address;
    return CUDA_SUCCESS;
  }
  const auto fd = device::open_foreign(what.pid, what.fd);
  if (!fd || !device::hold_range(*fd, what.offset, what.bytes)) {
    if (fd) ::close(*fd);
    return CUDA_ERROR_MAP_FAILED;
  }
  const CUresult result =
      map({what.pid, what.id, nullptr, 0, 1}, *fd, what.offset, what.bytes, device, context, std::move(keeper), out);
  ::close(*fd);
  return result;
}

CUresult map_foreign_file(int fd, std::uint64_t offset, std::uint64_t bytes, Device* device, Context& context,
                          std::shared_ptr<void> keeper, CUdeviceptr& out) {
  const std::lock_guard lock(mutex);
  return map({}, fd, offset, bytes, device, &context, std::move(keeper), out);
}

CUresult close_foreign_memory(CUdeviceptr address) {
  const std::lock_guard lock(mutex);
  const auto found = opened().find(address);
  if (found == opened().end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.count == 0) unmap(found);
  return CUDA_SUCCESS;
}

void drop_foreign_memory(CUdeviceptr address) {
  const std::lock_guard lock(mutex);
  if (const auto found = opened().find(address); found != opened().end()) unmap(found);
}

}  // namespace tensor_fusion::sim::cuda
