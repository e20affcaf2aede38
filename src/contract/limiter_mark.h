#pragma once
// What every limiter library carries in its bytes, so that whoever is about to preload one can tell it from any other
// library, and one made for other pages from one made for these, without running it.
#include "contract/claim.h"
#include "contract/grant.h"

namespace tensor_fusion::contract {

inline constexpr char kLimiterMarkPrefix[] = "tensor-fusion limiter, pages ";

struct LimiterMark {
  char prefix[sizeof(kLimiterMarkPrefix) - 1];
  char grant_abi;  // a digit
  char claim_abi;
};
inline constexpr LimiterMark kLimiterMark = [] {
  LimiterMark mark{};
  for (std::size_t i = 0; i < sizeof(mark.prefix); ++i) mark.prefix[i] = kLimiterMarkPrefix[i];
  mark.grant_abi = static_cast<char>('0' + kGrantAbi);
  mark.claim_abi = static_cast<char>('0' + kClaimAbi);
  return mark;
}();
static_assert(kGrantAbi < 10 && kClaimAbi < 10 && sizeof(LimiterMark) == sizeof(kLimiterMarkPrefix) + 1);

}  // namespace tensor_fusion::contract
