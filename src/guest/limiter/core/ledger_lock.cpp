#include "guest/limiter/core/ledger_lock.h"

#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter {
namespace {

using contract::kLockWaiters;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr int kSpins = 200;
constexpr std::uint64_t kCheckPeriodNs = 5'000'000;   // how long to wait before asking whether the holder lives
constexpr std::uint64_t kPatienceNs = 2'000'000'000;  // a live holder (stopped, or forged) loses the lock after this

}  // namespace

void LedgerLock::wait(const Ledger& ledger, std::uint32_t device) {
  for (int spin = 0; spin < kSpins; ++spin) {
    std::uint32_t expected = 0;
    if (word_.load(kRelaxed) == 0 && word_.compare_exchange_weak(expected, me_, std::memory_order_acquire, kRelaxed))
      return;
    os::relax();
  }
  std::uint32_t seen = 0;
  std::uint64_t seen_since = 0;
  for (;;) {
    std::uint32_t word = word_.load(kRelaxed);
    if (word == 0) {
      // Others may still sleep: take it with the mark, so that the release wakes the next.
      if (word_.compare_exchange_weak(word, me_ | kLockWaiters, std::memory_order_acquire, kRelaxed)) return;
      continue;
    }
    if ((word & kLockWaiters) == 0) {
      if (!word_.compare_exchange_weak(word, word | kLockWaiters, kRelaxed, kRelaxed)) continue;
      word |= kLockWaiters;
    }
    os::futex_wait(&word_, word, kCheckPeriodNs, true);
    const std::uint64_t now = os::monotonic_ns();
    if (word_.load(kRelaxed) != word) {
      seen = 0;
      continue;
    }
    if (seen != word) {
      seen = word;
      seen_since = now;
    }
    if (!ledger.holder_is_dead(word & ~kLockWaiters) && now - seen_since < kPatienceNs) continue;
    if (!word_.compare_exchange_strong(word, me_ | kLockWaiters, std::memory_order_acquire, kRelaxed)) continue;
    contract::ClaimDevice& total = ledger.page_->devices[device];
    total.repairs.fetch_add(1, kRelaxed);
    total.used_bytes.store(ledger.sum(device), kRelaxed);
    return;
  }
}

}  // namespace tensor_fusion::guest::limiter
