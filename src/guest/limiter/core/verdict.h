#pragma once
// Whether a launch may pass the gate now, and if not, for how long to wait. Called under the lock of the State; waits
// for nothing.
#include <cstdint>

#include "guest/limiter/core/device.h"
#include "guest/limiter/core/durations.h"
#include "guest/limiter/core/state.h"

namespace tensor_fusion::guest::limiter::gate {

struct Attempt {
  std::uint64_t began_ns, now_ns;
  std::uint32_t gate;  // the word of the grant page
  bool quiet;          // a stream of the process is in capture
  bool room;           // for a marker behind it
};

struct Verdict {
  bool pass;
  bool ring;
  std::uint64_t wait_ns;
  bool in_turn = false;  // it had to have the slice's turn for long ones, and has it
};

// `record` is null for a stream that cannot be followed.
Verdict judge(State& state, const Device& device, const StreamRecord* record, const Duration& duration,
              const Attempt& attempt);

}  // namespace tensor_fusion::guest::limiter::gate
