#pragma once
// One context on one engine: where a process puts its work and learns when it is done. Move-only; destroying it drops
// unfinished work and returns the context's memory overhead. A context whose process dies is reaped by whoever next
// advances or attaches.
//
// Threads: submit() on one lane must be serialised by the caller (one producer a lane; different lanes are
// independent). Everything else may be called from any thread at any time. Nothing here allocates or throws.
//
// Device time is CLOCK_MONOTONIC nanoseconds. The clock is simulated lazily: an item is done when the simulation of its
// engine has passed its end, which advance() brings up to `now`. A compute item of unknown duration stops the
// *simulation* at its end-so-far, not the device: when its duration is published the replay goes on from there, and
// what arrived meanwhile runs at the simulated time it would have run. Publish in lane order, soon, and never from
// code that waits for the same engine.
#include <cstdint>
#include <expected>
#include <optional>

#include "sim/device/error.h"
#include "sim/device/work.h"

namespace tensor_fusion::sim::device {

class Machine;
using EngineId = std::uint32_t;
struct ContextRecord;
struct EngineRecord;

[[nodiscard]] std::uint64_t now_ns();  // CLOCK_MONOTONIC

struct Span {
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
};

class Context {
 public:
  // Reserves `overhead_bytes` (default: the profile's) in the engine's memory domain. Fails with out_of_memory,
  // exhausted (128 contexts per engine), not_found, lost.
  [[nodiscard]] static std::expected<Context, Error> create(Machine& machine, EngineId engine,
                                                            std::uint64_t overhead_bytes = kUnknownNs);
  Context(Context&& other) noexcept;
  Context& operator=(Context&& other) noexcept;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  [[nodiscard]] ContextId id() const { return id_; }
  [[nodiscard]] EngineId engine() const { return engine_; }

  // Appends to a lane and returns at once (~100 ns, no lock), or blocks while the lane holds kLaneDepth unfinished
  // items. The blocking form must not be called by the only thread that could publish or open what the lane waits for.
  Ticket submit(unsigned lane, const Work& work);
  [[nodiscard]] Ticket try_submit(unsigned lane, const Work& work);  // 0 = the lane is full
  [[nodiscard]] Ticket last(unsigned lane) const;                    // last ticket given out on the lane, 0 = none

  // Says how long a compute or copy item of unknown duration takes in all. Exactly once per such item.
  void publish_duration(Ticket ticket, std::uint64_t duration_ns);
  // Says that it takes at least this long: lets the clock go on while the kernel is still being executed.
  void publish_progress(Ticket ticket, std::uint64_t at_least_ns);
  // Finishes a gate at device time max(reached, opened_ns).
  void open_gate(Ticket ticket, std::uint64_t opened_ns = now_ns());

  // done(): as of the last advance, no lock, ~5 ns. poll(): advances to now first.
  [[nodiscard]] bool done(Ticket ticket) const;
  [[nodiscard]] bool poll(Ticket ticket);
  [[nodiscard]] bool lane_idle(unsigned lane) const { return done(last(lane)); }
  // Start and end of a finished item; nothing if it is unfinished or kLaneDepth younger items of its lane are finished.
  [[nodiscard]] std::optional<Span> span(Ticket ticket) const;
  // Device time before which the item cannot be done; kUnknownNs if that hangs on something unpublished or unopened.
  [[nodiscard]] std::uint64_t completion_bound(Ticket ticket);
  // Sleeps to shortly before the bound, then polls. False: the deadline (CLOCK_MONOTONIC) passed first, or the device
  // is lost.
  bool wait(Ticket ticket, std::uint64_t deadline_ns = kUnknownNs);

  // Event slots: where a marker leaves its time for good (span() forgets after kLaneDepth items). exhausted at 8192.
  [[nodiscard]] std::expected<std::uint32_t, Error> allocate_event();
  void free_event(std::uint32_t event);
  // End time of the item that last completed into the slot; 0 = none yet. Valid once done(that item's ticket).
  [[nodiscard]] std::uint64_t event_time_ns(std::uint32_t event) const;

 private:
  Context() = default;
  void reset() noexcept;
  Machine* machine_ = nullptr;
  ContextRecord* record_ = nullptr;
  EngineRecord* engine_record_ = nullptr;
  ContextId id_ = 0;
  EngineId engine_ = 0;
  std::uint64_t launch_overhead_ns_ = 0;
};

// The same questions about a context of any process (IPC events): a context that is gone is done, with no time.
[[nodiscard]] bool remote_done(Machine& machine, Dependency what);
[[nodiscard]] std::uint64_t remote_event_time_ns(Machine& machine, ContextId context, std::uint32_t event);
bool remote_wait(Machine& machine, Dependency what, std::uint64_t deadline_ns = kUnknownNs);

}  // namespace tensor_fusion::sim::device
