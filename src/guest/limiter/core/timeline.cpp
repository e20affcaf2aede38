#include "guest/limiter/core/timeline.h"

#include "guest/limiter/core/driver.h"
#include "guest/limiter/core/family.h"
#include "guest/limiter/core/trust.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kLegacy = 1, kPerThread = 2;
constexpr std::uint64_t kGone = 3;  // no handle of any stream: it has been destroyed, and its work goes on

}  // namespace

EventClock* Timeline::clock_of(CUcontext context) {
  for (std::uint32_t i = 0; i < clock_count_; ++i)
    if (clocks_[i].context() == context) return &clocks_[i];
  for (std::uint32_t i = 0; i < kContexts; ++i) {
    if (i < clock_count_ && clocks_[i].context() != nullptr) continue;
    if (i == clock_count_) ++clock_count_;
    clocks_[i].begin(context);
    return &clocks_[i];
  }
  return nullptr;
}

StreamRecord* Timeline::stream_of(CUcontext context, CUstream stream, bool own, std::uint64_t thread, bool quiet) {
  std::uint64_t handle = reinterpret_cast<std::uint64_t>(stream);
  if (handle == 0) handle = own ? kPerThread : kLegacy;
  if (handle != kPerThread) thread = 0;
  // The two special handles mean the current context; others belong to one, whichever is current.
  const bool named = handle > kPerThread;
  const auto same = [&](const StreamRecord& record) {
    return record.handle == handle && (named || record.context == context) && record.thread == thread;
  };
  if (last_ != nullptr && same(*last_)) return last_;
  StreamRecord* free = nullptr;
  for (std::uint32_t i = 0; i < stream_high_; ++i) {
    StreamRecord& record = streams_[i];
    if (same(record)) return last_ = &record;
    if (record.handle == 0 && free == nullptr) free = &record;
  }
  if (quiet && named) return nullptr;
  if (free == nullptr && stream_high_ < kStreams) free = &streams_[stream_high_++];
  for (std::uint32_t i = 0; i < kStreams && free == nullptr; ++i) {
    StreamRecord& idle = streams_[i];  // nothing is known of it that is not over
    if (idle.count > 0 || idle.unmarked_ns > 0 || idle.leases > 0) continue;
    EventClock* clock = clock_of(idle.context);
    if (clock != nullptr) clock->give(idle.start);
    free = &idle;
  }
  if (free == nullptr) return nullptr;
  CUcontext owner = context;
  if (named && driver().cuStreamGetCtx != nullptr && driver().cuStreamGetCtx(stream, &owner) != CUDA_SUCCESS)
    owner = context;
  reset(*free);
  free->handle = handle;
  free->context = owner;
  free->thread = thread;
  return last_ = free;
}

// Leases on it are known by their generation to be of another stream.
void Timeline::reset(StreamRecord& record) {
  const std::uint64_t generation = record.generation;
  record = StreamRecord{};
  record.generation = generation + 1;
}

void Timeline::settle_lost(std::uint64_t estimated_ns, Settled& settled, contract::ClaimProcessDevice& claim) {
  tell({0, 0, estimated_ns, false}, claim);
  settled.estimated_ns += estimated_ns;
}

// Known by its estimate only: nothing stood behind it when it ended.
void Timeline::settle_unmarked(StreamRecord& stream, Settled& settled, contract::ClaimProcessDevice& claim) {
  if (stream.unmarked_ns == 0) return;
  settle_lost(stream.unmarked_ns, settled, claim);
  take_out(stream);
}

void Timeline::take_out(StreamRecord& stream) {
  unknown_ -= stream.unmarked_unknown;
  in_turn_ -= stream.unmarked_in_turn;
  stream.unmarked_unknown = stream.unmarked_in_turn = 0;
  stream.unmarked_ns = 0;
  stream.unmarked_launches = 0;
  stream.only = nullptr;
  stream.mixed = false;
}

void Timeline::let_go(StreamRecord& record, bool marks, std::uint64_t now, Settled& settled,
                      contract::ClaimProcessDevice& claim) {
  last_ = nullptr;
  if (marks) mark(record, now);
  settle_unmarked(record, settled, claim);
  if (record.count == 0) return forget(record, 0, settled, claim);
  record.handle = kGone;
  record.thread = 0;
  record.leases = 0;
  ++record.generation;
}

