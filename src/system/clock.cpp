#include "system/clock.h"

#include <time.h>

namespace tensor_fusion::system {
namespace {

std::uint64_t read(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

std::uint64_t monotonic_ns() { return read(CLOCK_MONOTONIC); }
std::uint64_t wall_ms() { return read(CLOCK_REALTIME) / 1'000'000; }
std::uint64_t process_cpu_ns() { return read(CLOCK_PROCESS_CPUTIME_ID); }
std::uint64_t thread_cpu_ns() { return read(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace tensor_fusion::system
