#pragma once
// `run`: asks for a slice and then becomes the program. Because the process itself is replaced, the program's exit
// code, signals, terminal and standard streams are the program's own; the hypervisor notices its end by the pid.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/context.h"

namespace tensor_fusion::cli {

int run(const Context& context);                             // returns only when the program could not be started
int run(const Context& context, std::uint64_t patience_ns);  // with hypervisors that end under it

// The environment of the program: ours, changed as the user asked ("NAME=VALUE" sets, "NAME" removes), and last, so
// that it holds, what the slice needs.
std::vector<std::string> program_environment(const std::vector<std::string>& ours,
                                             const std::vector<std::pair<std::string, std::string>>& slice,
                                             const std::vector<std::string>& asked);

// The cards that the user named in CUDA_VISIBLE_DEVICES and that those of the slice take the place of.
std::optional<std::string> overruled_cards(const std::vector<std::string>& ours,
                                           const std::vector<std::pair<std::string, std::string>>& slice,
                                           const std::vector<std::string>& asked);

}  // namespace tensor_fusion::cli
