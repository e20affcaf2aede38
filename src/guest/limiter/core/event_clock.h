#pragma once
// The clock of one context: its events, and where the time that they tell lies on this host's monotonic clock. Events
// tell differences only, so one of them is the base, renewed now and then, and every marker bounds from both sides when
// that was. Under the gate's lock of the device, whatever context is current; calls the driver through driver().
#include <cstddef>
#include <cstdint>

#include "contract/cuda.h"
#include "guest/limiter/core/device.h"

namespace tensor_fusion::guest::limiter {

class EventClock {
 public:
  static constexpr std::size_t kEvents = 320;  // a start and an end for every stream that is followed, and some

  void begin(CUcontext context);      // nothing is left of the one before
  void end() { context_ = nullptr; }  // with its context, and so its events
  CUcontext context() const { return context_; }

  CUevent take();  // null: there is none
  void give(CUevent event);
  std::size_t left() const { return free_count_ + (kEvents - made_); }

  bool started() const { return has_base_; }
  bool start(CUstream stream, std::uint64_t now);  // by an event on it, unless it has been; false: that failed
  // A new base where it is time for one, or one that has passed takes over: then true, and what was told before counts
  // from another moment.
  bool renew(CUstream stream, std::uint64_t now);

  bool tell(CUevent event, std::int64_t& since_base_ns) const;
  // The base lay between these on the host's clock. Returns where it is taken to lie.
  std::int64_t narrow(std::int64_t low, std::int64_t high);

 private:
  CUcontext context_ = nullptr;
  CUevent base_ = nullptr;
  CUevent next_base_ = nullptr;  // recorded, to take over when it has passed
  bool has_base_ = false;
  std::uint64_t based_ns_ = 0;  // host time of the last change of base
  std::int64_t low_ = 0, high_ = 0;
  CUevent free_[kEvents] = {};
  std::uint32_t free_count_ = 0;
  std::uint32_t made_ = 0;
};

}  // namespace tensor_fusion::guest::limiter
