#pragma once
// `bench`: runs the benchmark programs that were built or installed with this one, each of which ends in one line
// `bench NAME: key=value …` and its own exit code.
#include "cli/context.h"

namespace tensor_fusion::cli {

int bench(const Context& context);

}  // namespace tensor_fusion::cli
