#pragma once
// What a launch that nobody has measured is taken to last: about what the last such launches did. A program that makes
// everything anew each time (a compiler at run time, a search for the best kernel) would else be taken to ask for
// little for ever. Read by any thread; told under the gate's lock of the device.
#include <atomic>
#include <cstdint>

#include "guest/limiter/core/durations.h"

namespace tensor_fusion::guest::limiter {

class Guess {
 public:
  static constexpr std::uint32_t kMostNs = 20'000'000;  // of long ones the stretch itself tells, and they go one by one

  std::uint32_t ns() const { return kFirstGuessNs + beyond_ns_.load(std::memory_order_relaxed); }
  // One took so long, with others' turns if there were any.
  void learn(std::uint64_t measured_ns) {
    const std::uint64_t old = ns();
    const std::uint64_t sample = measured_ns < kFirstGuessNs ? kFirstGuessNs
                                 : measured_ns < kMostNs     ? measured_ns
                                                             : kMostNs;
    const std::uint64_t told =
        sample < old ? old - (old - sample) / 4 : old + (sample - old < old ? sample - old : old) / 2;
    beyond_ns_.store(static_cast<std::uint32_t>(told) - kFirstGuessNs, std::memory_order_relaxed);
  }
  void forget() { beyond_ns_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> beyond_ns_{0};  // zero, so that the gate lies in memory not yet touched
};

}  // namespace tensor_fusion::guest::limiter
