// Device, managed and host memory, and questions about addresses.
#include <unistd.h>

#include "sim/cuda/capture.h"
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/foreign_memory.h"
#include "sim/cuda/graph_memory.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/physical_account.h"
#include "sim/cuda/pool.h"
#include "sim/device/memory.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr std::size_t kPitchUnit = 512;

CUresult free_memory(const char* symbol, CUdeviceptr address) {
  Context* context = nullptr;
  TF_TRY(enter(symbol, {}, context));
  if (address == 0) return CUDA_SUCCESS;
  TF_TRY(check_capture_unsafe());
  const auto allocation = Driver::get().addresses().exact(address);
  if (allocation && allocation->kind == Allocation::Kind::ipc && allocation->keeper) {  // of an imported pool
    TF_TRY(context->synchronize());
    return close_foreign_memory(address);
  }
  if (allocation && graph_owns(address)) {
    TF_TRY(context->synchronize());
    return free_graph_memory(address);
  }
  if (allocation && allocation->kind == Allocation::Kind::pool) {
    TF_TRY(context->synchronize());
    return std::static_pointer_cast<Pool>(allocation->keeper)->free(address, nullptr);
  }
  return free_device(address);
}

CUresult allocate_pinned(const char* symbol, void** out, std::size_t bytes, unsigned flags) {
  Context* context = nullptr;
  TF_TRY(enter(symbol, "alloc", context));
  if (out == nullptr || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  TF_TRY(check_capture_unsafe());
  if (bytes == 0) {  // succeeds and gives nothing
    *out = nullptr;
    return CUDA_SUCCESS;
  }
  return allocate_host(*context, bytes, flags, *out);
}

CUresult register_host(void* address, std::size_t bytes, unsigned flags) {
  Context* context = nullptr;
  TF_TRY(enter("cuMemHostRegister", {}, context));
  if (address == nullptr || bytes == 0 || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  auto& addresses = Driver::get().addresses();
  const auto base = reinterpret_cast<std::uint64_t>(address);
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = Allocation::Kind::registered;
  allocation->base = base;
  allocation->size = allocation->extent = bytes;
  allocation->context_id = context->id();
  allocation->owner = context->weak_from_this();
  allocation->id = addresses.next_id();
  allocation->flags = flags;
  allocation->writable = (flags & CU_MEMHOSTREGISTER_READ_ONLY) == 0;
  return addresses.add(allocation) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

}  // namespace

TF_API(cuMemGetInfo_v2, (std::size_t* free, std::size_t* total)) {
  Context* context = nullptr;
  TF_TRY(enter("cuMemGetInfo", {}, context));
  (void)collect_payments();
  const auto info = device::memory_info(Driver::get().machine(), context->device().engine.memory_domain);
  if (free != nullptr) *free = info.capacity_bytes - std::min(info.used_bytes, info.capacity_bytes);
  if (total != nullptr) *total = info.capacity_bytes;
  return CUDA_SUCCESS;
}

TF_API(cuMemAlloc_v2, (CUdeviceptr * out, std::size_t bytes)) {
  Context* context = nullptr;
  TF_TRY(enter("cuMemAlloc", "alloc", context));
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  TF_TRY(check_capture_unsafe());
  return allocate_device(*context, bytes, Allocation::Kind::device, 0, *out);
}

TF_API(cuMemAllocPitch_v2,
       (CUdeviceptr * out, std::size_t* pitch, std::size_t width, std::size_t height, unsigned element)) {
  Context* context = nullptr;
  TF_TRY(enter("cuMemAllocPitch", "alloc", context));
  if (out == nullptr || pitch == nullptr || width == 0 || height == 0 ||
      (element != 4 && element != 8 && element != 16))
    return CUDA_ERROR_INVALID_VALUE;
  TF_TRY(check_capture_unsafe());
  const std::size_t row = round_up(width, kPitchUnit);
  std::size_t bytes = 0;
  if (row < width || __builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  TF_TRY(allocate_device(*context, bytes, Allocation::Kind::device, 0, *out));
  *pitch = row;
  return CUDA_SUCCESS;
}

TF_API(cuMemAllocManaged, (CUdeviceptr * out, std::size_t bytes, unsigned flags)) {
  Context* context = nullptr;
  TF_TRY(enter("cuMemAllocManaged", "alloc", context));
  if (out == nullptr || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  TF_TRY(check_capture_unsafe());
  return allocate_device(*context, bytes, Allocation::Kind::managed, flags, *out);
}

TF_API(cuMemFree_v2, (CUdeviceptr address)) { return free_memory("cuMemFree", address); }

TF_API(cuMemGetAddressRange_v2, (CUdeviceptr * base, std::size_t* bytes, CUdeviceptr address)) {
  Context* context = nullptr;
  TF_TRY(enter("cuMemGetAddressRange", {}, context));
  const auto allocation = Driver::get().addresses().find(address);
  if (!allocation || allocation->host_side()) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = allocation->base;
  if (bytes != nullptr) *bytes = allocation->size;
  return CUDA_SUCCESS;
}

TF_API(cuMemAllocHost_v2, (void** out, std::size_t bytes)) { return allocate_pinned("cuMemAllocHost", out, bytes, 0); }
TF_API(cuMemAllocHost, (void** out, unsigned bytes)) { return allocate_pinned("cuMemAllocHost", out, bytes, 0); }
TF_API(cuMemHostAlloc, (void** out, std::size_t bytes, unsigned flags)) {
  return allocate_pinned("cuMemHostAlloc", out, bytes, flags);
}
TF_API(cuMemFreeHost, (void* address)) {
  Context* context = nullptr;
  TF_TRY(enter("cuMemFreeHost", {}, context));
  if (address == nullptr) return CUDA_SUCCESS;
  return free_host(address);
}

TF_API(cuMemHostRegister_v2, (void* address, std::size_t bytes, unsigned flags)) {
  return register_host(address, bytes, flags);
}
TF_API(cuMemHostRegister, (void* address, std::size_t bytes, unsigned flags)) {
  return register_host(address, bytes, flags);
}
TF_API(cuMemHostUnregister, (void* address)) {
  Context* context = nullptr;
  TF_TRY(enter("cuMemHostUnregister", {}, context));
  auto& addresses = Driver::get().addresses();
  const auto allocation = addresses.exact(reinterpret_cast<std::uint64_t>(address));
  if (!allocation || allocation->kind != Allocation::Kind::registered) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  TF_TRY(context->synchronize());
  addresses.remove(allocation->base);
  return CUDA_SUCCESS;
}

TF_API(cuMemHostGetDevicePointer_v2, (CUdeviceptr * out, void* address, unsigned flags)) {
  Context* context = nullptr;
  TF_TRY(enter("cuMemHostGetDevicePointer", {}, context));
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = Driver::get().addresses().find(reinterpret_cast<std::uint64_t>(address));
  if (!allocation || (!allocation->host_side() && allocation->kind != Allocation::Kind::managed))
    return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<std::uint64_t>(address);  // one address space
  return CUDA_SUCCESS;
}

TF_API(cuMemHostGetFlags, (unsigned* out, void* address)) {
  Context* context = nullptr;
  TF_TRY(enter("cuMemHostGetFlags", {}, context));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = Driver::get().addresses().find(reinterpret_cast<std::uint64_t>(address));
  if (!allocation || allocation->kind != Allocation::Kind::host) return CUDA_ERROR_INVALID_VALUE;
  *out = allocation->flags | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

// Older than 64-bit sizes: what does not fit is the greatest that does.
TF_API(cuMemGetInfo, (unsigned* free, unsigned* total)) {
  std::size_t wide_free = 0, wide_total = 0;
  TF_TRY(cuMemGetInfo_v2(&wide_free, &wide_total));
  if (free != nullptr) *free = static_cast<unsigned>(std::min<std::size_t>(wide_free, UINT32_MAX));
  if (total != nullptr) *total = static_cast<unsigned>(std::min<std::size_t>(wide_total, UINT32_MAX));
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
