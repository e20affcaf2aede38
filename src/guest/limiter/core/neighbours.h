#pragma once
// The processes of a slice, as its claim page names them. What they say of themselves may be anything at any instant.
// Any thread; Sharers under the gate's lock of its device.
#include <cstdint>

#include "guest/limiter/core/attachment.h"

namespace tensor_fusion::guest::limiter {

// Calls `looks_at(owner, row)` for every one that lives, by slot + 1 and its row of the device, until that says true.
template <typename LooksAt>
bool any_process(const Device& device, const LooksAt& looks_at) {
  const contract::ClaimPage* claim = g_shared.slice.claim;
  if (claim == nullptr) return false;
  std::uint32_t high = claim->process_high.load(std::memory_order_relaxed);
  if (high > contract::kMaxProcesses) high = contract::kMaxProcesses;
  for (std::uint32_t slot = 0; slot < high; ++slot) {
    const contract::ClaimProcess& process = claim->processes[slot];
    if (process.state.load(std::memory_order_relaxed) != contract::kSlotLive) continue;
    if (looks_at(slot + 1, process.devices[device.index])) return true;
  }
  return false;
}

// How many use one device, counted now and then.
class Sharers {
 public:
  std::uint32_t count(const Device& device, std::uint64_t now) {
    if (counted_ns_ != 0 && now <= counted_ns_ + kEveryNs) return count_;
    count_ = 0;
    any_process(device, [this](std::uint32_t, const contract::ClaimProcessDevice& row) {
      const bool uses =
          row.contexts.load(std::memory_order_relaxed) != 0 || row.launches.load(std::memory_order_relaxed) != 0;
      count_ += uses ? 1 : 0;
      return false;
    });
    if (count_ == 0) count_ = 1;  // this one
    counted_ns_ = now;
    return count_;
  }

 private:
  static constexpr std::uint64_t kEveryNs = 50'000'000;
  std::uint64_t counted_ns_ = 0;
  std::uint32_t count_ = 0;  // counted before it is used; zero, so that the gate lies in memory not yet touched
};

}  // namespace tensor_fusion::guest::limiter
