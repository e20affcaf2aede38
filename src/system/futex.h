#pragma once
// Waking those who wait on a word of a shared page. Any thread.
#include <atomic>
#include <cstdint>

namespace tensor_fusion::system {

void futex_wake_all(std::atomic<std::uint32_t>& word);

}  // namespace tensor_fusion::system
