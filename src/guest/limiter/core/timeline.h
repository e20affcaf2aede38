#pragma once
// The markers of one device: pairs of events around stretches of work, read back as device time and placed on the
// host's clock. Streams, events and contexts live in tables of fixed size; what does not fit is known by its estimate
// alone. Every call is made under the gate's lock of the device, whatever context is current.
// Calls the driver through driver(); never while a stream of the process is in capture: what would have to ask then is
// told by `quiet`, or not called.
#include <cstddef>
#include <cstdint>

#include "contract/claim.h"
#include "contract/cuda.h"
#include "guest/limiter/core/device.h"
#include "guest/limiter/core/durations.h"
#include "guest/limiter/core/event_clock.h"
#include "guest/limiter/core/stretches.h"

namespace tensor_fusion::guest::limiter {

inline constexpr std::uint64_t kMarkEveryNs = 400'000;  // of estimated work

// When only this tenant's work was on the device.
struct Alone {
  std::uint64_t since_ns = 0;  // 0: not yet
  std::uint64_t until_ns = 0;
  bool decided = false;    // by a hypervisor; else nobody keeps the device to one tenant
  bool too_short = false;  // so are the estimates, by what the hypervisor measured: longer samples are welcome
  bool covers(std::uint64_t start_ns) const {
    return decided && since_ns != 0 && start_ns > since_ns && start_ns < until_ns;
  }
};

// One stretch between two events, not yet known to have ended.
struct PendingMarker {
  CUevent start;
  CUevent end;
  std::uint64_t start_recorded_ns;
  std::uint64_t end_recorded_ns;
  std::uint64_t estimated_ns;
  Duration* only;  // the one thing launched in it, null when it was several
  std::uint32_t launches;
  std::uint32_t unknown;  // of them, whose duration nobody had measured
  std::uint32_t in_turn;  // ... that had the slice's turn for long ones
  std::uint64_t expected_end_ns;
};

struct StreamRecord {
  static constexpr std::uint32_t kPending = 16;
  std::uint64_t generation = 0;  // changes when the place is another stream's
  std::uint64_t handle = 0;      // normalised: legacy and per-thread streams have handles of their own; 0 = free
  CUcontext context = nullptr;
  std::uint64_t thread = 0;  // of a per-thread stream
  bool open = false;         // `start` is recorded and stands before the unmarked work
  CUevent start = nullptr;
  std::uint64_t start_recorded_ns = 0;
  std::int64_t start_gpu_ns = 0;  // when known
  bool start_known = false;
  std::uint64_t unmarked_ns = 0;  // estimated work behind the last marker
  std::uint32_t unmarked_launches = 0;
  std::uint32_t unmarked_unknown = 0;
  std::uint32_t unmarked_in_turn = 0;
  std::uint32_t leases = 0;  // that threads have on it: what they launched is not yet counted in
  Duration* only = nullptr;
  bool mixed = false;
  std::uint64_t expected_end_ns = 0;
  std::uint64_t open_since_ns = 0;
  std::uint32_t first = 0, count = 0;
  PendingMarker pending[kPending] = {};
};

// What a poll learned.
struct Settled {
  std::uint64_t estimated_ns = 0;  // of stretches now known to be over
  std::uint64_t measured_ns = 0;
  std::uint64_t last_end_ns = 0;  // host clock
  std::uint64_t late_ns = 0;      // device time beyond what launches that nobody knew were charged
  std::uint64_t slow_ns = 0;      // the same of known ones: others' turns, or launches that take longer than they did
  std::uint64_t first_ns = 0;     // the longest first measurement of a duration, 0 = none
  std::uint32_t kept = 0;         // known launches that took about as long as they were to
  bool broken = false;            // known ones took far longer (core/trust.h)
};

class Timeline {
 public:
  static constexpr std::size_t kStreams = 128;
  static constexpr std::size_t kContexts = 64;

