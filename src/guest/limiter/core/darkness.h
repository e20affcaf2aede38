#pragma once
// How long launches have been held for what nobody can see the end of. What they are held for may be waiting for one of
// them (an event, a word of memory, a callback of the host): after a while they pass, a few each second.
// Under the gate's lock of the device.
#include <cstdint>

namespace tensor_fusion::guest::limiter::gate {

class Darkness {
 public:
  static constexpr std::uint64_t kPatienceNs = 2'000'000'000;
  static constexpr std::uint64_t kBetweenNs = 100'000'000;

  void lift() { since_ns_ = 0; }  // there is nothing of the kind
  bool holds(std::uint64_t now) {
    if (since_ns_ == 0) since_ns_ = now;
    if (now < since_ns_ + kPatienceNs || now < passed_ns_ + kBetweenNs) return true;
    passed_ns_ = now;
    return false;
  }

 private:
  std::uint64_t since_ns_ = 0, passed_ns_ = 0;
};

}  // namespace tensor_fusion::guest::limiter::gate
