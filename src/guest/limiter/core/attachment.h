#pragma once
// What this process has set up: its slice, its slot in the claim page, its devices and its holdings. Made at the first
// CUDA call and again in a child of fork (which is a process of its own, with none of its parent's memory). The page
// that points to it is wiped by the kernel on fork, so the hot path sees a fork at no cost.
//
// Stages: nothing -> resolved (driver found, slice looked for) -> registered (slot taken, devices joined).
// Any thread; each stage is entered by one of them under the stage lock.
#include <atomic>
#include <cstdint>

#include "guest/limiter/core/device.h"
#include "guest/limiter/core/holdings.h"
#include "guest/limiter/core/ledger.h"
#include "guest/limiter/core/sharing.h"
#include "guest/limiter/core/slice.h"

namespace tensor_fusion::guest::limiter {

inline constexpr std::uint32_t kLimiterVersion = 1;
inline constexpr int kMaxOrdinals = 64;

// A memory pool of this process and what of its reserved memory has been charged.
struct Pool {
  Mutex mutex;  // one allocation from the pool at a time, so that its growth belongs to somebody
  std::atomic<std::uint64_t> handle;
  Device* device;  // null: its memory lies on the host and is not charged
  std::uint64_t charged;
  std::uint64_t step;       // the most by which an allocation has made it grow beyond what was asked
  std::uint64_t untouched;  // bytes in one piece that it has reserved and never handed out, at least
  std::uint32_t traits;     // PoolTraits
};
enum PoolTraits : std::uint32_t {
  kPoolMade = 1,        // by the program, so it may also end it
  kPoolExportable = 2,  // its memory may be given to other processes by pointer
  kPoolClosed = 4,      // ended by the program; here until its last memory is gone
};
inline constexpr std::size_t kMaxPools = 256;  // of one process; a table this small is walked at every full moment

// What modules and libraries took of a device, in bytes.
struct Loads {
  std::atomic<std::uint64_t> unread;      // since the account was read for them
  std::atomic<std::uint64_t> while_over;  // since the slice has been over its limit
};

// Why a launch is looked at more closely than by the current device; 0: for nothing.
enum CloseLooks : std::uint32_t {
  kSeveralDevices = 1,
  kLibraryKernels = 2,  // kernels of libraries were handed out, which a launch may put into a context
};

struct Attachment {
  Ledger ledger{nullptr, 0, 0};
  contract::ClaimProcess* process = nullptr;
  Device devices[contract::kMaxDevices];
  std::uint32_t device_count = 0;
  std::int8_t by_ordinal[kMaxOrdinals];          // the driver's ordinal -> index in devices, -1 = not of this slice
  std::uint64_t primary[contract::kMaxDevices];  // primary context by index in devices, 0 = none
  Holdings holdings;
  Mutex context_mutex;                                        // one context is made or destroyed at a time
  std::atomic<std::uint32_t> guesses[contract::kMaxDevices];  // contexts paid for by guess, by index in devices
  Loads loads[contract::kMaxDevices];                         // by index in devices
  std::atomic<std::uint32_t> close_looks;                     // CloseLooks
  Mutex library_mutex;                                        // one library is put into a context, or ends, at a time
  Mutex pool_mutex;                                           // guards taking and leaving a place in pools
  Pool pools[kMaxPools];
  std::atomic<std::uint32_t> pool_high;                             // one more than the highest place taken
  std::atomic<std::uint64_t> graph_charged[contract::kMaxDevices];  // graph memory charged, by index in devices
  Mutex graph_mutex;
  std::atomic<std::uint32_t> graph_execs;  // executable graphs with memory nodes
  std::atomic<std::uint64_t> graph_trims;  // times graph memory was given back
  Mutex physical_mutex;
  std::uint64_t records;  // physical memory records ever made
  Sharing sharing;
  std::atomic<std::uint32_t> shared_pointers;  // how many of Kind::shared there are
  std::atomic<std::uint32_t> opened_pointers;  // of Kind::opened
};

// Everything a fork must forget.
struct ForkPage {
  std::atomic<Attachment*> attachment;  // null until registered
  std::atomic<std::uint64_t> epoch;     // 0 until registered; changes when a context goes, so that threads look again
  Mutex stage_mutex;
  std::atomic<std::uint32_t> known;  // 1 in every process that has passed a stage: 0 with a slice found = a child
};
extern ForkPage* g_fork;  // never null

// What survives a fork.
enum class Stage : std::uint32_t { untouched = 0, passing = 1, limited = 2, damaged = 3 };
struct Shared {
  std::atomic<Stage> stage;
  Slice slice;
  Text<256> library;  // where this library lies
};
extern Shared g_shared;

// Looks for the driver's slice once; cheap afterwards.
Stage resolve_slice();

// Takes a slot and joins the devices, once the driver has been initialised; null before, and when this process is not
// limited or cannot be (see `must_refuse`).
Attachment* registered();
bool driver_ready();  // initialised, so that it would let work through
bool must_refuse();   // a slice exists and could not be joined: no work passes unlimited
CUresult refusal();   // what a call that needs a registration answers when there is none

[[gnu::always_inline]] inline Attachment* attachment() { return g_fork->attachment.load(std::memory_order_acquire); }

// The current context's device, per thread.
struct Current {
  std::uint64_t epoch;
  Device* device;  // null = none, or not of this slice
  std::uint64_t context;
};
extern constinit thread_local Current t_current;
Device* look_up_current();

[[gnu::always_inline]] inline Device* current_device() {
  if (__builtin_expect(t_current.epoch == g_fork->epoch.load(std::memory_order_relaxed) && t_current.device != nullptr,
                       1))
    return t_current.device;
  return look_up_current();
}
inline void forget_current() { t_current = {0, nullptr, 0}; }

// The device on which work on a stream runs: that of the stream's own context, which need not be the current one.
Device* look_up_stream(CUstream stream, Device* current);
[[gnu::always_inline]] inline Device* stream_device(CUstream stream) {
  Device* current = current_device();
  if (__builtin_expect(current != nullptr && attachment()->device_count == 1, 1)) return current;
  return look_up_stream(stream, current);
}

Device* device_of(CUdevice ordinal);  // null: not of this slice, or nothing is limited

// Has the driver's account read anew; true when a reading that was begun after the call is published.
bool ask_for_reading(const Device& device);
void note_flag(std::uint32_t flag);  // ClaimProcessFlags, kept until registered
bool hypervisor_away();

}  // namespace tensor_fusion::guest::limiter
