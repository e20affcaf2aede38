// Pools between processes: a pool travels as a descriptor of a small file that names it, each allocation in it by a few
// words that only the importer of that pool can open.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/foreign_memory.h"
#include "sim/cuda/pool.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr std::uint32_t kPoolMagic = 0x4c504954, kPointerMagic = 0x50504954;

struct PoolFile {
  std::uint32_t magic, engine;
  Pool::Name name;
  CUmemPoolProps properties;
};
struct PointerWords {
  std::uint32_t magic, unused;
  Pool::Name pool;
  ForeignMemory memory;
};
static_assert(sizeof(PointerWords) <= sizeof(CUmemPoolPtrExportData));

CUresult find_pool(const char* symbol, CUmemoryPool handle, std::shared_ptr<Pool>& pool) {
  TF_TRY(enter(symbol));
  pool = pools().share(handle);
  return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

TF_API(cuMemPoolExportToShareableHandle,
       (void* out, CUmemoryPool handle, CUmemAllocationHandleType type, unsigned long long flags)) {
  std::shared_ptr<Pool> pool;
  TF_TRY(find_pool("cuMemPoolExportToShareableHandle", handle, pool));
  if (out == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !pool->exportable())
    return CUDA_ERROR_INVALID_VALUE;
  const int fd = ::memfd_create("cuda-pool", MFD_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const PoolFile file{kPoolMagic, pool->device()->engine.id, pool->name(), pool->properties()};
  if (::pwrite(fd, &file, sizeof file, 0) != static_cast<ssize_t>(sizeof file)) {
    ::close(fd);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *static_cast<int*>(out) = fd;
  return CUDA_SUCCESS;
}

TF_API(cuMemPoolImportFromShareableHandle,
       (CUmemoryPool * out, void* os_handle, CUmemAllocationHandleType type, unsigned long long flags)) {
  TF_TRY(enter("cuMemPoolImportFromShareableHandle"));
  if (out == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  PoolFile file{};
  const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
  if (::pread(fd, &file, sizeof file, 0) != static_cast<ssize_t>(sizeof file) || file.magic != kPoolMagic)
    return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  for (const auto& each : Driver::get().devices())
    if (each->engine.id == file.engine) device = each.get();
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  file.properties.location.id = device->ordinal;
  auto pool = std::make_shared<Pool>(device, file.properties);
  pool->imported = file.name;
  pool->handle_value = pools().insert(pool);
  *out = pool->handle();
  return CUDA_SUCCESS;
}

TF_API(cuMemPoolExportPointer, (CUmemPoolPtrExportData * out, CUdeviceptr address)) {
  TF_TRY(enter("cuMemPoolExportPointer"));
  const auto allocation = Driver::get().addresses().exact(address);
  if (out == nullptr || !allocation || allocation->kind != Allocation::Kind::pool) return CUDA_ERROR_INVALID_VALUE;
  const auto pool = std::static_pointer_cast<Pool>(allocation->keeper);
  if (!pool->exportable()) return CUDA_ERROR_INVALID_VALUE;
  const PointerWords words{kPointerMagic, 0, pool->name(), describe_for_others(*allocation)};
  *out = {};
  std::memcpy(out, &words, sizeof words);
  return CUDA_SUCCESS;
}

TF_API(cuMemPoolImportPointer, (CUdeviceptr * out, CUmemoryPool handle, CUmemPoolPtrExportData* data)) {
  std::shared_ptr<Pool> pool;
  TF_TRY(find_pool("cuMemPoolImportPointer", handle, pool));
  if (out == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PointerWords words;
  std::memcpy(&words, data, sizeof words);
  if (words.magic != kPointerMagic || pool->imported != words.pool || words.memory.pid != words.pool.pid)
    return CUDA_ERROR_INVALID_VALUE;
  return open_foreign_memory(words.memory, nullptr, pool, *out);
}

}  // namespace tensor_fusion::sim::cuda
