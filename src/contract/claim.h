#pragma once
// The claim page: what one tenant says it holds and has used. Written by the tenant's own processes, read by the
// hypervisor, which believes nothing in it that NVML can contradict. One file per tenant, fixed size. Every field is
// safe to read at any instant and at any value: the reader bounds every index and treats every number as a claim.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "contract/grant.h"

namespace tensor_fusion::contract {

inline constexpr std::uint64_t kClaimMagic = 0x314d49414c434654;  // "TFCLAIM1", little-endian
inline constexpr std::uint32_t kClaimAbi = 1;
inline constexpr std::size_t kMaxProcesses = 512;  // processes of one tenant with a CUDA context at the same time
inline constexpr std::size_t kMarkers = 32;        // markers of one process and device not yet read

// One stretch of device time between two marker events of one stream: measured by the device's clock, and placed on
// this host's monotonic clock with one offset per context, so that both ends carry the same error.
struct Marker {
  std::atomic<std::uint64_t> start_ns;
  std::atomic<std::uint64_t> end_ns;
  std::atomic<std::uint64_t> estimated_ns;  // and kMarkerGuessed
};
inline constexpr std::uint64_t kMarkerGuessed = std::uint64_t{1} << 63;  // nobody had measured what was launched

struct alignas(64) ClaimProcessDevice {
  std::atomic<std::uint64_t> ledger_bytes;     // memory this process holds, changed under ClaimDevice::lock
  std::atomic<std::uint64_t> launched_ns;      // estimated device time of all launches let through, before any scale
  std::atomic<std::uint64_t> completed_ns;     // of those known to be complete
  std::atomic<std::uint64_t> launches;         // number let through
  std::atomic<std::uint64_t> held_launches;    // number that had to wait
  std::atomic<std::uint64_t> held_ns;          // total time they waited
  std::atomic<std::uint32_t> blocked;          // threads waiting at the gate now
  std::atomic<std::uint32_t> contexts;         // live contexts
  std::atomic<std::uint32_t> streams;          // streams with work outstanding, 0 when idle
  std::atomic<std::uint32_t> settle_request;   // asks the hypervisor to read NVML now; answered in GrantDevice::settled
  std::atomic<std::uint64_t> wanted_since_ns;  // when the present stretch of wanting the device began, 0 = not wanting
  std::atomic<std::uint64_t> progress_ns;      // predicted end of all outstanding work (monotonic)
  std::atomic<std::uint64_t> marker_count;     // markers ever written; markers[n % kMarkers] is the n-th
  std::atomic<std::uint64_t> gap_ns;           // usual pause between the end of its work and its next launch
  std::atomic<std::uint64_t> measured_ns;      // device time between markers, ever
  std::atomic<std::uint64_t> open_since_ns;    // no marker still to come starts before this; 0 = none is to come
  std::atomic<std::uint64_t> guessed_bytes;    // of ledger_bytes: for contexts whose cost is yet to be seen
  std::atomic<std::uint64_t> unmeasured;       // launches let through while a stream of the process was in capture
  std::atomic<std::uint64_t> turn_asked_ns;    // when it last asked for ClaimDevice::long_turn in vain; 0: it does not
  std::atomic<std::uint64_t> turn_since_ns;    // ... and first
  std::byte reserved[104];
  Marker markers[kMarkers];
};
static_assert(sizeof(ClaimProcessDevice) == 1024 && offsetof(ClaimProcessDevice, guessed_bytes) == 112 &&
              offsetof(ClaimProcessDevice, markers) == 248);

// What a slot says of its process on one device begins again at nothing: it is taken, or what stood there was written
// over. Word by word, since others may look at any instant; what is 0 is not touched, since most of it never was.
inline void begin_counting(ClaimProcessDevice& device) {
  for (auto* word :
       {&device.ledger_bytes, &device.launched_ns, &device.completed_ns, &device.launches, &device.held_launches,
        &device.held_ns, &device.wanted_since_ns, &device.progress_ns, &device.marker_count, &device.guessed_bytes,
        &device.open_since_ns, &device.unmeasured, &device.turn_asked_ns, &device.turn_since_ns})
    if (word->load(std::memory_order_relaxed) != 0) word->store(0, std::memory_order_relaxed);
  for (auto* word : {&device.blocked, &device.contexts, &device.streams})
    if (word->load(std::memory_order_relaxed) != 0) word->store(0, std::memory_order_relaxed);
}

enum ClaimProcessState : std::uint32_t {
  kSlotFree = 0,
  kSlotClaimed = 1,  // taken, still being filled
  kSlotLive = 2,
  kSlotReaping = 3,  // the hypervisor is returning what a dead process held
};

// Bits of ClaimProcess::flags: what the limiter noticed about its own process.
enum ClaimProcessFlags : std::uint32_t {
  kFlagNamespace = 1u << 0,     // dlmopen was asked for a new namespace, where this limiter is not
  kFlagDeepBind = 1u << 1,      // RTLD_DEEPBIND was asked for, and left out
  kFlagSecondDriver = 1u << 2,  // a second copy of libcuda answers in this process
  kFlagDoorOpen = 1u << 3,      // the self-test found a front door that does not lead to the hooks
  kFlagForked = 1u << 4,        // a child of fork that came back to CUDA
};

struct alignas(64) ClaimProcess {
  std::atomic<std::uint32_t> state;
  std::atomic<std::uint32_t> pid;          // as the process names itself
  std::atomic<std::uint64_t> start_ticks;  // field 22 of /proc/<pid>/stat: tells a reused pid
  std::atomic<std::uint64_t> self_test;    // bit n: front door n answers with our hook (limiter's own numbering)
  std::atomic<std::uint32_t> limiter_version;
  std::atomic<std::uint32_t> flags;
  std::atomic<std::uint64_t> pid_namespace;  // inode of /proc/self/ns/pid: pids compare only within one; 0 = unknown
  std::byte reserved[88];
  ClaimProcessDevice devices[kMaxDevices];
};
static_assert(sizeof(ClaimProcess) == 128 + 1024 * kMaxDevices);

// How a device's totals change. Whoever changes ledger_bytes or used_bytes holds `lock`, and waits for it a bounded
// time only: a holder that has died, or has not let go for seconds, loses it to a waiter, who then sets used_bytes to
// the sum of ledger_bytes over the slots in kSlotLive. A dead process's slot is returned by anyone: state kSlotLive ->
// kSlotReaping (compare and swap), the sum again under the lock of every device, the dead one's pid and start_ticks
// replaced by 0, then kSlotReaping -> kSlotFree. Each step may be repeated by another after a crash. Who takes a slot
// writes its name into it while it is kSlotClaimed, and has it only if it is that still.
inline constexpr std::uint32_t kLockWaiters = 1u << 31;
inline constexpr std::uint32_t kSweeperHolder = kMaxProcesses + 1;     // a process of the tenant that has no slot yet
inline constexpr std::uint32_t kHypervisorHolder = kMaxProcesses + 2;  // the hypervisor's name as a holder

// Another who returns the same slot may have given it away already: only the dead one's name goes.
inline void forget_owner(ClaimProcess& process, std::uint32_t pid, std::uint64_t start_ticks) {
  process.start_ticks.compare_exchange_strong(start_ticks, 0);
  process.pid.compare_exchange_strong(pid, 0);
}

struct alignas(64) ClaimDevice {
  std::atomic<std::uint32_t> lock;        // futex word: 0 free, else (slot + 1) of the holder, and kLockWaiters
  std::atomic<std::uint32_t> repairs;     // times the lock was taken over from a dead holder
  std::atomic<std::uint64_t> used_bytes;  // the tenant's total: equals the sum over live slots whenever lock is free
  std::atomic<std::uint64_t> peak_bytes;
  std::atomic<std::uint64_t> refused;    // allocations refused at the limit
  std::atomic<std::uint64_t> changes;    // of the total: equal before and after a reading, nothing happened meanwhile
  std::atomic<std::uint64_t> long_turn;  // which process may launch what runs for long; below
  std::byte reserved[16];
};
static_assert(sizeof(ClaimDevice) == 64);

// ClaimDevice::long_turn: until when (monotonic; in steps of 1024 ns), and slot + 1 of the process that has the turn or
// had it last until then; 0 = nobody yet. Free, it is for the process that has asked for longest, and soon for any.
inline constexpr std::uint64_t kLongTurnOwner = 1023;
constexpr std::uint64_t long_turn(std::uint64_t until_ns, std::uint32_t owner) {
  return (until_ns & ~kLongTurnOwner) | owner;
}
constexpr std::uint64_t long_turn_until_ns(std::uint64_t word) { return word & ~kLongTurnOwner; }
constexpr std::uint32_t long_turn_owner(std::uint64_t word) {
  return static_cast<std::uint32_t>(word & kLongTurnOwner);
}
static_assert(kMaxProcesses <= kLongTurnOwner);

struct alignas(4096) ClaimPage {
  std::uint64_t magic;
  std::uint32_t abi;
  std::uint32_t size_bytes;
  std::atomic<std::uint32_t> process_high;  // one more than the highest slot ever taken: bounds the reader's scan
  std::atomic<std::uint64_t> swept_ns;      // when a process of the tenant last looked for dead neighbours
  std::byte reserved[96];
  ClaimDevice devices[kMaxDevices];
  alignas(4096) ClaimProcess processes[kMaxProcesses];
};
static_assert(offsetof(ClaimPage, devices) == 128 && offsetof(ClaimPage, processes) == 4096);

}  // namespace tensor_fusion::contract