void Timeline::let_stream_go(CUstream stream, bool marks, std::uint64_t now, Settled& settled,
                             contract::ClaimProcessDevice& claim) {
  const auto handle = reinterpret_cast<std::uint64_t>(stream);
  for (std::uint32_t i = 0; i < stream_high_; ++i)
    if (streams_[i].handle == handle) let_go(streams_[i], marks, now, settled, claim);
}

void Timeline::let_thread_go(std::uint64_t thread, Settled& settled, contract::ClaimProcessDevice& claim) {
  for (std::uint32_t i = 0; i < stream_high_; ++i)
    if (streams_[i].handle == kPerThread && streams_[i].thread == thread) let_go(streams_[i], false, 0, settled, claim);
}

void Timeline::forget(StreamRecord& record, std::uint64_t cut_ns, Settled& settled,
                      contract::ClaimProcessDevice& claim) {
  EventClock* clock = clock_of(record.context);
  const bool runs = record.count > 0;
  for (std::uint32_t n = 0; n < record.count; ++n) {
    PendingMarker& marker = record.pending[(record.first + n) % StreamRecord::kPending];
    record.unmarked_ns += marker.estimated_ns;
    record.unmarked_unknown += marker.unknown;
    record.unmarked_in_turn += marker.in_turn;
    if (clock != nullptr) clock->give(marker.start);
  }
  pending_ -= record.count;
  if (clock != nullptr && record.start != nullptr) clock->give(record.start);
  const std::uint64_t ran = runs && cut_ns > record.open_since_ns ? cut_ns - record.open_since_ns : 0;
  if (ran > record.unmarked_ns) {
    tell({record.open_since_ns, cut_ns, record.unmarked_ns, record.unmarked_unknown > 0}, claim);
    settled.estimated_ns += record.unmarked_ns;
    settled.measured_ns += ran;
    settled.late_ns += ran - record.unmarked_ns;
    settled.last_end_ns = cut_ns;
    take_out(record);
  } else {
    settle_unmarked(record, settled, claim);
  }
  reset(record);
}

void Timeline::cut_context(CUcontext context, std::uint64_t now, Settled& settled,
                           contract::ClaimProcessDevice& claim) {
  last_ = nullptr;
  for (std::uint32_t i = 0; i < stream_high_; ++i) {
    if (streams_[i].handle != 0 && streams_[i].context == context) forget(streams_[i], now, settled, claim);
  }
  // Its events are gone with it.
  for (std::uint32_t i = 0; i < clock_count_; ++i)
    if (clocks_[i].context() == context) clocks_[i].end();
}

void Timeline::clear() {
  for (std::uint32_t i = 0; i < stream_high_; ++i) reset(streams_[i]);
  stream_high_ = clock_count_ = pending_ = unknown_ = in_turn_ = 0;
  last_ = nullptr;
}

bool Timeline::has_room(const StreamRecord* stream) {
  if (stream == nullptr) return false;
  const EventClock* clock = clock_of(stream->context);
  return clock == nullptr || clock->left() >= (stream->start == nullptr ? 2 : 1);
}

void Timeline::open(StreamRecord& stream, std::uint64_t now, const Alone& alone, Settled& settled,
                    contract::ClaimProcessDevice& claim) {
  if (stream.count > 0 && stream.unmarked_ns == 0) {
    Stretches told(claim);
    read(stream, now, alone, settled, told);
  }
  if (stream.open && stream.count == 0 && stream.unmarked_ns == 0) stream.open = false;  // it has run dry
  if (stream.open && stream.unmarked_ns > 0 && stream.expected_end_ns < now &&
      driver().cuStreamQuery(reinterpret_cast<CUstream>(stream.handle)) == CUDA_SUCCESS) {
    Stretches told(claim);
    read(stream, now, alone, settled, told);
    settle_unmarked(stream, settled, claim);
    stream.open = false;
  }
  if (stream.open) return;
  if (stream.count > 0) return;  // an event of a marker in flight stands there: known by estimates until it has passed
  settle_unmarked(stream, settled, claim);
  EventClock* clock = clock_of(stream.context);
  if (clock == nullptr) return;
  if (stream.start == nullptr) stream.start = clock->take();
  if (stream.start == nullptr || !clock->start(reinterpret_cast<CUstream>(stream.handle), now)) return;
  if (driver().cuEventRecord(stream.start, reinterpret_cast<CUstream>(stream.handle)) != CUDA_SUCCESS) return;
  stream.open = true;
  stream.start_known = false;
  stream.start_recorded_ns = now;
  stream.open_since_ns = now;
}

