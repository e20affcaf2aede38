#pragma once
// What a context gives its engine: timing items. An item says how long something takes and what it waits for; the bytes
// it changes are the caller's business. Items of one lane run in order; lanes of one context may overlap.
#include <cstdint>

namespace tensor_fusion::sim::device {

inline constexpr unsigned kLanes = 16;              // per context; more streams than that share lanes
inline constexpr std::uint32_t kLaneDepth = 1024;   // unfinished items of one lane; a full lane blocks the submitter
inline constexpr std::uint32_t kEventSlots = 8192;  // per context
inline constexpr std::uint32_t kNoEvent = 0xffffffff;

// Names one item of one context: lane in the top 8 bits, number in the lane (from 1) below. 0 names nothing and is
// always done.
using Ticket = std::uint64_t;
inline constexpr unsigned kTicketShift = 56;
[[nodiscard]] constexpr Ticket make_ticket(unsigned lane, std::uint64_t number) {
  return (static_cast<std::uint64_t>(lane) << kTicketShift) | number;
}
[[nodiscard]] constexpr unsigned ticket_lane(Ticket ticket) { return static_cast<unsigned>(ticket >> kTicketShift); }
[[nodiscard]] constexpr std::uint64_t ticket_number(Ticket ticket) {
  return ticket & ((std::uint64_t{1} << kTicketShift) - 1);
}

// A context of any process on any engine of the machine: slot and generation. 0 names none. A context that is gone
// counts as having done everything.
using ContextId = std::uint32_t;

struct Dependency {
  ContextId context = 0;
  Ticket ticket = 0;
};

enum class WorkKind : std::uint8_t {
  compute,  // kernel, memset: takes the SMs, time-sliced against other contexts
  h2d,      // copies: one FIFO server per direction and engine, beside compute
  d2h,
  d2d,     // also peer copies; on the engine that the context belongs to
  gate,    // finished by open_gate(): a host function, a host-side wait; stops only its lane
  wait,    // finished when `after` is: an event wait
  marker,  // takes no time: an event record
};

inline constexpr std::uint64_t kUnknownNs = ~std::uint64_t{0};

struct Work {
  WorkKind kind = WorkKind::marker;
  std::uint64_t duration_ns = 0;   // compute and copies: alone on the device; kUnknownNs = publish_duration() will tell
  float width = 1.0F;              // compute: fraction of the SMs it can fill, (0, 1]
  std::uint32_t event = kNoEvent;  // event slot that receives the end time
  Dependency after = {};           // wait: what must be done first; other kinds: likewise, before they start
  std::uint64_t arrival_ns = 0;    // 0 = now; else not before this device time
};

}  // namespace tensor_fusion::sim::device
