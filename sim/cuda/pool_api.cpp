// Stream-ordered allocation and memory pools.
#include "sim/cuda/capture.h"
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/foreign_memory.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/graph_memory.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/pool.h"
#include "sim/cuda/pool_place.h"
#include "sim/cuda/stream.h"

namespace tensor_fusion::sim::cuda {
namespace {

CUresult find_pool(const char* symbol, CUmemoryPool handle, std::shared_ptr<Pool>& pool) {
  TF_TRY(enter(symbol));
  pool = pools().share(handle);
  return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult allocate(const char* symbol, Flavour flavour, CUdeviceptr* out, std::size_t bytes, CUmemoryPool pool_handle,
                  bool own_pool, CUstream stream_handle) {
  TF_TRY(enter(symbol, "alloc"));
  Stream* stream = nullptr;
  TF_TRY(find_work_stream(stream_handle, flavour, stream));
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Pool> pool = own_pool ? pools().share(pool_handle) : stream->context().device().current_pool();
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capturing) {
    if (pool->device() == nullptr) return refuse_once("cuMemAllocFromPoolAsync in a capture, of host memory");
    auto command = std::make_shared<AllocCommand>();
    TF_TRY(make_graph_memory(*pool->device(), bytes, command->memory));
    command->asked.poolProps = pool->properties();
    command->asked.bytesize = bytes;
    command->asked.dptr = *out = command->memory->address;
    return issue(*stream, std::shared_ptr<const AllocCommand>(std::move(command)));
  }
  const std::lock_guard lock(stream->mutex());
  TF_TRY(check_capture_conflict(*stream));
  return pool->allocate(bytes, *stream, *out);
}

CUresult free_async(Flavour flavour, CUdeviceptr address, CUstream stream_handle) {
  TF_TRY(enter("cuMemFreeAsync"));
  Stream* stream = nullptr;
  TF_TRY(find_work_stream(stream_handle, flavour, stream));
  if (address == 0) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capturing) return issue(*stream, std::make_shared<const FreeCommand>(FreeCommand{address}));
  const std::lock_guard lock(stream->mutex());
  TF_TRY(check_capture_conflict(*stream));
  const auto allocation = Driver::get().addresses().exact(address);
  if (allocation && allocation->kind == Allocation::Kind::ipc && allocation->keeper) {  // of an imported pool
    TF_TRY(stream->synchronize());
    return close_foreign_memory(address);
  }
  if (allocation && allocation->kind == Allocation::Kind::device &&
      allocation->context_id != 0) {  // of cuMemAlloc: waits
    TF_TRY(stream->synchronize());
    return free_device(address);
  }
  return enqueue_free(*stream, {address});
}

CUresult pool_of(CUmemoryPool* out, const std::shared_ptr<Pool>& pool) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = pool->handle();
  return CUDA_SUCCESS;
}

}  // namespace

TF_STREAM_API(cuMemAllocAsync, (CUdeviceptr * out, std::size_t bytes, CUstream stream),
              { return allocate("cuMemAllocAsync", kFlavour, out, bytes, nullptr, false, stream); })
TF_STREAM_API(cuMemAllocFromPoolAsync, (CUdeviceptr * out, std::size_t bytes, CUmemoryPool pool, CUstream stream),
              { return allocate("cuMemAllocFromPoolAsync", kFlavour, out, bytes, pool, true, stream); })
TF_STREAM_API(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), { return free_async(kFlavour, address, stream); })

TF_API(cuMemPoolCreate, (CUmemoryPool * out, const CUmemPoolProps* properties)) {
  TF_TRY(enter("cuMemPoolCreate"));
  if (out == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_pool_place(properties->location, properties->allocType, device));
  if ((properties->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
    return refuse_once("cuMemPoolCreate for other handles than descriptors");  // as the device attribute says
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE && properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE && device == nullptr)
    return refuse_once("cuMemPoolCreate for other processes, of host memory");
  auto pool = std::make_shared<Pool>(device, *properties);
  pool->handle_value = pools().insert(pool);
  *out = pool->handle();
  return CUDA_SUCCESS;
}
TF_API(cuMemPoolDestroy, (CUmemoryPool handle)) {
  std::shared_ptr<Pool> pool;
  TF_TRY(find_pool("cuMemPoolDestroy", handle, pool));
  if (pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  forget_current_pool(pool);
  pools().remove(handle);  // its memory goes with the last allocation
  return CUDA_SUCCESS;
}
TF_API(cuMemPoolTrimTo, (CUmemoryPool handle, std::size_t keep)) {
  std::shared_ptr<Pool> pool;
  TF_TRY(find_pool("cuMemPoolTrimTo", handle, pool));
  pool->trim(keep);
  return CUDA_SUCCESS;
}
TF_API(cuMemPoolGetAttribute, (CUmemoryPool handle, CUmemPool_attribute attribute, void* value)) {
  std::shared_ptr<Pool> pool;
  TF_TRY(find_pool("cuMemPoolGetAttribute", handle, pool));
  return value != nullptr ? pool->get(attribute, value) : CUDA_ERROR_INVALID_VALUE;
}
TF_API(cuMemPoolSetAttribute, (CUmemoryPool handle, CUmemPool_attribute attribute, void* value)) {
  std::shared_ptr<Pool> pool;
  TF_TRY(find_pool("cuMemPoolSetAttribute", handle, pool));
  return value != nullptr ? pool->set(attribute, value) : CUDA_ERROR_INVALID_VALUE;
}
TF_API(cuMemPoolSetAccess, (CUmemoryPool handle, const CUmemAccessDesc* access, std::size_t count)) {
  std::shared_ptr<Pool> pool;
  TF_TRY(find_pool("cuMemPoolSetAccess", handle, pool));
  if (access == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) TF_TRY(pool->set_access(access[i]));
  return CUDA_SUCCESS;
}
TF_API(cuMemPoolGetAccess, (CUmemAccess_flags * out, CUmemoryPool handle, CUmemLocation* location)) {
  std::shared_ptr<Pool> pool;
  TF_TRY(find_pool("cuMemPoolGetAccess", handle, pool));
  if (out == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = pool->access(*location);
  return CUDA_SUCCESS;
}

TF_API(cuDeviceGetDefaultMemPool, (CUmemoryPool * out, CUdevice ordinal)) {
  TF_TRY(enter("cuDeviceGetDefaultMemPool"));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  return pool_of(out, device->default_pool());
}
TF_API(cuDeviceGetMemPool, (CUmemoryPool * out, CUdevice ordinal)) {
  TF_TRY(enter("cuDeviceGetMemPool"));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  return pool_of(out, device->current_pool());
}
TF_API(cuDeviceSetMemPool, (CUdevice ordinal, CUmemoryPool handle)) {
  TF_TRY(check_ready());
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  std::shared_ptr<Pool> pool;
  TF_TRY(find_pool("cuDeviceSetMemPool", handle, pool));
  if (pool->device() != device || pool->managed()) return CUDA_ERROR_INVALID_DEVICE;
  if (pool->imported) return CUDA_ERROR_INVALID_VALUE;  // gives out nothing
  device->set_current_pool(pool);
  return CUDA_SUCCESS;
}
}  // namespace tensor_fusion::sim::cuda
