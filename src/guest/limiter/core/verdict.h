#pragma once
// Whether a launch may pass the gate now, and if not, for how long to wait. What the gate knows of one device is its
// State; every call is made under its lock, and waits for nothing.
#include <cstdint>

#include "guest/limiter/core/bucket.h"
#include "guest/limiter/core/device.h"
#include "guest/limiter/core/durations.h"
#include "guest/limiter/core/mutex.h"
#include "guest/limiter/core/timeline.h"

namespace tensor_fusion::guest::limiter::gate {

struct State {
  Mutex mutex;
  const Device* device = nullptr;  // once something was launched there
  Timeline timeline;
  Bucket bucket;
  std::uint64_t pending_ns = 0;   // estimated, let through and not known to be over; leases count in full
  std::uint64_t progress_ns = 0;  // when that will be over
  std::uint64_t last_end_ns = 0;
  std::uint64_t polled_ns = 0;
  Alone alone;
  std::uint64_t gap_ns = 0;
  std::uint64_t unknown_ns = 0;  // what a launch of something new took of late: quick to grow, slow to shrink
  std::uint32_t waiting = 0;     // threads at the gate
};
struct Attempt {
  std::uint64_t began_ns, now_ns;
  std::uint32_t gate;  // the word of the grant page
  bool quiet;          // a stream of the process is in capture
};

struct Verdict {
  bool pass;
  bool ring;
  std::uint64_t wait_ns;
};

// `record` is null for a stream that cannot be followed.
Verdict judge(State& state, const Device& device, const StreamRecord* record, const Duration& duration,
              const Attempt& attempt);

}  // namespace tensor_fusion::guest::limiter::gate
