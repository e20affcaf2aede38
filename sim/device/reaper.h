#pragma once
// Gives back what is gone: one context, or everything of processes that died. Idempotent step by step, so that a reaper
// killed half-way is completed by the next.
#include <cstdint>

namespace tensor_fusion::sim::device {

class Machine;
struct State;

// Takes a context out of its engine and frees its slot; its account is kept among the retired. The caller holds
// State::admin.
void tear_down_context(Machine& machine, std::uint32_t context_slot);
// The last step of giving a context up; its slot may be claimed again. The caller holds State::admin.
void free_context_slot(State& state, std::uint32_t context_slot);
// Number of dead processes cleaned up.
unsigned reap_dead(Machine& machine);
// The same, unless somebody has looked within the last 200 µs: for readers that ask in bursts.
void reap_lately(Machine& machine);
inline constexpr std::uint64_t kReapPeriodNs = 10'000'000;  // an advance looks this often
// Everything of one process slot, if that is dead or `leaving` (its own process says goodbye).
bool reap_process(Machine& machine, std::uint32_t process_slot, bool leaving);

}  // namespace tensor_fusion::sim::device