  // Null when there is no place, or when it is new and whose it is may not be asked.
  StreamRecord* stream_of(CUcontext context, CUstream stream, bool own, std::uint64_t thread, bool quiet);
  // It is about to be destroyed, and its work goes on without it. `marks`: a marker may be put behind that; without one
  // what has none is known by its estimate.
  void let_stream_go(CUstream stream, bool marks, std::uint64_t now, Settled& settled,
                     contract::ClaimProcessDevice& claim);
  void let_thread_go(std::uint64_t thread, Settled& settled, contract::ClaimProcessDevice& claim);  // it has ended
  // It is about to be destroyed with all that runs in it: that took as long as it has been there.
  void cut_context(CUcontext context, std::uint64_t now, Settled& settled, contract::ClaimProcessDevice& claim);
  void clear();
  // Work of a stream that is forgotten meanwhile: known by its estimate.
  static void settle_lost(std::uint64_t estimated_ns, Settled& settled, contract::ClaimProcessDevice& claim);

  // Whether a marker can be put behind what goes to the stream now, or never will be. Else one has to pass first.
  bool has_room(const StreamRecord* stream);

  // Before work goes to the stream: makes sure an event stands before it.
  void open(StreamRecord& stream, std::uint64_t now, const Alone& alone, Settled& settled,
            contract::ClaimProcessDevice& claim);
  void add(StreamRecord& stream, std::uint64_t estimated_ns, Duration* only, std::uint32_t launches);
  // The launch that was just added is of something never measured, or had the slice's turn for long ones.
  void qualify(StreamRecord& stream, bool unknown, bool in_turn);
  void drop(StreamRecord& stream, bool unknown, bool in_turn);  // it was not put on the stream after all
  // Puts a marker behind the work so far.
  void mark(StreamRecord& stream, std::uint64_t now);
  // ... on every stream that the calling thread can reach with this context current.
  void mark_all(CUcontext context, std::uint64_t thread, std::uint64_t now);
  // Reads what has ended. `records`: an event may be put on any stream, for the clock.
  void poll(std::uint64_t now, const Alone& alone, Settled& settled, contract::ClaimProcessDevice& claim, bool records);

  bool any_pending() const { return pending_ > 0; }
  std::uint32_t unknown() const { return unknown_; }  // launches outstanding whose duration nobody has measured
  std::uint32_t in_turn() const { return in_turn_; }
  bool overdue(std::uint64_t now, std::uint64_t by_ns) const;  // a marker should have passed that long ago
  std::uint32_t active_streams() const;                        // with work not known to be over
  std::uint64_t open_since() const;                            // 0: nothing is to come
  bool idle() const { return active_streams() == 0; }

 private:
  EventClock* clock_of(CUcontext context);
  void read(StreamRecord& stream, std::uint64_t now, const Alone& alone, Settled& settled, Stretches& told,
            bool records = true);
  void settle_front(StreamRecord& stream, EventClock& clock, std::uint64_t now, const Alone& alone, Settled& settled,
                    Stretches& told);
  void let_go(StreamRecord& record, bool marks, std::uint64_t now, Settled& settled,
              contract::ClaimProcessDevice& claim);
  // What runs ended at `cut_ns`; 0: as estimated.
  void forget(StreamRecord& record, std::uint64_t cut_ns, Settled& settled, contract::ClaimProcessDevice& claim);
  void take_out(StreamRecord& stream);  // what no marker stands behind
  static void reset(StreamRecord& record);
  void settle_unmarked(StreamRecord& stream, Settled& settled, contract::ClaimProcessDevice& claim);

  StreamRecord streams_[kStreams];
  EventClock clocks_[kContexts];
  std::uint32_t stream_high_ = 0;
  std::uint32_t clock_count_ = 0;
  std::uint32_t pending_ = 0;
  std::uint32_t unknown_ = 0;
  std::uint32_t in_turn_ = 0;
  StreamRecord* last_ = nullptr;
};

}  // namespace tensor_fusion::guest::limiter
