#pragma once
// The commands that change a running slice: limit, kill.
#include "cli/context.h"

namespace tensor_fusion::cli {

int change_limit(const Context& context);
int kill_slices(const Context& context);

}  // namespace tensor_fusion::cli
