#pragma once
// Gives back what is gone: one context, or everything of processes that died. Idempotent step by step, so that a reaper
// killed half-way is completed by the next.
#include <cstdint>

namespace tensor_fusion::sim::device {

class Machine;

// Takes a context out of its engine and frees its slot; its account is kept among the retired. The caller holds
// State::admin.
void tear_down_context(Machine& machine, std::uint32_t context_slot);
// Number of dead processes cleaned up.
unsigned reap_dead(Machine& machine);
// Everything of one process slot, if that is dead or `leaving` (its own process says goodbye).
bool reap_process(Machine& machine, std::uint32_t process_slot, bool leaving);

}  // namespace tensor_fusion::sim::device
