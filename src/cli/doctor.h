#pragma once
// What would stop a slice on this machine, and what to do about it. Looks, changes nothing, and starts no hypervisor;
// each look is one finding.
#include <string>
#include <vector>

#include "cli/context.h"
#include "view/finding.h"

namespace tensor_fusion::cli {

int doctor(const Context& context);

std::vector<view::Finding> examine(const Context& context);

}  // namespace tensor_fusion::cli
