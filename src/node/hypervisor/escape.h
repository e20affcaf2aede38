#pragma once
// Whether a process that uses a GPU without a live claim has got past its slice's limiter, by what it has in its
// memory. One that has its slice's claim there, and the limiter where a view shows which that is, has it at work in it
// (it is refused, or about to be seen); one with the limiter and without a CUDA driver works through another of the
// driver's libraries (graphics), which no limiter covers. What the process maps is its own to choose: this tells
// mistakes and tools from slices that hold, no more. Reads nothing beside what the slice's MapReader reads and has an
// allowance for, and takes nobody for escaped by what it has not seen. One thread.
#include <sys/types.h>

#include <cstdint>

#include "node/hypervisor/limiter_proof.h"

namespace tensor_fusion::node::hypervisor {

enum class Escape : std::uint8_t {
  yes,
  no,     // also when that is not to be seen
  later,  // ask again in the next period
};

bool is_past_the_limiter(const Libraries& seen);  // of who has no limiter at work
Escape has_escaped(pid_t pid, std::uint64_t start_ticks, MapReader& reader, const SliceFiles& files,
                   std::uint64_t now_ns);

}  // namespace tensor_fusion::node::hypervisor
