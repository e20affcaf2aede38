// Stream-ordered memory. What counts is what a pool has reserved from the device, not what was asked of it: freed
// blocks stay in the pool and are handed out again at no cost. So each allocation is charged the growth it caused.
#include "guest/limiter/hooks/charge.h"

namespace tensor_fusion::guest::limiter {
namespace {

std::uint64_t word_of(CUmemoryPool pool) { return reinterpret_cast<std::uint64_t>(pool); }

Pool* find_pool(Attachment& attached, CUmemoryPool handle) {
  const std::uint32_t high = attached.pool_high.load(std::memory_order_acquire);
  for (std::uint32_t place = 0; place < high; ++place)
    if (attached.pools[place].handle.load(std::memory_order_acquire) == word_of(handle)) return &attached.pools[place];
  return nullptr;
}

Pool* add_pool(Attachment& attached, Device& device, CUmemoryPool handle) {
  Guard guard(attached.pool_mutex);
  if (Pool* known = find_pool(attached, handle); known != nullptr) return known;
  for (std::uint32_t place = 0; place < kMaxPools; ++place) {
    Pool& pool = attached.pools[place];
    if (pool.handle.load(std::memory_order_relaxed) != 0) continue;
    pool.device = &device;
    pool.charged = 0;
    pool.step = 0;
    pool.handle.store(word_of(handle), std::memory_order_release);
    if (attached.pool_high.load(std::memory_order_relaxed) <= place)
      attached.pool_high.store(place + 1, std::memory_order_release);
    return &pool;
  }
  return nullptr;
}

// A pool that the program has not made is some device's own.
Device& owner_of(Attachment& attached, CUmemoryPool handle, Device& otherwise) {
  for (std::uint32_t index = 0; index < attached.device_count; ++index) {
    Device& device = attached.devices[index];
    CUmemoryPool own = nullptr;
    if (driver().cuDeviceGetDefaultMemPool != nullptr &&
        driver().cuDeviceGetDefaultMemPool(&own, device.ordinal) == CUDA_SUCCESS && own == handle)
      return device;
  }
  return otherwise;
}

std::uint64_t attribute_of(CUmemoryPool pool, CUmemPool_attribute attribute) {
  std::uint64_t value = 0;
  return TF_REAL(cuMemPoolGetAttribute)(pool, attribute, &value) == CUDA_SUCCESS ? value : 0;
}

void settle_to(Attachment& attached, Pool& pool, std::uint64_t reserved) {
  if (reserved > pool.charged) attached.ledger.charge(*pool.device, reserved - pool.charged);
  if (reserved < pool.charged) attached.ledger.release(*pool.device, pool.charged - reserved);
  pool.charged = reserved;
}

bool capturing(Attachment& attached, CUstream stream, bool own_stream) {
  if (attached.captures.load(std::memory_order_relaxed) == 0) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const auto ask = own_stream && driver().cuStreamIsCapturing_ptsz != nullptr ? driver().cuStreamIsCapturing_ptsz
                                                                              : TF_REAL(cuStreamIsCapturing);
  return ask(stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// Drivers let a pool grow in pieces: of this size at least, and larger requests in steps. What one grew beyond that is
// remembered per pool. The price of being exact: the last piece of a slice cannot be had through a pool.
constexpr std::uint64_t kPoolPiece = 32 << 20;
constexpr std::uint64_t kPoolStep = 2 << 20;

std::uint64_t most_growth(std::uint64_t bytes, const Pool& pool) {
  const std::uint64_t stepped = rounded(bytes, kPoolStep);
  const std::uint64_t piece = stepped < kPoolPiece ? kPoolPiece : stepped;
  std::uint64_t most;
  return __builtin_add_overflow(piece, pool.step, &most) ? ~std::uint64_t{0} : most;
}

template <class Synchronize, class Call>
CUresult allocate(Attachment& attached, Pool& pool, std::uint64_t bytes, Synchronize synchronize, Call call) {
  const auto handle = reinterpret_cast<CUmemoryPool>(pool.handle.load(std::memory_order_relaxed));
  pool.mutex.lock();
  settle_to(attached, pool, attribute_of(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  const std::uint64_t most = most_growth(bytes, pool);
  if (!attached.ledger.reserve(*pool.device, most)) {
    // The pool itself may hold what is asked for, freed on a stream and not yet given back: make it so, and look again.
    // Not with the pool held: what the stream waits for may be another thread that allocates.
    pool.mutex.unlock();
    synchronize();
    pool.mutex.lock();
    TF_REAL(cuMemPoolTrimTo)(handle, 0);
    settle_to(attached, pool, attribute_of(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    if (!reserve(*pool.device, most)) {
      pool.mutex.unlock();
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  fault(FaultPoint::reserved);
  const CUresult result = call();
  const std::uint64_t reserved = attribute_of(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  const std::uint64_t grown = reserved > pool.charged ? reserved - pool.charged : 0;
  if (grown > most) {
    attached.ledger.charge(*pool.device, grown - most);
    pool.step += grown - most;
  } else {
    attached.ledger.release(*pool.device, most - grown);
  }
  pool.charged += grown;
  if (reserved < pool.charged) settle_to(attached, pool, reserved);
  pool.mutex.unlock();
  return result;
}

template <class Call>
CUresult allocate_from(CUmemoryPool handle, std::size_t bytes, CUstream stream, bool own_stream, Call call) {
  Device* device = stream_device(stream);
  if (device == nullptr) return must_refuse() ? refusal() : call();
  Attachment& attached = *attachment();
  if (capturing(attached, stream, own_stream)) return call();  // becomes a node of a graph, charged when that runs
  if (handle == nullptr &&
      (driver().cuDeviceGetMemPool == nullptr || driver().cuDeviceGetMemPool(&handle, device->ordinal) != CUDA_SUCCESS))
    return call();
  Pool* pool = find_pool(attached, handle);
  if (pool == nullptr) pool = add_pool(attached, owner_of(attached, handle, *device), handle);
  if (pool == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;  // more pools than can be accounted for
  const auto synchronize = [&] {
    if (own_stream) {
      TF_REAL(cuStreamSynchronize_ptsz)(stream);
    } else {
      TF_REAL(cuStreamSynchronize)(stream);
    }
  };
  return allocate(attached, *pool, bytes, synchronize, call);
}

}  // namespace

#define TF_ALLOCATE(symbol, own_stream)                                                                                \
  TF_ENTRY(symbol, (CUdeviceptr * pointer, std::size_t bytes, CUstream stream)) {                                      \
    return allocate_from(nullptr, bytes, stream, own_stream, [&] { return TF_REAL(symbol)(pointer, bytes, stream); }); \
  }
TF_ALLOCATE(cuMemAllocAsync, false)
TF_ALLOCATE(cuMemAllocAsync_ptsz, true)
#undef TF_ALLOCATE

#define TF_ALLOCATE(symbol, own_stream)                                                              \
  TF_ENTRY(symbol, (CUdeviceptr * pointer, std::size_t bytes, CUmemoryPool pool, CUstream stream)) { \
    if (pool == nullptr) return TF_FORWARD(symbol, pointer, bytes, pool, stream);                    \
    return allocate_from(pool, bytes, stream, own_stream,                                            \
                         [&] { return TF_REAL(symbol)(pointer, bytes, pool, stream); });             \
  }
TF_ALLOCATE(cuMemAllocFromPoolAsync, false)
TF_ALLOCATE(cuMemAllocFromPoolAsync_ptsz, true)
#undef TF_ALLOCATE

// A pointer of cuMemAlloc may be freed in stream order too; one from a pool goes back to its pool and changes nothing.
TF_ENTRY(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream)) {
  return discharged(Kind::pointer, pointer, [&] { return TF_REAL(cuMemFreeAsync)(pointer, stream); });
}
TF_ENTRY(cuMemFreeAsync_ptsz, (CUdeviceptr pointer, CUstream stream)) {
  return discharged(Kind::pointer, pointer, [&] { return TF_REAL(cuMemFreeAsync_ptsz)(pointer, stream); });
}

TF_ENTRY(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps* props)) {
  if (registered() == nullptr || props == nullptr) return TF_FORWARD(cuMemPoolCreate, pool, props);
  Device* device = nullptr;
  if (props->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    device = device_of(props->location.id);
    if (device == nullptr && props->location.id >= 0 && props->location.id < kMaxOrdinals)
      return CUDA_ERROR_INVALID_DEVICE;
  }
  const CUresult result = TF_REAL(cuMemPoolCreate)(pool, props);
  if (result != CUDA_SUCCESS || device == nullptr) return result;
  if (add_pool(*attachment(), *device, *pool) != nullptr) return result;
  TF_REAL(cuMemPoolDestroy)(*pool);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

TF_ENTRY(cuMemPoolDestroy, (CUmemoryPool handle)) {
  Attachment* attached = attachment();
  Pool* pool = attached == nullptr ? nullptr : find_pool(*attached, handle);
  if (pool == nullptr) return TF_REAL(cuMemPoolDestroy)(handle);
  // Frees that have not happened yet shall not count as memory in use.
  if (attribute_of(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) != 0 &&
      attached->captures.load(std::memory_order_relaxed) == 0)
    TF_REAL(cuCtxSynchronize)();
  Guard guard(pool->mutex);
  // What was allocated from a pool outlives it, and then nobody can be asked how much that is: it stays charged to this
  // process.
  std::uint64_t left = 0;
  if (attribute_of(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) != 0) {
    TF_REAL(cuMemPoolTrimTo)(handle, 0);
    left = attribute_of(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  }
  const CUresult result = TF_REAL(cuMemPoolDestroy)(handle);
  if (result == CUDA_SUCCESS) {
    settle_to(*attached, *pool, left);
    pool->handle.store(0, std::memory_order_release);
  }
  return result;
}

TF_ENTRY(cuMemPoolTrimTo, (CUmemoryPool handle, std::size_t keep)) {
  Attachment* attached = attachment();
  Pool* pool = attached == nullptr ? nullptr : find_pool(*attached, handle);
  if (pool == nullptr) return TF_REAL(cuMemPoolTrimTo)(handle, keep);
  Guard guard(pool->mutex);
  const CUresult result = TF_REAL(cuMemPoolTrimTo)(handle, keep);
  settle_to(*attached, *pool, attribute_of(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  return result;
}

// The memory of an imported pool is its exporter's. Nothing can be allocated from it here, so it needs no place.
TF_ENTRY(cuMemPoolImportFromShareableHandle,
         (CUmemoryPool * pool, void* handle, CUmemAllocationHandleType type, std::uint64_t flags)) {
  return TF_FORWARD(cuMemPoolImportFromShareableHandle, pool, handle, type, flags);
}

}  // namespace tensor_fusion::guest::limiter
