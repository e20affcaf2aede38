// cuPointerGetAttribute and its relatives.
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/narrow_memory.h"
#include "sim/cuda/pool.h"

namespace tensor_fusion::sim::cuda {
namespace {

template <typename T>
CUresult put(void* out, T value) {
  *static_cast<T*>(out) = value;
  return CUDA_SUCCESS;
}

CUresult attribute(void* out, CUpointer_attribute name, CUdeviceptr address) {
  const auto allocation = Driver::get().addresses().find(address);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  const auto owner = allocation->owner.lock();
  const Pool* const pool =
      allocation->kind == Allocation::Kind::pool ? static_cast<const Pool*>(allocation->keeper.get()) : nullptr;
  const bool managed = pool != nullptr ? pool->managed() : allocation->kind == Allocation::Kind::managed;
  switch (name) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(out, owner ? owner->handle() : CUcontext{});
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put<unsigned>(out, allocation->on_device() ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(out, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!allocation->host_side() && !managed && (pool == nullptr || allocation->on_device()))
        return CUDA_ERROR_INVALID_VALUE;
      return put(out, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put<unsigned>(out, allocation->sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put<std::uint64_t>(out, allocation->id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put<unsigned>(out, managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put<int>(out, allocation->on_device() ? allocation->device->ordinal
                           : owner                 ? owner->device().ordinal
                                                   : -2);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put<unsigned>(out, allocation->kind == Allocation::Kind::device && !is_narrow(allocation->base));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(out, allocation->base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put<std::size_t>(out, allocation->size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put<unsigned>(out, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<std::uint64_t>(
          out, allocation->kind == Allocation::Kind::mapped ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put<unsigned>(out, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put<int>(out, allocation->writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(out, pool != nullptr ? pool->handle() : CUmemoryPool{});
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What an unknown address answers in the form that takes several attributes: zeros, and success.
void put_unknown(void* out, CUpointer_attribute name) {
  switch (name) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) = -2;
      return;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      *static_cast<unsigned*>(out) = 0;
      return;
    default:
      *static_cast<std::uint64_t*>(out) = 0;
      return;
  }
}

}  // namespace

TF_API(cuPointerGetAttribute, (void* out, CUpointer_attribute name, CUdeviceptr address)) {
  TF_TRY(enter("cuPointerGetAttribute"));
  return out != nullptr ? attribute(out, name, address) : CUDA_ERROR_INVALID_VALUE;
}

TF_API(cuPointerGetAttributes, (unsigned count, CUpointer_attribute* names, void** out, CUdeviceptr address)) {
  TF_TRY(enter("cuPointerGetAttributes"));
  if (count == 0 || names == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (out[i] == nullptr || names[i] < CU_POINTER_ATTRIBUTE_CONTEXT || names[i] > CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID)
      return CUDA_ERROR_INVALID_VALUE;
    if (attribute(out[i], names[i], address) != CUDA_SUCCESS) put_unknown(out[i], names[i]);
  }
  return CUDA_SUCCESS;
}

TF_API(cuPointerSetAttribute, (const void* value, CUpointer_attribute name, CUdeviceptr address)) {
  TF_TRY(enter("cuPointerSetAttribute"));
  if (value == nullptr || name != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = Driver::get().addresses().find(address);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  allocation->sync_memops = *static_cast<const unsigned*>(value) != 0;
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
