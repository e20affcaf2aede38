#pragma once
// The clock over the shared file: gathers what is active on an engine, runs the pure core, commits.
#include <cstdint>

#include "sim/device/state.h"

namespace tensor_fusion::sim::device {

struct ClockOutcome {
  std::uint64_t clock_ns = 0;
  bool stalled = false;
  std::uint32_t stalled_process = 0;  // slot of the process that owes a duration
};

// One engine to `now`, together with those that its lanes wait for.
ClockOutcome advance_engine(Machine& machine, EngineId engine, std::uint64_t now);
// As Machine::advance, with the outcome; also reaps the dead from time to time.
ClockOutcome advance_and_reap(Machine& machine, EngineId engine, std::uint64_t now);

// Something that a sleeper without a bound may wait for has happened on the engine.
void stir(EngineRecord& engine);
// Sleeps until stir() after `seen` was read, or the timeout.
void await_stir(EngineRecord& engine, std::uint32_t seen, std::uint64_t timeout_ns);

}  // namespace tensor_fusion::sim::device
