#include "guest/limiter/core/pace.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint64_t kEveryNs = 1'000'000'000;

}  // namespace

bool Pace::is_due(std::uint64_t now_ns, std::uint32_t& skipped) {
  std::uint64_t next = next_ns_.load(kRelaxed);
  if (now_ns >= next && next_ns_.compare_exchange_strong(next, now_ns + kEveryNs, kRelaxed)) {
    skipped = skipped_.exchange(0, kRelaxed);
    return true;
  }
  skipped_.fetch_add(1, kRelaxed);
  return false;
}

}  // namespace tensor_fusion::guest::limiter
