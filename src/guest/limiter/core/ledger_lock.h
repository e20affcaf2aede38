#pragma once
// The lock of one device's totals in the claim page, which processes of the tenant share. Waits a bounded time: a
// holder that has died, or has not let go for seconds, loses it to who waits, and the total is added up anew. Any
// thread.
#include <atomic>
#include <cstdint>

#include "guest/limiter/core/fault.h"
#include "guest/limiter/core/ledger.h"
#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter {

// Holds one device's totals for a scope.
class LedgerLock {
 public:
  LedgerLock(const Ledger& ledger, std::uint32_t device);
  ~LedgerLock();
  LedgerLock(const LedgerLock&) = delete;
  LedgerLock& operator=(const LedgerLock&) = delete;

 private:
  void wait(const Ledger& ledger, std::uint32_t device);
  std::atomic<std::uint32_t>& word_;
  std::uint32_t me_;
};

// Taken and left without waiting it is part of every allocation.
inline LedgerLock::LedgerLock(const Ledger& ledger, std::uint32_t device)
    : word_(ledger.page_->devices[device].lock), me_(ledger.slot_ + 1) {
  std::uint32_t expected = 0;
  if (!word_.compare_exchange_strong(expected, me_, std::memory_order_acquire, std::memory_order_relaxed))
    wait(ledger, device);
  fault(FaultPoint::lock_held);
}

inline LedgerLock::~LedgerLock() {
  std::uint32_t word = me_;
  if (word_.compare_exchange_strong(word, 0, std::memory_order_release, std::memory_order_relaxed)) return;
  // Someone waits, or the lock was taken away: only the first is ours to wake.
  if (word == (me_ | contract::kLockWaiters) &&
      word_.compare_exchange_strong(word, 0, std::memory_order_release, std::memory_order_relaxed))
    os::futex_wake(&word_, 1, true);
}

}  // namespace tensor_fusion::guest::limiter
