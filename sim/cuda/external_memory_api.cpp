// Entry points of external memory and semaphores, and of descriptors for other drivers.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/cuda/driver.h"
#include "sim/cuda/external_memory.h"
#include "sim/cuda/foreign_memory.h"
#include "sim/cuda/stream.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr unsigned kDedicated = 1;

HandleTable<ExternalMemory>& external_memories() {
  static auto* table = new HandleTable<ExternalMemory>;
  return *table;
}

// A list of semaphores none of which can exist.
CUresult refuse_semaphores(const char* symbol, Flavour flavour, CUstream handle, const CUexternalSemaphore* list,
                           unsigned count) {
  TF_TRY(enter(symbol));
  Stream* stream = nullptr;
  TF_TRY(find_work_stream(handle, flavour, stream));
  return list == nullptr || count == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

TF_API(cuImportExternalMemory, (CUexternalMemory * out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* what)) {
  Context* context = nullptr;
  TF_TRY(enter("cuImportExternalMemory", {}, context));
  if (out == nullptr || what == nullptr || what->size == 0 || (what->flags & ~kDedicated) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (what->type < CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD || what->type > CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD)
    return CUDA_ERROR_INVALID_VALUE;
  if (what->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
    return refuse_once("cuImportExternalMemory of other handles than descriptors");
  const int fd = ::fcntl(what->handle.fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  auto memory = import_physical(fd);
  if (!memory || memory->team || what->size > memory->bytes) return CUDA_ERROR_INVALID_VALUE;
  ::close(what->handle.fd);  // it is the driver's from now on
  auto external = std::make_shared<ExternalMemory>();
  external->memory = std::move(memory);
  external->bytes = what->size;
  *out = as_handle<CUexternalMemory>(external_memories().insert(external));
  return CUDA_SUCCESS;
}

TF_API(cuExternalMemoryGetMappedBuffer,
       (CUdeviceptr * out, CUexternalMemory handle, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* what)) {
  Context* context = nullptr;
  TF_TRY(enter("cuExternalMemoryGetMappedBuffer", {}, context));
  const auto external = external_memories().share(handle);
  if (!external) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || what == nullptr || what->flags != 0 || what->size == 0 || what->offset > external->bytes ||
      what->size > external->bytes - what->offset)
    return CUDA_ERROR_INVALID_VALUE;
  const auto& location = external->memory->properties.location;
  Device* device = location.type == CU_MEM_LOCATION_TYPE_DEVICE ? Driver::get().device(location.id) : nullptr;
  return map_foreign_file(external->memory->memory.fd(), what->offset, what->size, device, *context, external->memory,
                          *out);
}

TF_API(cuExternalMemoryGetMappedMipmappedArray,
       (CUmipmappedArray * out, CUexternalMemory handle, const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* what)) {
  Context* context = nullptr;
  TF_TRY(enter("cuExternalMemoryGetMappedMipmappedArray", {}, context));
  if (external_memories().find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || what == nullptr || what->numLevels == 0) return CUDA_ERROR_INVALID_VALUE;
  return refuse_once("cuExternalMemoryGetMappedMipmappedArray");  // what we export is no image
}

TF_API(cuDestroyExternalMemory, (CUexternalMemory handle)) {
  Context* context = nullptr;
  TF_TRY(enter("cuDestroyExternalMemory", {}, context));
  return external_memories().remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;  // its mappings live on
}

TF_API(cuImportExternalSemaphore, (CUexternalSemaphore * out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC* what)) {
  Context* context = nullptr;
  TF_TRY(enter("cuImportExternalSemaphore", {}, context));
  constexpr int kFirst = 1, kLast = 10, kOpaqueFd = 1, kTimelineFd = 9;
  if (out == nullptr || what == nullptr || what->flags != 0 || what->type < kFirst || what->type > kLast)
    return CUDA_ERROR_INVALID_VALUE;
  if (what->type != kOpaqueFd && what->type != kTimelineFd)
    return refuse_once("cuImportExternalSemaphore of other handles than descriptors");
  return CUDA_ERROR_INVALID_VALUE;  // a descriptor of something else: nothing here makes semaphores
}
TF_API(cuDestroyExternalSemaphore, (CUexternalSemaphore)) {
  Context* context = nullptr;
  TF_TRY(enter("cuDestroyExternalSemaphore", {}, context));
  return CUDA_ERROR_INVALID_HANDLE;
}
TF_STREAM_API(cuSignalExternalSemaphoresAsync,
              (const CUexternalSemaphore* list, const void*, unsigned count, CUstream stream),
              { return refuse_semaphores("cuSignalExternalSemaphoresAsync", kFlavour, stream, list, count); })
TF_STREAM_API(cuWaitExternalSemaphoresAsync,
              (const CUexternalSemaphore* list, const void*, unsigned count, CUstream stream),
              { return refuse_semaphores("cuWaitExternalSemaphoresAsync", kFlavour, stream, list, count); })

// For network cards: a descriptor as large as the range. Nothing else can read it, as nothing reads device memory
// through a dma-buf without the other driver.
TF_API(cuMemGetHandleForAddressRange,
       (void* out, CUdeviceptr address, std::size_t bytes, CUmemRangeHandleType type, unsigned long long flags)) {
  Context* context = nullptr;
  TF_TRY(enter("cuMemGetHandleForAddressRange", {}, context));
  if (out == nullptr || bytes == 0 || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags > 1 ||
      address % device::kArenaPage != 0 || bytes % device::kArenaPage != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (std::uint64_t at = address; at < address + bytes;) {  // device memory without a gap
    const auto allocation = Driver::get().addresses().find(at);
    if (!allocation || !allocation->on_device() || allocation->kind == Allocation::Kind::managed)
      return CUDA_ERROR_INVALID_VALUE;
    at = allocation->base + allocation->extent;
  }
  const int fd = ::memfd_create("tensor-fusion-sim-dma-buf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
    ::close(fd);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *static_cast<int*>(out) = fd;
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
