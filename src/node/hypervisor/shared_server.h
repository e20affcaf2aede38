#pragma once
// Whether a process works for many, as an MPS server does: its memory is its clients'. Anybody may call itself so; it
// is believed by the file it executes where root or the hypervisor's own user runs it, or where their control daemon
// has started it, which does so as a client's user. Not of processes in slices: theirs are the slice's. Reads /proc.
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {

bool is_shared_server(const system::ProcessStat& stat);

}  // namespace tensor_fusion::node::hypervisor
