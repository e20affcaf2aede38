#pragma once
// What a launch costs in device time, learned per function and shape, and per executable graph. Read on every launch
// without a lock; written when a measurement comes in. Fixed size: when full, what is new takes the row of what was
// measured longest ago. Any thread.
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tensor_fusion::guest::limiter {

enum class Measured {
  alone,      // nothing else was on the device
  disturbed,  // others may have been
  wanting,    // the same, but what is known is too short
};

struct Duration {
  std::atomic<std::uint64_t> key;             // 0 = free
  std::atomic<std::uint32_t> estimated_ns;    // what a launch is charged; a guess until `samples`
  std::atomic<std::uint32_t> samples;         // measurements taken, saturating at kSettled
  std::atomic<std::uint64_t> next_sample_ns;  // measure again at the first chance after this
  std::atomic<std::uint64_t> alone_ns;        // when a measurement was last not disturbed by others
  std::atomic<std::uint32_t> launched;        // let through before the first measurement came in
  std::atomic<std::uint32_t> family;          // who may vouch for it (core/family.h), 0 = nobody
  std::atomic<std::uint32_t> blocks;          // of its grid, for the family

  static constexpr std::uint32_t kSettled = 8;  // launches measured one by one before sampling starts
  bool settled() const { return samples.load(std::memory_order_relaxed) >= kSettled; }
  bool known() const { return samples.load(std::memory_order_relaxed) != 0; }
  // One measurement. Interruptions only ever make work look longer, so a shorter one counts more than a longer one.
  void learn(std::uint64_t measured_ns, Measured how, std::uint64_t now_ns);
  void forget() {
    launched.store(0, std::memory_order_relaxed);
    samples.store(0, std::memory_order_release);
  }
};

inline constexpr std::uint32_t kFirstGuessNs = 100'000;  // of a kernel never seen
inline constexpr std::uint32_t kLeastNs = 500;           // of any launch: the device's own launch cost

class Durations {
 public:
  static constexpr std::size_t kRows = 8192;
  static constexpr std::size_t kProbes = 16;

  [[gnu::always_inline]] static std::uint64_t key_of(const void* function, std::uint64_t shape) {
    const auto word = reinterpret_cast<std::uint64_t>(function);
    const std::uint64_t mixed = (word ^ (shape * 0x9e3779b97f4a7c15u)) * 0xff51afd7ed558ccdu;
    return (mixed ^ (mixed >> 32)) | 1;
  }
  [[gnu::always_inline]] Duration* find(std::uint64_t key) {
    Duration& row = rows_[(key >> 1) % kRows];
    if (__builtin_expect(row.key.load(std::memory_order_relaxed) == key, 1)) return &row;
    return search(key);
  }
  Duration& find_or_add(std::uint64_t key, std::uint32_t guess_ns);
  void remove(std::uint64_t key);
  void clear();

 private:
  Duration* search(std::uint64_t key);
  Duration rows_[kRows];
  std::atomic<std::uint32_t> used_;
};

extern Durations g_durations;

}  // namespace tensor_fusion::guest::limiter
