#pragma once
// Inside this room: when one item of a context can be done, and sleeping until it is. Any thread; nothing is held while
// it sleeps.
#include <cstdint>

#include "sim/device/state.h"

namespace tensor_fusion::sim::device {

[[nodiscard]] inline LaneItem& item_at(ContextRecord& record, unsigned lane, std::uint64_t number) {
  return record.items[lane * kLaneDepth + (number - 1) % kLaneDepth];
}
// Whether the record still is that context's.
[[nodiscard]] inline bool same_generation(const ContextRecord& record, ContextId id) {
  return record.generation.load(std::memory_order_acquire) == context_generation(id) &&
         record.state.load(std::memory_order_acquire) == kSlotLive;
}
[[nodiscard]] inline bool is_done(const ContextRecord& record, Ticket ticket) {
  return record.completed[ticket_lane(ticket) % kLanes].load(std::memory_order_acquire) >= ticket_number(ticket);
}

// The device time before which the item cannot be done, in the state of the last advance: 0 when it is, kUnknownNs when
// that hangs on something unpublished or unopened.
[[nodiscard]] std::uint64_t bound_of(Machine& machine, ContextRecord& record, Ticket ticket, unsigned depth = 0);
// False when the deadline passed first or the device is lost. A context that goes away meanwhile, if it is named,
// counts as having done everything.
bool wait_for(Machine& machine, ContextRecord& record, Ticket ticket, std::uint64_t deadline_ns, ContextId may_go = 0);

}  // namespace tensor_fusion::sim::device