void Timeline::add(StreamRecord& stream, std::uint64_t estimated_ns, Duration* only, std::uint32_t launches) {
  if (launches == 0) return;
  if (stream.unmarked_launches == 0) {
    stream.only = only;
    stream.mixed = only == nullptr;
  } else if (stream.only != only) {
    stream.mixed = true;
  }
  stream.unmarked_ns += estimated_ns;
  stream.unmarked_launches += launches;
}

void Timeline::qualify(StreamRecord& stream, bool unknown, bool in_turn) {
  stream.unmarked_unknown += unknown ? 1 : 0;
  unknown_ += unknown ? 1 : 0;
  stream.unmarked_in_turn += in_turn ? 1 : 0;
  in_turn_ += in_turn ? 1 : 0;
}

void Timeline::drop(StreamRecord& stream, bool unknown, bool in_turn) {
  if (unknown && stream.unmarked_unknown > 0) --stream.unmarked_unknown, --unknown_;
  if (in_turn && stream.unmarked_in_turn > 0) --stream.unmarked_in_turn, --in_turn_;
}

bool Timeline::overdue(std::uint64_t now, std::uint64_t by_ns) const {
  if (pending_ == 0) return false;
  for (std::uint32_t i = 0; i < stream_high_; ++i) {
    const StreamRecord& stream = streams_[i];
    if (stream.count > 0 && stream.pending[stream.first].expected_end_ns + by_ns < now) return true;
  }
  return false;
}

void Timeline::mark(StreamRecord& stream, std::uint64_t now) {
  if (stream.unmarked_ns == 0 || !stream.open || stream.count == StreamRecord::kPending) return;
  EventClock* clock = clock_of(stream.context);
  if (clock == nullptr) return;
  CUevent end = clock->take();
  if (end == nullptr) return;
  if (driver().cuEventRecord(end, reinterpret_cast<CUstream>(stream.handle)) != CUDA_SUCCESS) {
    clock->give(end);
    return;
  }
  stream.pending[(stream.first + stream.count) % StreamRecord::kPending] = {stream.start,
                                                                            end,
                                                                            stream.start_recorded_ns,
                                                                            now,
                                                                            stream.unmarked_ns,
                                                                            stream.mixed ? nullptr : stream.only,
                                                                            stream.unmarked_launches,
                                                                            stream.unmarked_unknown,
                                                                            stream.unmarked_in_turn,
                                                                            stream.expected_end_ns};
  ++stream.count;
  ++pending_;
  stream.start = end;  // what follows begins where this ends
  stream.start_recorded_ns = now;
  stream.unmarked_ns = 0;
  stream.unmarked_launches = stream.unmarked_unknown = stream.unmarked_in_turn = 0;
  stream.only = nullptr;
  stream.mixed = false;
}

void Timeline::mark_all(CUcontext context, std::uint64_t thread, std::uint64_t now) {
  for (std::uint32_t i = 0; i < stream_high_; ++i) {
    StreamRecord& stream = streams_[i];
    if (stream.unmarked_ns == 0) continue;
    // The two special handles mean the caller's context, and the caller's thread.
    if (stream.handle <= kPerThread && stream.context != context) continue;
    if (stream.handle == kPerThread && stream.thread != thread) continue;
    mark(stream, now);
  }
}

