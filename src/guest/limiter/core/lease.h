#pragma once
// What threads may still launch without asking the gate again. A lease is one thread's, for one stream; it is granted
// and folded (charged, and the rest given back) under the gate's lock of the device, and drawn from by its thread
// alone, without a lock. Leases do not lie in the thread's own memory: what it launched is charged when it has ended,
// too.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "contract/cuda.h"
#include "guest/limiter/core/device.h"
#include "guest/limiter/core/durations.h"
#include "guest/limiter/core/mutex.h"
#include "guest/limiter/core/timeline.h"

namespace tensor_fusion::guest::limiter::gate {

struct Lease {
  std::uint64_t left_ns;
  std::uint64_t granted_ns;
  CUstream stream;
  std::uint64_t context;
  Device* device;
  std::uint32_t epoch;
  std::uint32_t launches;
  bool own;
  bool mixed;
  Duration* only;
  StreamRecord* record;
  std::uint64_t generation;  // of the record: another thread may forget the stream meanwhile
};

// The leases of one thread. Written at every launch, so no two threads share a cache line.
struct alignas(64) Leases {
  static constexpr std::size_t kStreams = 4;
  std::atomic<std::uint32_t> thread;  // 0 = nobody's
  Lease of_stream[kStreams];
};

inline constexpr std::size_t kThreads = 256;          // with leases at a time; more ask for every launch
extern Leases g_leases[kThreads];                     // the first is nobody's and never written
extern Mutex g_leases_mutex;                          // taken before the lock of a device
extern std::atomic<std::uint32_t> g_epoch;            // leases of another one were granted before a fork
extern constinit thread_local std::uint32_t t_place;  // in g_leases; a pointer would have to be relocated at load

[[gnu::always_inline]] inline Leases& my_leases() { return g_leases[t_place]; }
[[gnu::always_inline]] inline bool has_leases() { return t_place != 0; }

[[gnu::always_inline]] inline Lease& lease_of(CUstream stream) {
  const auto word = reinterpret_cast<std::uint64_t>(stream);
  return my_leases().of_stream[((word >> 4) ^ (word >> 9)) % Leases::kStreams];
}

// Tells live threads apart at no cost.
inline std::uint64_t this_thread() {
  return has_leases() ? reinterpret_cast<std::uint64_t>(&my_leases()) : reinterpret_cast<std::uint64_t>(&t_place);
}

void take_leases();    // gives the calling thread a place for leases if it has none
void forget_leases();  // in a child of fork: everybody's, and the lock

}  // namespace tensor_fusion::guest::limiter::gate
