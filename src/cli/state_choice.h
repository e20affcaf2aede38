#pragma once
// Which state directory a user's command means that names none: the user's own, or that of the hypervisor which root
// runs for everybody. Looks, and never waits: who can wait for a hypervisor says so meanwhile. Any thread.
#include <string>

namespace tensor_fusion::cli {

inline constexpr const char* kMachineState = "/run/tensor-fusion";  // of root's hypervisor

// Whose hypervisor answers, the user's own first. Where neither does: whose slices have outlived theirs, so that a card
// of which the machine's has given parts is not given out a second time while that is replaced.
std::string choose_state(const std::string& own, const std::string& machine);

// Slices that have outlived their hypervisor; their pages tell of them also where somebody has deleted the records.
bool holds_slices(const std::string& state);

}  // namespace tensor_fusion::cli
