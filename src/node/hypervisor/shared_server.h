#pragma once
// Whether a process works for many, as an MPS server does: its memory is its clients'. Anybody may call itself so; it
// is believed by the file it executes where root or the hypervisor's own user runs it, or where their control daemon
// has started it, which does so as a client's user, and only where it stands in the hypervisor's or the machine's own
// files: a slice's program that has got out of its view by another root or another mount namespace has the same user
// and may have the same name. Not of processes in slices: theirs are the slice's. Reads /proc.
#include <sys/types.h>

#include "system/process.h"

namespace tensor_fusion::node::hypervisor {

// In the mount namespace and the root folder of the hypervisor or of the machine's first process. A program with other
// mounts or another root does not: from there nothing tells a service of root's from what a slice of root's could make.
bool stands_in_own_files(pid_t pid);
bool is_shared_server(const system::ProcessStat& stat);

}  // namespace tensor_fusion::node::hypervisor
