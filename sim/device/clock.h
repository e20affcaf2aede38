#pragma once
// The clock over the shared file: gathers what is active on an engine, runs the pure core, commits.
#include <array>
#include <cstdint>

#include "sim/device/state.h"

namespace tensor_fusion::sim::device {

class EngineSet {
 public:
  [[nodiscard]] bool has(EngineId e) const { return ((words_[e >> 6] >> (e & 63)) & 1) != 0; }
  void add(EngineId e) { words_[e >> 6] |= std::uint64_t{1} << (e & 63); }

 private:
  std::array<std::uint64_t, kMaxEngines / 64> words_{};
};

struct ClockOutcome {
  std::uint64_t clock_ns = 0;
  bool stalled = false;
  std::uint32_t stalled_process = 0;  // slot of the process that owes a duration
};

// One engine to `now`, engines that its lanes wait for first. `visited` are those already being advanced.
ClockOutcome advance_engine(Machine& machine, EngineId engine, std::uint64_t now, EngineSet& visited);
// As Machine::advance, with the outcome; also reaps the dead from time to time.
ClockOutcome advance_and_reap(Machine& machine, EngineId engine, std::uint64_t now);

// Something that a sleeper without a bound may wait for has happened on the engine.
void stir(EngineRecord& engine);
// Sleeps until stir() after `seen` was read, or the timeout.
void await_stir(EngineRecord& engine, std::uint32_t seen, std::uint64_t timeout_ns);

}  // namespace tensor_fusion::sim::device
