#pragma once
// What one process may do to another's use of the machine: hold its driver back, see whether its work is over, and give
// its device memory away and take it again. For checkpoints. Any thread of any process; a process that dies in between
// leaves nothing half done that its successor or the reaper does not mend.
#include <cstdint>
#include <expected>
#include <vector>

#include "sim/device/error.h"
#include "sim/device/machine.h"

namespace tensor_fusion::sim::device {

// Places of a live process in the machine, one for each library of it that attached; none when it is not here.
[[nodiscard]] std::vector<std::uint32_t> places_of(const Machine& machine, std::uint32_t pid);

// The state that a process's driver looks at before each call: 0 runs, what else is the driver's business.
[[nodiscard]] std::uint32_t held_state(const Machine& machine, std::uint32_t place);
// False when it was not `from`.
bool change_held_state(Machine& machine, std::uint32_t place, std::uint32_t from, std::uint32_t to);
// Sleeps while the process of this machine is in another state than 0.
void await_running(Machine& machine);

// Whether all that its contexts were given is done, by now.
[[nodiscard]] bool work_is_over(Machine& machine, std::uint32_t place);
// All its device memory is free for others; or taken again, or out_of_memory with nothing taken.
void park_memory(Machine& machine, std::uint32_t place);
[[nodiscard]] std::expected<void, Error> unpark_memory(Machine& machine, std::uint32_t place);

}  // namespace tensor_fusion::sim::device
