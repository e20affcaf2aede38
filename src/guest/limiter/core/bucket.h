#pragma once
// What limits a process while the hypervisor is away: device time refilled at the fallback share, divided among the
// tenant's processes. Neither open nor closed: a launch may overdraw it once and then waits until it is paid back.
// Under the gate's lock of the device.
#include <cstdint>

#include "guest/limiter/core/device.h"

namespace tensor_fusion::guest::limiter {

class Bucket {
 public:
  static constexpr std::int64_t kCeilingNs = 10'000'000;
  static constexpr std::uint64_t kOthers = 3;                    // contexts that may have a turn for each of ours
  static constexpr std::uint64_t kMostExplainedNs = 20'000'000;  // what was explained and did not happen lapses
  static constexpr std::int64_t kDebtNs = 2'000'000'000;         // no debt is carried further than this

  // 0 = pass. `sharers`: processes of the slice that use the device.
  std::uint64_t wait_ns(const Device& device, std::uint64_t now, std::uint32_t sharers);
  void charge(std::uint64_t device_ns) { credit_ns_ -= active_ ? static_cast<std::int64_t>(device_ns) : 0; }
  // A stretch is over that was charged `estimated_ns` and took more: `late_ns` are its own, `slow_ns` may be the turns
  // of others, as far as its own work explains so many.
  void settle(std::uint64_t estimated_ns, std::uint64_t late_ns, std::uint64_t slow_ns);
  void rest(std::uint64_t now) {  // the hypervisor decides again
    active_ = false;
    filled_ns_ = now;
  }

 private:
  std::int64_t credit_ns_ = 0;
  std::uint64_t filled_ns_ = 0;
  std::uint64_t explained_ns_ = 0;  // turns of others that work of ours leaves room for
  bool active_ = false;
};

}  // namespace tensor_fusion::guest::limiter
