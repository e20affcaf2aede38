#pragma once
// Whether the simulated machine that this user's environment asks for is still the one that a running hypervisor gives
// out: a hypervisor keeps the environment and the machine that it was started with. Looks at its process; says nothing
// where that may not be looked at. Any thread.
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tensor_fusion::cli {

struct MachineDoubt {
  std::string detail;
  std::string advice;
};

// TENSOR_FUSION_SIM here is another than the hypervisor's.
std::optional<MachineDoubt> other_machine(pid_t hypervisor);
// Where this process's simulated machine lies, for the programs of other users: by themselves they would make one of
// their own. Nothing where no machine is asked for.
std::vector<std::pair<std::string, std::string>> machine_variables();
// The machine's directory was removed while the provider, which measures for the hypervisor, uses it.
std::optional<MachineDoubt> removed_machine(pid_t provider);

}  // namespace tensor_fusion::cli
