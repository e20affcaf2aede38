#pragma once
// The pure heart of the clock: plain state in, plain state out, time an argument. It owns no memory and takes no lock;
// clock.cpp lays it over the shared file, tests lay it over vectors. Rules (docs/internals/simulated-gpu.md):
// compute of different contexts is sliced round robin, lanes of the resident context overlap, copies run beside it,
// and nothing is idle while something can run.
//
// Every result depends only on arrivals and durations, never on how often or how far one advances.
#include <array>
#include <atomic>
#include <cstdint>

#include "sim/device/work.h"

namespace tensor_fusion::sim::device {

inline constexpr unsigned kMaxMembers = 128;  // contexts of one engine
inline constexpr unsigned kCopyServers = 3;   // h2d, d2h, d2d
inline constexpr std::uint32_t kNobody = 0xffff;
inline constexpr std::uint64_t kAtLeast = std::uint64_t{1} << 63;  // in LaneItem::duration: not final yet
inline constexpr unsigned kDeviceSamples = 128;
inline constexpr unsigned kProcessSamples = 4096;

// One item in its lane's ring. The producer writes it, then moves the lane's tail; the clock writes start and end,
// then moves `completed`.
struct alignas(64) LaneItem {
  std::uint64_t arrival_ns;
  std::atomic<std::uint64_t> duration;  // ns, with kAtLeast while unknown; for a gate: when it was opened, 0 = closed
  std::atomic<std::uint64_t> start_ns;  // these two by the clock
  std::atomic<std::uint64_t> end_ns;
  Ticket after_ticket;
  ContextId after_context;
  float width;
  std::uint32_t event;
  WorkKind kind;
};
static_assert(sizeof(LaneItem) == 64);

// Progress of the oldest unfinished item of a lane.
struct LaneCore {
  std::uint64_t completed;   // number of finished items
  std::uint64_t ready_ns;    // when the head became able to run, 0 = not yet
  std::uint64_t started_ns;  // when it first ran, 0 = not yet
  double progress_ns;        // work done up to EngineCore::anchor_ns
};

struct ContextCore {
  std::uint64_t tag;  // epoch of the engine this copy belongs to
  std::uint64_t service_ns;
  std::uint64_t copy_ns;
  std::uint64_t kernels;
  std::uint64_t window_busy_ns;
  std::uint64_t window_copy_ns;
  std::uint64_t parked;  // lanes set aside because their duration was not published in time
  std::uint64_t reserved;
  LaneCore lanes[kLanes];
};

struct CopyServer {
  std::uint32_t member;  // kNobody: free
  std::uint32_t lane;
  std::uint64_t start_ns;
};

struct EngineCore {
  std::uint64_t clock_ns;
  std::uint64_t anchor_ns;        // progress of the running lanes is exact at this time
  std::uint64_t slice_end_ns;     // 0: a new slice starts with the next work
  std::uint64_t switch_until_ns;  // no compute before this
  std::uint32_t resident;         // member, kNobody
  std::uint32_t running;          // mask of lanes of the resident that run since anchor_ns
  double share;                   // of them: max(1, sum of widths)
  CopyServer copy[kCopyServers];
  std::uint64_t busy_ns, switch_ns, idle_ns, switches, events;
  std::uint64_t window_end_ns;
  std::uint64_t window_busy_ns, window_copy_ns;
  std::uint64_t device_samples;  // ever written; ring index = count % size
  std::uint64_t process_samples;
};

struct RawSample {
  std::uint64_t end_ns;
  std::uint32_t pid;
  std::uint16_t compute, memory;
};

struct Rules {
  std::uint64_t slice_ns = 2'000'000;
  std::uint64_t switch_ns = 20'000;
  std::uint64_t stall_ns = 10'000'000'000;
  std::uint64_t window_ns = 166'666'667;
};

// What the core sees of one context. `core` is a working copy that the core may change.
struct MemberView {
  ContextCore* core = nullptr;                        // nullptr: no such member, or nothing unfinished
  const std::atomic<std::uint64_t>* tails = nullptr;  // kLanes of them: items ever submitted
  LaneItem* items = nullptr;                          // kLanes × depth
  std::atomic<std::uint64_t>* events = nullptr;       // times by event slot
  ContextId id = 0;
  std::uint32_t pid = 0;
};

// When was that item finished? Asked of contexts other than the one that waits: a time (0: long ago) or kNotFinished.
// Sets `member_here` (and its answer is ignored) when the context is a member with a core of this very engine. May
// lower the view's horizon: an item of another engine is only known to be unfinished up to that engine's clock.
inline constexpr std::uint64_t kNotFinished = ~std::uint64_t{0};
using ForeignDone = std::uint64_t (*)(void* user, ContextId context, Ticket ticket, std::uint32_t* member_here);

// Working memory of one advance; nothing in it outlives the call.
struct CoreScratch {
  enum class Status : std::uint8_t { empty, timed, blocked, gated, ready, queued, copying, parked };
  struct Head {
    Status status = Status::empty;
    std::uint64_t tail = 0;     // items submitted, as seen when the advance began
    std::uint64_t when_ns = 0;  // timed: look again then
  };
  // Lanes of one member by what their head is doing.
  struct Lanes {
    std::uint32_t timed = 0, blocked = 0, ready = 0, queued = 0;
  };
  std::array<std::array<Head, kLanes>, kMaxMembers> heads;
  std::array<Lanes, kMaxMembers> lanes;
  std::array<std::uint16_t, kMaxMembers> list;  // filled by the caller: members with a core
  unsigned count = 0;
  std::array<std::uint64_t, 2> runnable;  // members with ready lanes
  unsigned timed = 0, blocked = 0, queued = 0;
  std::uint64_t next_timed_ns = 0;
};

struct EngineView {
  EngineCore* core = nullptr;
  Rules rules;
  std::array<MemberView, kMaxMembers>* members = nullptr;
  std::uint32_t depth = kLaneDepth;
  ForeignDone foreign_done = nullptr;
  void* user = nullptr;
  const std::uint64_t* horizon_ns = nullptr;  // not beyond this; may fall during the call
  RawSample* device_ring = nullptr;           // kDeviceSamples, or nullptr: no samples
  RawSample* process_ring = nullptr;          // kProcessSamples
  CoreScratch* scratch = nullptr;
};

struct Advanced {
  bool stalled = false;  // the clock stands before `now` because of:
  std::uint32_t member = kNobody;
  std::uint32_t lane = 0;
  bool held = false;          // … or by the horizon
  std::uint64_t next_ns = 0;  // when held: the engine's own next event
};

void init_engine_core(EngineCore& core, std::uint64_t now, const Rules& rules);
// Simulates from core.clock_ns to `now`, or to where an unpublished duration holds it.
Advanced advance_core(EngineView& engine, std::uint64_t now);
// A member goes away: nothing of it may stay resident or on a copy server.
void forget_member(EngineCore& core, std::uint32_t member);

}  // namespace tensor_fusion::sim::device
