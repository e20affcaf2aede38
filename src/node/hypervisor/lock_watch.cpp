#include "node/hypervisor/lock_watch.h"

namespace tensor_fusion::node::hypervisor {
namespace {

std::uint32_t holder_of(const contract::ClaimPage& page, std::uint32_t device) {
  return page.devices[device % contract::kMaxDevices].lock.load(std::memory_order_acquire) & ~contract::kLockWaiters;
}

}  // namespace

void LockWatch::look(const contract::ClaimPage& page, std::uint64_t now_ns) {
  for (std::uint32_t device = 0; device < contract::kMaxDevices; ++device) {
    Seen& seen = seen_[device];
    const std::uint32_t holder = holder_of(page, device);
    if (holder != seen.holder) seen = {holder, 0, now_ns};
    if (holder != 0) ++seen.looks;
  }
}

bool LockWatch::abandoned(const contract::ClaimPage& page, std::uint32_t device, std::uint64_t now_ns) const {
  const Seen& seen = seen_[device % contract::kMaxDevices];
  return seen.holder > contract::kMaxProcesses && seen.holder == holder_of(page, device) && seen.looks >= kLooks &&
         now_ns - seen.since_ns >= kPatienceNs;
}

}  // namespace tensor_fusion::node::hypervisor
