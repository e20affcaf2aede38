#include "guest/limiter/core/event_clock.h"

#include "guest/limiter/core/driver.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kRenewNs = 1'000'000'000;  // events tell milliseconds as float: keep the numbers small
constexpr std::int64_t kDriftNs = 20'000;          // of the two clocks against each other in that time

bool elapsed(CUevent from, CUevent to, std::int64_t& result_ns) {
  float milliseconds = 0;
  if (driver().cuEventElapsedTime(&milliseconds, from, to) != CUDA_SUCCESS) return false;
  if (!(milliseconds > -1e9F && milliseconds < 1e9F)) return false;
  result_ns = static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6);
  return true;
}

}  // namespace

void EventClock::begin(CUcontext context) {
  context_ = context;
  base_ = next_base_ = nullptr;
  has_base_ = false;
  free_count_ = made_ = 0;
}

CUevent EventClock::take() {
  if (free_count_ > 0) return free_[--free_count_];
  if (made_ == kEvents) return nullptr;
  // The launching thread may have another context current than that of the stream: an event is of the current one.
  const bool pushes = driver().cuCtxPushCurrent_v2 != nullptr;
  if (pushes && driver().cuCtxPushCurrent_v2(context_) != CUDA_SUCCESS) return nullptr;
  CUevent event = nullptr;
  const CUresult created = driver().cuEventCreate(&event, 0);
  CUcontext popped = nullptr;
  if (pushes) driver().cuCtxPopCurrent_v2(&popped);
  if (created != CUDA_SUCCESS) return nullptr;
  ++made_;
  return event;
}

void EventClock::give(CUevent event) {
  if (event != nullptr && free_count_ < kEvents) free_[free_count_++] = event;
}

bool EventClock::start(CUstream stream, std::uint64_t now) {
  if (has_base_) return true;
  base_ = take();
  if (base_ == nullptr || driver().cuEventRecord(base_, stream) != CUDA_SUCCESS) return false;
  based_ns_ = now;
  low_ = static_cast<std::int64_t>(now);
  high_ = INT64_MAX;
  return has_base_ = true;
}

bool EventClock::renew(CUstream stream, std::uint64_t now) {
  if (next_base_ == nullptr) {
    if (now <= based_ns_ + kRenewNs) return false;
    CUevent next = take();
    if (next != nullptr && driver().cuEventRecord(next, stream) == CUDA_SUCCESS)
      next_base_ = next;
    else
      give(next);
    return false;
  }
  if (driver().cuEventQuery(next_base_) != CUDA_SUCCESS) return false;
  std::int64_t shift = 0;
  const bool told = elapsed(base_, next_base_, shift);
  if (told) {
    low_ += shift - kDriftNs;
    high_ += high_ == INT64_MAX ? 0 : shift + kDriftNs;
  }
  give(told ? base_ : next_base_);
  if (told) base_ = next_base_;
  next_base_ = nullptr;
  based_ns_ = now;
  return told;
}

bool EventClock::tell(CUevent event, std::int64_t& since_base_ns) const { return elapsed(base_, event, since_base_ns); }

// Where bounds contradict each other by a rounding or a drift, the new word moves the old one no further than it must.
std::int64_t EventClock::narrow(std::int64_t low, std::int64_t high) {
  if (high < high_) high_ = high;
  if (low_ > high_) low_ = high_;
  if (low > low_) low_ = low;
  if (high_ < low_) high_ = low_;
  return low_ + (high_ - low_) / 2;
}

}  // namespace tensor_fusion::guest::limiter
