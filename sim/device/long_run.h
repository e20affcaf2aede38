#pragma once
// For kernels that are still being executed after long: the clock may go on with them, as a card does. Any thread.
#include <cstdint>

#include "sim/device/context.h"

namespace tensor_fusion::sim::device {

// Says of an item of unknown duration that it takes at least `ahead_ns` more than the clock has given it by now. Called
// again and again, more often than `ahead_ns` passes, it keeps the clock from standing still; and whoever waits for the
// item looks again after that time. Nothing for an item that is not the next of its lane.
void keep_running(Machine& machine, Context& context, Ticket ticket, std::uint64_t ahead_ns);

}  // namespace tensor_fusion::sim::device
