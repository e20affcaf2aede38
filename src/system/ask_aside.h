#pragma once
// Asks what may keep whoever asks waiting for as long as somebody likes, in a process of its own: who gives no answer
// in time is passed over, and that process killed. It has none of our files, so nothing of ours is kept by it. Calls
// `ask` after a fork: it takes no locks but those of the C library. Any thread.
#include <cstddef>
#include <functional>
#include <vector>

namespace tensor_fusion::system {

struct Patience {
  int each_ms = 0;
  int all_ms = 0;
};
// Of 0 to count - 1, one after the other; false also of those who were passed over, and of all after `all_ms`.
std::vector<bool> asked_aside(std::size_t count, const std::function<bool(std::size_t)>& ask, Patience patience);

}  // namespace tensor_fusion::system
