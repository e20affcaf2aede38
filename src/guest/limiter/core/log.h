#pragma once
// One line on stderr, and only when TENSOR_FUSION_LIMITER_LOG is set and not empty: a preloaded library that speaks
// unasked breaks every program whose output is read by another.
namespace tensor_fusion::guest::limiter {

inline constexpr const char* kLogVariable = "TENSOR_FUSION_LIMITER_LOG";
void say(const char* text, const char* detail = nullptr);

}  // namespace tensor_fusion::guest::limiter
