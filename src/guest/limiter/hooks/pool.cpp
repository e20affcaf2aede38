// Stream-ordered memory. What counts is what a pool has reserved from the device, not what was asked of it: freed
// blocks stay in the pool and are handed out again at no cost. So each allocation is charged the growth it caused.
#include "guest/limiter/core/captures.h"
#include "guest/limiter/hooks/charge.h"
#include "guest/limiter/hooks/pools.h"

namespace tensor_fusion::guest::limiter {
namespace {

std::uint64_t word_of(CUmemoryPool pool) { return reinterpret_cast<std::uint64_t>(pool); }

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

// Drivers let a pool grow in pieces: of this size at least, and larger requests in steps. What one grew beyond that is
// remembered per pool.
constexpr std::uint64_t kPoolPiece = 32 << 20;
constexpr std::uint64_t kPoolStep = 2 << 20;

std::uint64_t most_growth(std::uint64_t bytes, const Pool& pool) {
  if (rounded(bytes) <= pool.untouched) return 0;
  const std::uint64_t stepped = rounded(bytes, kPoolStep);
  const std::uint64_t piece = stepped < kPoolPiece ? kPoolPiece : stepped;
  std::uint64_t most;
  return __builtin_add_overflow(piece, pool.step, &most) ? ~std::uint64_t{0} : most;
}

// Asks the driver, with `most` reserved for what that may make the pool grow by.
template <class Call>
CUresult grow(Attachment& attached, Pool& pool, std::uint64_t bytes, std::uint64_t most, Call call) {
  const auto handle = reinterpret_cast<CUmemoryPool>(pool.handle.load(std::memory_order_relaxed));
  fault(FaultPoint::reserved);
  const CUresult result = call();
  const std::uint64_t reserved = pool_attribute(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  const std::uint64_t grown = reserved > pool.charged ? reserved - pool.charged : 0;
  if (grown > most) {
    attached.ledger.charge(*pool.device, grown - most);
    if (most != 0) pool.step += grown - most;
  } else {
    attached.ledger.release(*pool.device, most - grown);
  }
  pool.charged += grown;
  // A new piece holds this allocation and is otherwise in one piece; another may lie in what was known of.
  const std::uint64_t taken = result == CUDA_SUCCESS ? rounded(bytes) : 0;
  if (grown != 0) {
    pool.untouched = grown > taken ? grown - taken : 0;
  } else {
    pool.untouched -= pool.untouched < taken ? pool.untouched : taken;
  }
  if (reserved < pool.charged) settle_pool(attached, pool);
  return result;
}

// No room for another piece of a pool, but perhaps for what is asked: memory of its own, exactly as large, which the
// program may give back in either way. Only where nobody could tell: another device reaches a pool's memory but not
// this, and a call that must wait would spoil a capture.
CUresult allocate_plain(const Pool& pool, Device& device, CUdeviceptr* pointer, std::size_t bytes, CUstream stream) {
  constexpr std::uint64_t kLastSpecial = 2;
  const auto refused = [&] {
    refuse(*pool.device, bytes, Room::full);
    return CUDA_ERROR_OUT_OF_MEMORY;
  };
  if (pool.device != &device || (pool.traits & kPoolExportable) != 0 || pointer == nullptr || bytes == 0 ||
      gate::g_captures.any())
    return refused();
  const Current before = t_current;
  CUcontext context = nullptr;
  const bool special = reinterpret_cast<std::uint64_t>(stream) <= kLastSpecial;
  if (!special) {
    if (driver().cuStreamGetCtx == nullptr || driver().cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
        TF_REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS)
      return refused();
    t_current.context = reinterpret_cast<std::uint64_t>(context);
  }
  const CUresult result = charged(
      device, rounded(bytes),
      [&] {
        const gate::OwnCall may_call;
        return may_call ? TF_REAL(cuMemAlloc_v2)(pointer, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
      },
      [&] {
        Holding holding;
        holding.kind = Kind::pointer;
        holding.key = *pointer;
        return holding;
      },
      [&] { TF_REAL(cuMemFree_v2)(*pointer); });
  if (!special) TF_REAL(cuCtxPopCurrent_v2)(&context);
  t_current = before;
  return result == CUDA_SUCCESS || result == refusal() ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult too_many_pools() {
  explain("this process has more memory pools than can be kept account of (256)");
  return CUDA_ERROR_OUT_OF_MEMORY;
}

template <class Call>
CUresult allocate_from(CUmemoryPool handle, CUdeviceptr* pointer, std::size_t bytes, CUstream stream, bool own_stream,
                       Call call) {
  Device* device = stream_device(stream);
  if (device == nullptr) return must_refuse() ? refusal() : call();
  Attachment& attached = *attachment();
  if (gate::capturing(stream, own_stream)) return call();  // becomes a node of a graph, charged when that runs
  if (handle == nullptr &&
      (driver().cuDeviceGetMemPool == nullptr || driver().cuDeviceGetMemPool(&handle, device->ordinal) != CUDA_SUCCESS))
    return call();
  Pool* pool = find_pool(attached, handle);
  if (pool == nullptr) pool = add_pool(attached, &owner_of(attached, handle, *device), handle, 0);
  if (pool == nullptr) return too_many_pools();
  pool->mutex.lock();
  const bool gone = word_of(handle) != pool->handle.load(std::memory_order_relaxed) ||
                    (pool->traits & kPoolClosed) != 0;  // by another thread, or long ago
  if (gone || pool->device == nullptr) {
    pool->mutex.unlock();
    return gone ? CUDA_ERROR_INVALID_VALUE : call();
  }
  settle_pool(attached, *pool);
  std::uint64_t most = most_growth(bytes, *pool);
  Room room = attached.ledger.reserve(*pool->device, most);
  if (!room && !room.is_unlisted()) {
    // The pool itself may hold what is asked for, freed on a stream and not yet given back: make it so, and look again.
    // Not with the pool held: what the stream waits for may be another thread that allocates.
    // Nor during another stream's capture, which a call that waits may spoil.
    pool->mutex.unlock();
    gate::wait_unless_captured(stream, own_stream);
    pool->mutex.lock();
    if (const gate::OwnCall may_call; may_call) TF_REAL(cuMemPoolTrimTo)(handle, 0);
    settle_pool(attached, *pool);
    most = most_growth(bytes, *pool);
    room = try_reserve(*pool->device, most);
    if (!room && !room.is_unlisted()) {
      pool->mutex.unlock();
      return allocate_plain(*pool, *device, pointer, bytes, stream);
    }
  }
  if (!room) {
    refuse(*pool->device, bytes, room);
    pool->mutex.unlock();
    return no_room(room);
  }
  const CUresult result = grow(attached, *pool, bytes, most, call);
  pool->mutex.unlock();
  return result;
}

// A pool of the driver's own that lies on the host is told apart here, since a pool does not say where it lies.
CUresult seen(CUresult result, const CUmemoryPool* pool, const CUmemLocation* location, CUmemAllocationType type) {
  Attachment* attached = attachment();
  if (result == CUDA_SUCCESS && attached != nullptr && pool != nullptr && location != nullptr && on_host(*location) &&
      type == CU_MEM_ALLOCATION_TYPE_PINNED)
    add_pool(*attached, nullptr, *pool, 0);
  return result;
}

}  // namespace

#define TF_ALLOCATE(symbol, own_stream)                                            \
  TF_ENTRY(symbol, (CUdeviceptr * pointer, std::size_t bytes, CUstream stream)) {  \
    return allocate_from(nullptr, pointer, bytes, stream, own_stream,              \
                         [&] { return TF_REAL(symbol)(pointer, bytes, stream); }); \
  }
TF_ALLOCATE(cuMemAllocAsync, false)
TF_ALLOCATE(cuMemAllocAsync_ptsz, true)
#undef TF_ALLOCATE

#define TF_ALLOCATE(symbol, own_stream)                                                              \
  TF_ENTRY(symbol, (CUdeviceptr * pointer, std::size_t bytes, CUmemoryPool pool, CUstream stream)) { \
    if (pool == nullptr) return TF_FORWARD(symbol, pointer, bytes, pool, stream);                    \
    return allocate_from(pool, pointer, bytes, stream, own_stream,                                   \
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
  // One that is managed lies wherever it is used, and counts where that is first.
  const bool on_device = device != nullptr || props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
  if (result != CUDA_SUCCESS || (device == nullptr && on_device)) return result;
  std::uint32_t traits = kPoolMade;
  if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE) traits |= kPoolExportable;
  if (add_pool(*attachment(), device, *pool, traits) != nullptr) return result;
  TF_REAL(cuMemPoolDestroy)(*pool);
  return too_many_pools();
}

TF_ENTRY(cuMemPoolDestroy, (CUmemoryPool handle)) {
  Attachment* attached = attachment();
  Pool* pool = attached == nullptr ? nullptr : find_pool(*attached, handle);
  if (pool == nullptr) return TF_REAL(cuMemPoolDestroy)(handle);
  Guard guard(pool->mutex);
  if (word_of(handle) != pool->handle.load(std::memory_order_relaxed) || (pool->traits & kPoolClosed) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (pool->device != nullptr && (pool->traits & kPoolMade) != 0 &&
      pool_attribute(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) != 0) {
    close_pool(*attached, *pool);
    return CUDA_SUCCESS;
  }
  const CUresult result = TF_REAL(cuMemPoolDestroy)(handle);
  if (result == CUDA_SUCCESS) {
    if (pool->device != nullptr) attached->ledger.release(*pool->device, pool->charged);
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
  settle_pool(*attached, *pool);
  return result;
}

TF_ENTRY(cuMemGetDefaultMemPool, (CUmemoryPool * pool, CUmemLocation* location, CUmemAllocationType type)) {
  return seen(TF_FORWARD(cuMemGetDefaultMemPool, pool, location, type), pool, location, type);
}
TF_ENTRY(cuMemGetMemPool, (CUmemoryPool * pool, CUmemLocation* location, CUmemAllocationType type)) {
  return seen(TF_FORWARD(cuMemGetMemPool, pool, location, type), pool, location, type);
}

// The memory of an imported pool is its exporter's. Nothing can be allocated from it here, so it needs no place.
TF_ENTRY(cuMemPoolImportFromShareableHandle,
         (CUmemoryPool * pool, void* handle, CUmemAllocationHandleType type, std::uint64_t flags)) {
  return TF_FORWARD(cuMemPoolImportFromShareableHandle, pool, handle, type, flags);
}

}  // namespace tensor_fusion::guest::limiter
