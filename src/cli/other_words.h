#pragma once
// Words that other programs use for what this one calls differently, and what to write instead: no typo of ours is near
// them, or a wrong one is. Pure; any thread.
#include <string_view>

namespace tensor_fusion::cli {

// What to write for a command that is none of ours; "" when nothing is known.
std::string_view meant_by_command(std::string_view word);
// The name, without dashes, of the option that `--word` most likely meant; "" when nothing is known.
std::string_view meant_by_option(std::string_view word);

}  // namespace tensor_fusion::cli
