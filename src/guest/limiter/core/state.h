#pragma once
// What the gate knows of one device: the work that was let through, what of it is over, and when the rest will be. Each
// launch is added once, by its lease or by itself, and settled once, by a marker or by its estimate; what others may
// know is told in the claim page. One per device; everything is called and read with its mutex held, and waits for
// nothing.
#include <cstdint>

#include "guest/limiter/core/bucket.h"
#include "guest/limiter/core/darkness.h"
#include "guest/limiter/core/device.h"
#include "guest/limiter/core/guess.h"
#include "guest/limiter/core/lease.h"
#include "guest/limiter/core/long_turn.h"
#include "guest/limiter/core/mutex.h"
#include "guest/limiter/core/neighbours.h"
#include "guest/limiter/core/timeline.h"
#include "guest/limiter/core/trust.h"

namespace tensor_fusion::guest::limiter::gate {

inline constexpr std::uint64_t kMostLeaseNs = 500'000;  // device time one thread may launch between two looks

// By how the estimates of this device have been off of late.
std::uint64_t scaled(const Device& of, std::uint64_t estimated);
// ... where nobody is there to correct it: what overlapped then need not do so now.
std::uint64_t scaled_for_bucket(const Device& of, std::uint64_t estimated);

struct State {
  Mutex mutex;
  const Device* device = nullptr;  // once something was launched there
  Timeline timeline;
  Bucket bucket;
  Sharers sharers;
  LongTurn turn;
  std::uint64_t untold_until_ns = 0;  // work that had the turn and that nothing will tell the end of
  Trust trust;
  Guess guess;
  std::uint64_t pending_ns = 0;   // estimated, let through and not known to be over; leases count in full
  std::uint64_t progress_ns = 0;  // when that will be over
  std::uint64_t last_end_ns = 0;
  std::uint64_t polled_ns = 0;
  Alone alone;
  std::uint64_t gap_ns = 0;
  std::uint64_t unknown_ns = 0;  // what a launch of something new took of late: quick to grow, slow to shrink
  std::uint32_t waiting = 0;     // threads at the gate
  Darkness dark;
  std::uint64_t told = 0;  // markers, when the hypervisor was last known to look

  void poll(const Device& of, std::uint64_t now);  // reads the markers that have passed
  void absorb(const Device& of, const Settled& settled, std::uint64_t now);
  void fold(const Device& of, Lease& lease);
  void over(std::uint64_t now);
  void tell(const Device& of);
  // So many markers stand in the claim page since the hypervisor looked that it should, or some would be written over.
  bool runs_over(const Device& of, bool looked);

  static constexpr std::uint64_t kOverdueNs = 2'000'000;  // work this late may take any time: its end is waited for

 private:
  void keep_turn(const Device& of);
  void expect(const Device& of, std::uint64_t now);
};

}  // namespace tensor_fusion::guest::limiter::gate
