#pragma once
// The locked side of memory accounting: what the reaper and MIG do to a domain.
#include <cstdint>

#include "sim/device/state.h"

namespace tensor_fusion::sim::device {

// Zeroes what a dead process held, in all domains.
void release_all_memory(State& state, std::uint32_t process_slot);
// The process's bytes in the domain out of the account, remembered, or back into it: false when they do not fit there.
// Doing it again changes nothing.
bool move_memory(State& state, std::uint32_t process_slot, std::uint32_t domain, bool park);
void init_domain(DomainRecord& domain, std::uint64_t capacity_bytes);
// For a domain that nobody uses.
void set_domain_capacity(State& state, std::uint32_t domain, std::uint64_t capacity_bytes);

}  // namespace tensor_fusion::sim::device
