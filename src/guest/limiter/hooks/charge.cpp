#include "guest/limiter/hooks/charge.h"

#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kSweepPeriodNs = 20'000'000;  // of the whole tenant

// One process of the tenant at a time looks for the dead: many may be refused at once.
bool sweep_due() {
  auto& swept = g_shared.slice.claim->swept_ns;
  const std::uint64_t now = os::monotonic_ns();
  std::uint64_t last = swept.load(std::memory_order_relaxed);
  if (last <= now && now - last < kSweepPeriodNs) return false;
  return swept.compare_exchange_strong(last, now, std::memory_order_relaxed);
}

[[gnu::noinline, gnu::cold]] bool reserve_when_full(Device& device, std::uint64_t bytes) {
  Attachment* attached = attachment();
  if (g_shared.slice.grant->closed.load(std::memory_order_relaxed) != 0) return false;
  const bool trimmed = settle_pools(*attached, &device);
  const bool swept = sweep_due() && attached->ledger.sweep();
  return (trimmed || swept) && attached->ledger.reserve(device, bytes);
}

}  // namespace

bool reserve(Device& device, std::uint64_t bytes) {
  if (attachment()->ledger.reserve(device, bytes)) return true;
  return reserve_when_full(device, bytes);
}

void release(Device& device, std::uint64_t bytes) { attachment()->ledger.release(device, bytes); }

bool settle_pools(Attachment& attached, const Device* device) {
  bool less = false;
  const std::uint32_t high = attached.pool_high.load(std::memory_order_acquire);
  for (std::uint32_t place = 0; place < high; ++place) {
    Pool& pool = attached.pools[place];
    if (pool.handle.load(std::memory_order_acquire) == 0 || (device != nullptr && pool.device != device)) continue;
    // One that is in use will be settled by its user. Waiting for it here could wait for work that waits for this
    // thread.
    if (!pool.mutex.try_lock()) continue;
    const std::uint64_t handle = pool.handle.load(std::memory_order_relaxed);
    std::uint64_t reserved = 0;
    if (handle != 0 &&
        driver().cuMemPoolGetAttribute(reinterpret_cast<CUmemoryPool>(handle), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                       &reserved) == CUDA_SUCCESS) {
      if (reserved < pool.charged) {
        attached.ledger.release(*pool.device, pool.charged - reserved);
        less = true;
      } else {
        attached.ledger.charge(*pool.device, reserved - pool.charged);
      }
      pool.charged = reserved;
    }
    pool.mutex.unlock();
  }
  return less;
}

}  // namespace tensor_fusion::guest::limiter
