#pragma once
// Completion scripts for bash, zsh and fish, written from the command table. Names of slices and devices are asked of
// the program at the time of completion. Pure.
#include <string>
#include <string_view>

namespace tensor_fusion::cli {

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();
std::string completion_for(std::string_view shell);  // empty for another shell

}  // namespace tensor_fusion::cli
