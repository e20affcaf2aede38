#pragma once
// How a file is named among the mounts of whoever has it bound somewhere: by its device and its path from the root of
// its file system, as /proc/PID/mountinfo writes them. A mount namespace that is made within a slice's view begins with
// all its mounts, and who only covers them has them still. The name cannot be forged: only that file has it. Reads
// /proc; no state.
#include <sys/types.h>

#include <string>
#include <string_view>

namespace tensor_fusion::node::hypervisor {

std::string mount_name(const std::string& file);  // "": the kernel does not say
std::string mounts_of(pid_t pid);                 // the first of them, as many as are looked at
bool has_mount(std::string_view mounts, std::string_view name);

}  // namespace tensor_fusion::node::hypervisor
