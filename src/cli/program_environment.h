#pragma once
// The environment of the program that `run` becomes. Entries are `NAME=VALUE`, as a process holds them. Pure; any
// thread.
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tensor_fusion::cli {

// Ours, changed as the user asked ("NAME=VALUE" sets, "NAME" removes), and last, so
// that it holds, what the slice needs.
std::vector<std::string> program_environment(const std::vector<std::string>& ours,
                                             const std::vector<std::pair<std::string, std::string>>& slice,
                                             const std::vector<std::string>& asked);

// The cards that the user named in CUDA_VISIBLE_DEVICES and that those of the slice take the place of.
std::optional<std::string> overruled_cards(const std::vector<std::string>& ours,
                                           const std::vector<std::pair<std::string, std::string>>& slice,
                                           const std::vector<std::string>& asked);

}  // namespace tensor_fusion::cli
