#pragma once
// How far a process's estimates are believed. What a kernel takes may depend on its arguments: one learned as short may
// turn out to be long, and by then what the window has room for is queued. Who was so far off has its launches measured
// one by one until enough of them have kept their word, twice as many each time; a time without one halves that again.
// Under the gate's lock of the device.
#include <cstdint>

namespace tensor_fusion::guest::limiter {

class Trust {
 public:
  static constexpr std::uint32_t kFirst = 16;
  static constexpr std::uint32_t kMostSteps = 9;
  static constexpr std::uint64_t kForgiveNs = 30'000'000'000;

  // Whether a stretch of known launches took so much longer that others' turns and a busy device do not explain it.
  static bool broken(std::uint64_t measured_ns, std::uint64_t estimated_ns) {
    return measured_ns > 20 * estimated_ns && measured_ns - estimated_ns > 50'000'000;
  }

  bool low() const { return to_confirm_ > 0; }
  void kept(std::uint32_t launches) { to_confirm_ -= launches < to_confirm_ ? launches : to_confirm_; }
  void was_broken(std::uint64_t now) {
    for (; steps_ > 0 && now > broken_ns_ + kForgiveNs; broken_ns_ += kForgiveNs) --steps_;
    to_confirm_ = kFirst << steps_;
    if (steps_ < kMostSteps) ++steps_;
    broken_ns_ = now;
  }

 private:
  std::uint64_t broken_ns_ = 0;
  std::uint32_t to_confirm_ = 0;
  std::uint32_t steps_ = 0;
};

}  // namespace tensor_fusion::guest::limiter
