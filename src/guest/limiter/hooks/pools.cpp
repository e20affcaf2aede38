#include "guest/limiter/hooks/pools.h"

#include "guest/limiter/core/captures.h"
#include "guest/limiter/hooks/charge.h"

namespace tensor_fusion::guest::limiter {
namespace {

std::uint64_t word_of(CUmemoryPool pool) { return reinterpret_cast<std::uint64_t>(pool); }
CUmemoryPool handle_of(const Pool& pool) {
  return reinterpret_cast<CUmemoryPool>(pool.handle.load(std::memory_order_relaxed));
}

// The end of a closed pool, once nothing of it is left.
void end_if_empty(Attachment& attached, Pool& pool) {
  if (pool_attribute(handle_of(pool), CU_MEMPOOL_ATTR_USED_MEM_CURRENT) != 0) return;
  const gate::OwnCall may_call;  // else when it is settled next
  if (!may_call) return;
  TF_REAL(cuMemPoolTrimTo)(handle_of(pool), 0);
  settle_pool(attached, pool);
  if (pool.charged == 0 && TF_REAL(cuMemPoolDestroy)(handle_of(pool)) == CUDA_SUCCESS)
    pool.handle.store(0, std::memory_order_release);
}

}  // namespace

std::uint64_t pool_attribute(CUmemoryPool handle, CUmemPool_attribute attribute) {
  std::uint64_t value = 0;
  return TF_REAL(cuMemPoolGetAttribute)(handle, attribute, &value) == CUDA_SUCCESS ? value : 0;
}

Pool* find_pool(Attachment& attached, CUmemoryPool handle) {
  const std::uint32_t high = attached.pool_high.load(std::memory_order_acquire);
  for (std::uint32_t place = 0; place < high; ++place)
    if (attached.pools[place].handle.load(std::memory_order_acquire) == word_of(handle)) return &attached.pools[place];
  return nullptr;
}

Pool* add_pool(Attachment& attached, Device* device, CUmemoryPool handle, std::uint32_t traits) {
  Guard guard(attached.pool_mutex);
  if (Pool* known = find_pool(attached, handle); known != nullptr) return known;
  for (std::uint32_t place = 0; place < kMaxPools; ++place) {
    Pool& pool = attached.pools[place];
    if (pool.handle.load(std::memory_order_relaxed) != 0) continue;
    Guard held(pool.mutex);  // of one who settles all places
    pool.device = device;
    pool.charged = 0;
    pool.step = 0;
    pool.untouched = 0;
    pool.traits = traits;
    pool.handle.store(word_of(handle), std::memory_order_release);
    if (attached.pool_high.load(std::memory_order_relaxed) <= place)
      attached.pool_high.store(place + 1, std::memory_order_release);
    return &pool;
  }
  return nullptr;
}

void settle_pool(Attachment& attached, Pool& pool) {
  if (pool.device == nullptr) return;
  const std::uint64_t reserved = pool_attribute(handle_of(pool), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  if (reserved > pool.charged) attached.ledger.charge(*pool.device, reserved - pool.charged);
  if (reserved < pool.charged) {
    attached.ledger.release(*pool.device, pool.charged - reserved);
    pool.untouched = 0;  // it may have been in what went
  }
  pool.charged = reserved;
}

void close_pool(Attachment& attached, Pool& pool) {
  const CUmemoryPool handle = handle_of(pool);
  CUmemoryPool current = nullptr;
  CUmemoryPool first = nullptr;
  if (TF_REAL(cuDeviceGetMemPool)(&current, pool.device->ordinal) == CUDA_SUCCESS && current == handle &&
      TF_REAL(cuDeviceGetDefaultMemPool)(&first, pool.device->ordinal) == CUDA_SUCCESS)
    TF_REAL(cuDeviceSetMemPool)(pool.device->ordinal, first);
  std::uint64_t keep = 0;
  TF_REAL(cuMemPoolSetAttribute)(handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
  pool.traits |= kPoolClosed;
  settle_pool(attached, pool);
}

bool settle_pools(Attachment& attached, const Device* device) {
  bool less = false;
  const std::uint32_t high = attached.pool_high.load(std::memory_order_acquire);
  for (std::uint32_t place = 0; place < high; ++place) {
    Pool& pool = attached.pools[place];
    if (pool.handle.load(std::memory_order_acquire) == 0) continue;
    // One that is in use will be settled by its user. Waiting for it here could wait for work that waits for this
    // thread.
    if (!pool.mutex.try_lock()) continue;
    if (pool.handle.load(std::memory_order_relaxed) != 0 && pool.device != nullptr &&
        (device == nullptr || pool.device == device)) {
      const std::uint64_t before = pool.charged;
      settle_pool(attached, pool);
      if ((pool.traits & kPoolClosed) != 0) end_if_empty(attached, pool);
      less |= pool.charged < before;
    }
    pool.mutex.unlock();
  }
  return less;
}

}  // namespace tensor_fusion::guest::limiter