void Timeline::settle_front(StreamRecord& stream, EventClock& clock, std::uint64_t now, const Alone& alone,
                            Settled& settled, Stretches& told) {
  PendingMarker& marker = stream.pending[stream.first];
  std::int64_t start = stream.start_gpu_ns;
  std::int64_t end = 0;
  bool good = clock.tell(marker.end, end);
  if (!stream.start_known) good = clock.tell(marker.start, start) && good;
  stream.start_known = good;
  stream.start_gpu_ns = end;  // a start recorded afresh clears start_known
  stream.first = (stream.first + 1) % StreamRecord::kPending;
  --stream.count;
  --pending_;
  clock.give(marker.start);
  settled.estimated_ns += marker.estimated_ns;
  unknown_ -= marker.unknown;
  in_turn_ -= marker.in_turn;
  if (!good || end < start) {
    told.add({0, 0, marker.estimated_ns, false});
    return;
  }
  // An event passes after it was recorded and before it is seen to have passed: both bound where the base lies.
  const std::int64_t high = static_cast<std::int64_t>(now) - end;
  const std::int64_t low_start = static_cast<std::int64_t>(marker.start_recorded_ns) - start;
  const std::int64_t low_end = static_cast<std::int64_t>(marker.end_recorded_ns) - end;
  const std::int64_t base = clock.narrow(low_start > low_end ? low_start : low_end, high);
  const std::uint64_t host_start = static_cast<std::uint64_t>(base + start);
  const std::uint64_t host_end = static_cast<std::uint64_t>(base + end);
  const auto wall = static_cast<std::uint64_t>(end - start);
  settled.measured_ns += wall;
  if (host_end > settled.last_end_ns) settled.last_end_ns = host_end;
  stream.open_since_ns = host_end;
  if (wall > marker.estimated_ns)
    (marker.unknown > 0 ? settled.late_ns : settled.slow_ns) += wall - marker.estimated_ns;
  if (marker.unknown > 0 && marker.launches > 0 && wall / marker.launches >= settled.first_ns)
    settled.first_ns = wall / marker.launches + 1;
  told.add({host_start, host_end, marker.estimated_ns, marker.unknown > 0});
  const bool broken = alone.decided && marker.unknown == 0 && Trust::broken(wall, marker.estimated_ns);
  settled.broken = settled.broken || broken;
  if (!broken) settled.kept += marker.launches;
  if (marker.only == nullptr || marker.launches == 0) return;
  const Measured how = alone.covers(host_start) && active_streams() <= 1 ? Measured::alone
                       : alone.too_short                                 ? Measured::wanting
                                                                         : Measured::disturbed;
  // While nobody keeps the device to one tenant, clocks tell what the others do: what was learned stands.
  if (alone.decided) g_families.learn(*marker.only, wall / marker.launches, how);
  if (broken) {
    marker.only->forget();  // and is measured as if it were new
  } else if (alone.decided || !marker.only->known()) {
    marker.only->learn(wall / marker.launches, how, now);
  }
}

void Timeline::read(StreamRecord& stream, std::uint64_t now, const Alone& alone, Settled& settled, Stretches& told,
                    bool records) {
  if (stream.count == 0) return;
  EventClock* clock = clock_of(stream.context);
  if (clock == nullptr || !clock->started()) return;
  bool any = false;
  while (stream.count > 0 && driver().cuEventQuery(stream.pending[stream.first].end) == CUDA_SUCCESS) {
    settle_front(stream, *clock, now, alone, settled, told);
    any = true;
  }
  if (stream.handle == kGone) {
    if (stream.count == 0) forget(stream, 0, settled, told.claim());
    return;
  }
  if (!any || !records || !clock->renew(reinterpret_cast<CUstream>(stream.handle), now)) return;
  for (std::uint32_t i = 0; i < stream_high_; ++i)
    if (streams_[i].context == clock->context()) streams_[i].start_known = false;
}

void Timeline::poll(std::uint64_t now, const Alone& alone, Settled& settled, contract::ClaimProcessDevice& claim,
                    bool records) {
  if (pending_ == 0) return;
  Stretches told(claim);
  for (std::uint32_t i = 0; i < stream_high_; ++i) read(streams_[i], now, alone, settled, told, records);
}

std::uint32_t Timeline::active_streams() const {
  std::uint32_t active = 0;
  for (std::uint32_t i = 0; i < stream_high_; ++i)
    active += streams_[i].count > 0 || streams_[i].unmarked_ns > 0 ? 1 : 0;
  return active;
}

std::uint64_t Timeline::open_since() const {
  std::uint64_t since = UINT64_MAX;
  for (std::uint32_t i = 0; i < stream_high_; ++i) {
    const StreamRecord& stream = streams_[i];
    const bool to_come = stream.count > 0 || stream.unmarked_ns > 0 || (stream.leases > 0 && stream.open);
    if (to_come && stream.open_since_ns < since) since = stream.open_since_ns;
  }
  return since == UINT64_MAX ? 0 : since;
}

}  // namespace tensor_fusion::guest::limiter
