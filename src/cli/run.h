#pragma once
// `run`: asks for a slice and then becomes the program. Because the process itself is replaced, the program's exit
// code, signals, terminal and standard streams are the program's own; the hypervisor notices its end by the pid.
#include <cstdint>

#include "cli/context.h"

namespace tensor_fusion::cli {

int run(const Context& context);                             // returns only when the program could not be started
int run(const Context& context, std::uint64_t patience_ns);  // with hypervisors that end under it

}  // namespace tensor_fusion::cli
