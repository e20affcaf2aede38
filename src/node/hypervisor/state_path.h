#pragma once
// Whether a path can be a state directory, as far as that is to be seen without changing anything: every command asks
// this first, so that a wrong path is the same sentence and the same code whoever is given it. A directory that no
// hypervisor has made (without its lock) and in which anything else stands than what one makes is refused: in its own
// directory a hypervisor removes what is left over. Whether it can be written is found out by writing (StateDirectory).
#include <string>

#include "base/result.h"

namespace tensor_fusion::node::hypervisor {

base::Result<void> check_state_path(const std::string& path);

}  // namespace tensor_fusion::node::hypervisor
