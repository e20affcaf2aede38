#pragma once
// What goes wrong on a card, as its driver would tell: Xid events, kept in a ring of the last 64 per card.
#include <cstdint>
#include <vector>

namespace tensor_fusion::sim::device {

class Machine;

struct HealthEvent {
  std::uint64_t number;   // 1, 2, … per card
  std::uint64_t time_ns;  // CLOCK_MONOTONIC
  std::uint32_t xid;
  std::uint32_t pid;                            // process that caused it, 0 = none
  std::int32_t gpu_instance, compute_instance;  // -1 = whole card
};

// Records an Xid (31 = illegal address, 43 = stopped, 79 = off the bus …) and wakes waiters. Any thread.
void report_xid(Machine& machine, unsigned device, std::uint32_t xid, std::uint32_t pid, std::int32_t gpu_instance = -1,
                std::int32_t compute_instance = -1);
[[nodiscard]] std::uint64_t last_health_event(Machine& machine, unsigned device);
// Events numbered above `after`, oldest first.
[[nodiscard]] std::vector<HealthEvent> health_events(Machine& machine, unsigned device, std::uint64_t after);
// Sleeps until any card has an event its number in `seen` (one per card) lacks, or the timeout; true = there is one.
bool wait_health_event(Machine& machine, const std::vector<std::uint64_t>& seen, std::uint32_t timeout_ms);

}  // namespace tensor_fusion::sim::device
