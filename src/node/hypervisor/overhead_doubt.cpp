#include "node/hypervisor/overhead_doubt.h"

#include <algorithm>

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::size_t kMostSeen = 64;  // that came and went before they were seen twice

}  // namespace

std::uint64_t OverheadDoubt::saw(const Process& process, std::uint64_t shown_bytes, std::uint64_t known_bytes) {
  if (shown_bytes >= known_bytes || seen_.size() >= kMostSeen) {
    seen_.clear();
    return 0;
  }
  if (shown_bytes == 0) return 0;
  Seen& seen = seen_[process];
  seen.twice = seen.shown_bytes == shown_bytes;  // else its context was still being made
  seen.shown_bytes = shown_bytes;
  std::size_t sure = 0;
  std::uint64_t most = 0;
  for (const auto& [one, its] : seen_) {
    if (!its.twice) continue;
    ++sure;
    most = std::max(most, its.shown_bytes);
  }
  if (sure < kProcesses) return 0;
  seen_.clear();
  return most;
}

}  // namespace tensor_fusion::node::hypervisor
