#pragma once
// For tests: awaits a state instead of sleeping for a time. Asks every 2 ms; bounded.
#include <time.h>

#include <cstdint>
#include <functional>

#include "system/clock.h"

namespace tensor_fusion::system {

inline bool eventually(const std::function<bool()>& condition, std::uint64_t timeout_ms = 20'000) {
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 2'000'000};
  for (const std::uint64_t end = monotonic_ns() + timeout_ms * 1'000'000; !condition();) {
    if (monotonic_ns() > end) return false;
    ::nanosleep(&kPause, nullptr);
  }
  return true;
}

}  // namespace tensor_fusion::system
