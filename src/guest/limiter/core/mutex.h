#pragma once
// A lock between threads of one process, 4 bytes, no destructor, no libc. Not for memory of several processes: those
// use LedgerLock. A child of fork gets fresh ones with its fresh attachment.
#include <atomic>
#include <cstdint>

#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter {

class Mutex {
 public:
  [[gnu::always_inline]] void lock() {
    std::uint32_t free = 0;
    if (!word_.compare_exchange_strong(free, 1, std::memory_order_acquire, std::memory_order_relaxed)) wait();
  }
  bool try_lock() {
    std::uint32_t free = 0;
    return word_.compare_exchange_strong(free, 1, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void reset() { word_.store(0, std::memory_order_relaxed); }  // in a child of fork: who held it is not there
  [[gnu::always_inline]] void unlock() {
    if (word_.exchange(0, std::memory_order_release) == 2) os::futex_wake(&word_, 1, false);
  }

 private:
  [[gnu::noinline]] void wait() {
    for (int spin = 0; spin < 100; ++spin) {
      std::uint32_t free = 0;
      if (word_.load(std::memory_order_relaxed) == 0 &&
          word_.compare_exchange_weak(free, 1, std::memory_order_acquire, std::memory_order_relaxed))
        return;
      os::relax();
    }
    while (word_.exchange(2, std::memory_order_acquire) != 0) os::futex_wait(&word_, 2, 1'000'000'000, false);
  }
  std::atomic<std::uint32_t> word_{0};
};

// The same for what is used before a fork is noticed: one that came along locked, its holder left behind in the parent,
// is taken over. Costs a system call, and waits by looking again.
class ForkMutex {
 public:
  void lock() {
    const std::uint32_t me = os::process_id();
    for (std::uint32_t holder = 0;
         !word_.compare_exchange_weak(holder, me, std::memory_order_acquire, std::memory_order_relaxed);) {
      if (holder == me) {
        os::futex_wait(&word_, holder, 1'000'000, false);
        holder = 0;
      }
    }
  }
  void unlock() {
    word_.store(0, std::memory_order_release);
    os::futex_wake(&word_, 1, false);
  }

 private:
  std::atomic<std::uint32_t> word_{0};  // the process of the holder
};

template <class Lock>
class Guard {
 public:
  explicit Guard(Lock& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Guard() { mutex_.unlock(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Lock& mutex_;
};

}  // namespace tensor_fusion::guest::limiter
