#include "cli/simulated_machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string_view>

#include "base/text.h"
#include "cli/context.h"
#include "system/file.h"

namespace tensor_fusion::cli {
namespace {

constexpr const char* kVariable = "TENSOR_FUSION_SIM";
constexpr const char* kDirectoryVariable = "TENSOR_FUSION_SIM_DIR";
constexpr std::size_t kLargest = 4u << 20;

std::string file_of(pid_t pid, const char* name) {
  return system::read_file(fmt::format("/proc/{}/{}", pid, name), kLargest).value_or("");
}

}  // namespace

std::optional<MachineDoubt> other_machine(pid_t hypervisor) {
  const auto ours = environment(kVariable);
  if (!ours || hypervisor <= 0) return std::nullopt;
  const std::string variables = file_of(hypervisor, "environ");
  for (const std::string_view variable : base::split(variables, '\0')) {
    const std::size_t equals = variable.find('=');
    if (equals == variable.npos || variable.substr(0, equals) != kVariable) continue;
    const std::string_view theirs = variable.substr(equals + 1);
    // A file named from a folder that is not known here may be the same.
    const bool relative_file = !theirs.starts_with('/') && (theirs.find('/') != theirs.npos ||
                                                            theirs.ends_with(".yaml") || theirs.ends_with(".yml"));
    if (theirs.empty() || theirs == *ours || relative_file) return std::nullopt;
    return MachineDoubt{
        fmt::format("TENSOR_FUSION_SIM={} is not what the hypervisor (pid {}) gives out: its machine is {}", *ours,
                    hypervisor, theirs),
        "for another one end its programs, then `tensor-fusion hypervisor --stop`, and remove the machine's directory"};
  }
  return std::nullopt;
}

std::vector<std::pair<std::string, std::string>> machine_variables() {
  const auto directory = environment(kDirectoryVariable);
  if (!directory && !environment(kVariable)) return {};
  return {{kDirectoryVariable, directory.value_or("/dev/shm/tensor-fusion-sim-" + std::to_string(::getuid()))}};
}

std::optional<MachineDoubt> removed_machine(pid_t provider) {
  constexpr std::string_view kGone = "/state (deleted)";
  if (provider <= 0) return std::nullopt;
  const std::string maps = file_of(provider, "maps");
  for (const std::string_view line : base::split(maps, '\n')) {
    const std::size_t path = line.find('/');
    if (!line.ends_with(kGone) || path == line.npos) continue;
    return MachineDoubt{
        fmt::format("its directory {} was removed while the hypervisor uses it",
                    line.substr(path, line.size() - kGone.size() - path)),
        "end its programs, then `tensor-fusion hypervisor --stop`; the next `run` starts with a new one"};
  }
  return std::nullopt;
}

}  // namespace tensor_fusion::cli
