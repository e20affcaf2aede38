#pragma once
// One line on stderr, and (but for complaints) only when TENSOR_FUSION_LIMITER_LOG is set and not empty: a preloaded
// library that speaks unasked breaks every program whose output is read by another.
namespace tensor_fusion::guest::limiter {

inline constexpr const char* kLogVariable = "TENSOR_FUSION_LIMITER_LOG";
void say(const char* text, const char* detail = nullptr);
bool says_all();  // whether say() would: for who must gather first what it has to say

// Said unasked, once in the life of a process: why it gets no GPU at all although its slice may have room. Such a
// program is about to end with an error that does not tell.
void complain(const char* text, const char* detail = nullptr);

}  // namespace tensor_fusion::guest::limiter
