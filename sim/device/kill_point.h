#pragma once
// Places where a test kills the process: every step of a change to shared state is followed by one. Off, it is one
// relaxed load.
#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace tensor_fusion::sim::device {

inline std::atomic<int> kill_countdown{0};  // 0: off; n: die at the n-th point from now

inline void kill_point() {
  if (kill_countdown.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  if (kill_countdown.fetch_sub(1, std::memory_order_relaxed) == 1) ::kill(::getpid(), SIGKILL);
}

}  // namespace tensor_fusion::sim::device
