#pragma once
// `hypervisor`: becomes the daemon of this machine, or ends the one that runs.
#include "cli/context.h"

namespace tensor_fusion::cli {

int run_hypervisor(const Context& context);

}  // namespace tensor_fusion::cli
