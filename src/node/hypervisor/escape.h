#pragma once
// Whether a process that uses a GPU without a live claim has got past its slice's limiter, by what it has in its
// memory. A process that opened the claim has the limiter at work in it (it is refused, or about to be seen); one with
// the limiter and without a CUDA driver works through another of the driver's libraries (graphics), which no limiter
// covers. What the process maps is its own to choose: this tells mistakes and tools from slices that hold, no more.
// Reads a bounded part of /proc/PID/maps. Any thread.
#include <sys/types.h>

#include <string_view>

namespace tensor_fusion::node::hypervisor {

bool is_past_the_limiter(std::string_view maps);  // lines of /proc/PID/maps
bool has_escaped(pid_t pid);                      // false when that is not to be seen

}  // namespace tensor_fusion::node::hypervisor
