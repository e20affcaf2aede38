#pragma once
// When the next of many lines may be said: one a second, with how many there were between. Any thread.
#include <atomic>
#include <cstdint>

namespace tensor_fusion::guest::limiter {

class Pace {
 public:
  // True: now, and `skipped` times before it was not.
  bool is_due(std::uint64_t now_ns, std::uint32_t& skipped);

 private:
  std::atomic<std::uint64_t> next_ns_{0};
  std::atomic<std::uint32_t> skipped_{0};
};

}  // namespace tensor_fusion::guest::limiter
