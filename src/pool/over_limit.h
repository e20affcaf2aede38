#pragma once
// When a slice counts as far above its memory limit: its limit was lowered below what it holds, or the account that its
// limiter keeps is not what the driver shows. A little above is the driver's own coming and going. Pure.
#include <algorithm>
#include <cstdint>

namespace tensor_fusion::pool {

inline constexpr std::uint64_t kSlackBytes = 64u << 20;

constexpr bool is_far_above(std::uint64_t used_bytes, std::uint64_t limit_bytes) {
  return limit_bytes != 0 && used_bytes > limit_bytes &&
         used_bytes - limit_bytes > std::max(limit_bytes / 16, kSlackBytes);
}

}  // namespace tensor_fusion::pool
