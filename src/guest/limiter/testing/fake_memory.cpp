#include "guest/limiter/testing/fake_memory.h"

#include <cstdlib>
#include <cstring>

namespace tensor_fusion::guest::limiter::testing {
namespace {

FakeMemory& fake() { return FakeMemory::get(); }
CUcontext context(CUdevice device = 0) {
  return reinterpret_cast<CUcontext>(0xc0 + static_cast<std::uintptr_t>(device) * 16);
}

template <class Handle>
Handle new_handle() {
  return (Handle)(fake().next_handle += 0x10);  // NOLINT: a pointer or a number
}

void fill_devices(Driver& driver) {
  driver.cuDeviceGetCount = [](int* count) {
    *count = 2;
    return CUDA_SUCCESS;
  };
  driver.cuDeviceGet = [](CUdevice* device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
  };
  driver.cuDeviceGetUuid_v2 = [](CUuuid* uuid, CUdevice device) {
    std::memset(uuid, 0, sizeof *uuid);
    uuid->bytes[15] = static_cast<unsigned char>(device);
    return CUDA_SUCCESS;
  };
  driver.cuCtxGetCurrent = [](CUcontext* current) {
    *current = context();
    return CUDA_SUCCESS;
  };
  driver.cuCtxGetDevice = [](CUdevice* device) {
    *device = 0;
    return CUDA_SUCCESS;
  };
  driver.cuCtxGetLimit = [](std::size_t* value, CUlimit limit) {
    *value = fake().limits[limit];
    return CUDA_SUCCESS;
  };
  driver.cuCtxCreate_v2 = [](CUcontext* made, unsigned, CUdevice device) {
    *made = context(device);
    return CUDA_SUCCESS;
  };
  driver.cuCtxDestroy_v2 = [](CUcontext) { return CUDA_SUCCESS; };
  driver.cuCtxSetLimit = [](CUlimit limit, std::size_t value) {
    fake().limits[limit] = value;
    return CUDA_SUCCESS;
  };
  driver.cuStreamSynchronize = [](CUstream) {
    ++fake().waits;
    fake().charged_at_wait = fake().charged();
    return CUDA_SUCCESS;
  };
  driver.cuStreamSynchronize_ptsz = driver.cuStreamSynchronize;
  driver.cuStreamQuery = driver.cuStreamQuery_ptsz = driver.cuStreamSynchronize;
  driver.cuStreamGetCtx = [](CUstream stream, CUcontext* of) {
    *of = context(stream == FakeMemory::stream_of_second() ? 1 : 0);
    return CUDA_SUCCESS;
  };
}

void fill_memory(Driver& driver) {
  driver.cuMemCreate = [](CUmemGenericAllocationHandle* handle, std::size_t, const CUmemAllocationProp*,
                          std::uint64_t) {
    *handle = new_handle<CUmemGenericAllocationHandle>();
    return CUDA_SUCCESS;
  };
  driver.cuMemRelease = [](CUmemGenericAllocationHandle) { return CUDA_SUCCESS; };
  driver.cuArray3DCreate_v2 = [](CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR*) {
    *array = new_handle<CUarray>();
    return CUDA_SUCCESS;
  };
  driver.cuArrayDestroy = [](CUarray) { return CUDA_SUCCESS; };
  driver.cuArrayGetSparseProperties = [](CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUarray) {
    *properties = {};
    properties->tileExtent = {fake().tile, fake().tile, 1};
    return fake().tile != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
  };
  driver.cuMipmappedArrayGetSparseProperties = [](CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUmipmappedArray) {
    return g_driver.cuArrayGetSparseProperties(properties, nullptr);
  };
  driver.cuMemMapArrayAsync = [](CUarrayMapInfo*, unsigned, CUstream) { return CUDA_SUCCESS; };
  driver.cuMemMapArrayAsync_ptsz = driver.cuMemMapArrayAsync;
}

// Pools that grow by exactly what is asked.
void fill_pools(Driver& driver) {
  driver.cuMemPoolCreate = [](CUmemoryPool* pool, const CUmemPoolProps*) {
    *pool = new_handle<CUmemoryPool>();
    fake().reserved[*pool] = 0;
    return CUDA_SUCCESS;
  };
  driver.cuMemPoolDestroy = [](CUmemoryPool pool) {
    return fake().reserved.erase(pool) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  driver.cuMemPoolTrimTo = [](CUmemoryPool, std::size_t) { return CUDA_SUCCESS; };
  driver.cuMemPoolGetAttribute = [](CUmemoryPool pool, CUmemPool_attribute, void* value) {
    const auto found = fake().reserved.find(pool);
    if (found == fake().reserved.end()) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<std::uint64_t*>(value) = found->second;
    return CUDA_SUCCESS;
  };
  driver.cuMemAllocFromPoolAsync = [](CUdeviceptr* pointer, std::size_t bytes, CUmemoryPool pool, CUstream) {
    *pointer = new_handle<CUdeviceptr>();
    fake().reserved[pool] += bytes;
    return CUDA_SUCCESS;
  };
  driver.cuMemGetDefaultMemPool = [](CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType) {
    *pool = reinterpret_cast<CUmemoryPool>(0x9000 + static_cast<std::uintptr_t>(location->type) * 16);
    fake().reserved[*pool];
    return CUDA_SUCCESS;
  };
  driver.cuMemGetMemPool = driver.cuMemGetDefaultMemPool;
}

template <class Argument>
CUresult checkpoint(int pid, Argument*) {
  fake().checkpointed.push_back(pid);
  return CUDA_SUCCESS;
}

}  // namespace

FakeMemory::FakeMemory()
    : slice({{"GPU-00000000-0000-0000-0000-000000000000", kLimit, 0, true, 10000},
             {"GPU-00000000-0000-0000-0000-000000000001", kLimit, 0, true, 10000}}) {
  setenv("TENSOR_FUSION_SLICE", slice.directory().c_str(), 1);
  fill_devices(g_driver);
  fill_memory(g_driver);
  fill_pools(g_driver);
  g_driver.cuCheckpointProcessLock = checkpoint;
  g_driver.cuCheckpointProcessCheckpoint = checkpoint;
  g_driver.cuCheckpointProcessRestore = checkpoint;
  g_driver.cuCheckpointProcessUnlock = checkpoint;
  g_driver.cuCheckpointProcessGetState = checkpoint;
  g_driver.cuCheckpointProcessGetRestoreThreadId = checkpoint;
  registered();
}

FakeMemory& FakeMemory::get() {
  static FakeMemory memory;
  return memory;
}

}  // namespace tensor_fusion::guest::limiter::testing
