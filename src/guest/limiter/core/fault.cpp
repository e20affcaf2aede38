#include "guest/limiter/core/fault.h"

#include <signal.h>
#include <sys/syscall.h>

#include <atomic>

#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter {

std::uint32_t g_fault_point = 0;

namespace {
std::atomic<std::uint32_t> g_fault_countdown{0};
}

void fault_reached() {
  if (g_fault_countdown.fetch_sub(1, std::memory_order_relaxed) == 1) os::call(SYS_kill, os::process_id(), SIGKILL);
}

void arm_faults(const char* value) {
  if (value == nullptr) return;
  std::uint32_t numbers[2] = {0, 1};
  int part = 0;
  for (; *value != 0; ++value) {
    if (*value == ':' && part == 0) {
      part = 1;
      numbers[1] = 0;
    } else if (*value >= '0' && *value <= '9') {
      numbers[part] = numbers[part] * 10 + static_cast<std::uint32_t>(*value - '0');
    } else {
      return;
    }
  }
  g_fault_countdown.store(numbers[1], std::memory_order_relaxed);
  g_fault_point = numbers[0];
}

}  // namespace tensor_fusion::guest::limiter
