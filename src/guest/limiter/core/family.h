#pragma once
// What launches of one function cost by the size of their grid, for grids that were never launched. A family is those
// of one function and block with about as many blocks (half an octave): they are expected to take as long for each
// block. It vouches for a new grid once enough of its launches took what it foretold, so that only the first of a
// family are waited for one by one. A launch that takes far longer ends that, and each time it takes twice as many to
// earn it again: what nobody knows buys no pass by having a new grid. Fixed size, as the table of durations; any
// thread.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "guest/limiter/core/durations.h"

namespace tensor_fusion::guest::limiter {

class Family {
 public:
  // Not one that is just being made: its key shows before its numbers do.
  bool vouches() const {
    const std::uint32_t needed = needed_.load(std::memory_order_relaxed);
    return needed != 0 && foretold_.load(std::memory_order_relaxed) >= needed;
  }
  std::uint64_t foretell_ns(std::uint64_t blocks) const;  // 0: nothing is known
  void learn(std::uint64_t measured_ns, std::uint64_t blocks, Measured how);

  void begin(std::uint64_t key);
  void forget();  // and is free

  static constexpr std::uint32_t kFirstNeeded = 4;

 private:
  friend class Families;

  std::atomic<std::uint64_t> key_;   // 0 = free
  std::atomic<std::uint64_t> rate_;  // nanoseconds for each block, in 65536ths
  std::atomic<std::uint32_t> foretold_;
  std::atomic<std::uint32_t> needed_;  // 0: not begun
};

class Families {
 public:
  static constexpr std::size_t kRows = 2048;
  static constexpr std::size_t kProbes = 8;

  // The row of a launch. When it is new, its family's word is the first guess, or `guess_ns` where there is none.
  // `shape` as in gate::LaunchKey.
  Duration& duration_of(const void* function, std::uint64_t shape, std::uint64_t key, std::uint32_t guess_ns);
  // Of a row whose duration is not known.
  bool vouch_for(const Duration& duration) const;
  void learn(const Duration& duration, std::uint64_t measured_ns, Measured how);
  void clear();

 private:
  Family* named(const Duration& duration) const;
  Family& find_or_add(std::uint64_t key);

  mutable Family rows_[kRows];
  std::atomic<bool> used_;
};

extern Families g_families;

}  // namespace tensor_fusion::guest::limiter
