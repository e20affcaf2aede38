#pragma once
// Who a process is and whether it still lives, by pid and start time (a pid alone may have been reused). Valid only
// between processes of one pid namespace; the caller compares namespaces first. Reads /proc; thread-safe.
#include <cstdint>

namespace tensor_fusion::guest::limiter {

struct ProcessStatus {
  bool found = false;
  bool dead = false;  // gone, or a zombie with no thread left: its files, and so its GPU memory, are released
  std::uint64_t start_ticks = 0;  // field 22 of /proc/<pid>/stat
};

ProcessStatus process_status(std::uint32_t pid);
ProcessStatus parse_stat(const char* text, long size);  // for tests and fuzzing

// False only when it is certain that the process named by (pid, start_ticks) has ended.
bool may_be_alive(std::uint32_t pid, std::uint64_t start_ticks);

}  // namespace tensor_fusion::guest::limiter
