#pragma once
// The grant page: what a hypervisor allows one tenant. One file per tenant, written by the hypervisor alone, mapped
// read-only by the tenant's processes. Fixed size, never truncated in place: a reader that finds another magic, abi or
// size refuses the page. All words are little-endian and naturally aligned; atomics are lock-free on both sides, so the
// page is the same for every compiler and libc. Times are CLOCK_MONOTONIC nanoseconds of this host.
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tensor_fusion::contract {

inline constexpr std::uint64_t kGrantMagic = 0x31544e4152474654;  // "TFGRANT1", little-endian
inline constexpr std::uint32_t kGrantAbi = 1;
inline constexpr std::size_t kMaxDevices = 16;  // GPUs one tenant may hold; larger than any single host's count today
inline constexpr std::size_t kMaxListedProcesses = 1024;  // as many as NVML lists for one device
inline constexpr std::size_t kUuidLength = 64;            // "GPU-…" or "MIG-…", NUL-terminated, lower-case hex
inline constexpr std::uint32_t kWholeShare = 10000;       // shares are basis points of one device's time

// Where a tenant finds its pages: bound here in its mount namespace, or else named by the environment variable.
inline constexpr const char* kSlicePath = "/run/tensor-fusion/slice";
inline constexpr const char* kSliceVariable = "TENSOR_FUSION_SLICE";
inline constexpr const char* kGrantFile = "grant";
inline constexpr const char* kClaimFile = "claim";
inline constexpr const char* kBellFile = "bell";  // FIFO: one byte rings the hypervisor

enum GrantDeviceFlags : std::uint32_t {
  kComputeUnlimited = 1u << 0,  // the gate never holds a launch
  kMemoryUnlimited = 1u << 1,   // the ledger counts but never refuses
  kComputeLocal = 1u << 2,      // no hypervisor will admit: use the fallback bucket (fail-static, or by choice)
};

// Bits of GrantDevice::gate. A tenant rings the bell when it wants the device and kGateKnown is clear.
enum GateBits : std::uint32_t {
  kGateAdmitted = 1u << 0,   // launches pass, up to window_ns ahead
  kGateKnown = 1u << 1,      // the hypervisor already counts this tenant as wanting the device
  kGateContended = 1u << 2,  // others wait: a tenant that usually pauses after a synchronisation rings before it
  kGateStep = 1u << 3,       // what one change adds
};

inline constexpr std::uint32_t kNobodysTurn = 0xffff'ffff;  // nobody may take more than a little

struct alignas(64) GrantDevice {
  char uuid[kUuidLength];
  std::atomic<std::uint64_t> memory_limit_bytes;
  std::atomic<std::uint64_t> unledgered_bytes;        // what the driver shows for this tenant beyond its ledger
  std::atomic<std::uint64_t> context_overhead_bytes;  // of one context on this device; 0 = not known yet
  std::atomic<std::uint64_t> device_memory_bytes;     // physical capacity
  std::atomic<std::uint32_t> flags;                   // GrantDeviceFlags
  std::atomic<std::uint32_t> request_share;           // basis points: the floor
  std::atomic<std::uint32_t> limit_share;             // basis points: the cap
  std::atomic<std::uint32_t> gate;                    // futex word: GateBits, and above them a count of changes
  std::atomic<std::uint64_t> window_ns;               // launch-ahead allowed while admitted (X)
  std::atomic<std::uint64_t> granted_ns;              // device time granted since the page was made
  std::atomic<std::uint64_t> admitted_until_ns;       // when the present admission is expected to end; a hint
  std::atomic<std::uint32_t> estimate_scale;          // k as 16.16 fixed point: measured time / estimated time
  std::atomic<std::uint32_t> fallback_share;          // basis points to refill at while the hypervisor is away
  std::atomic<std::uint32_t> settled;                 // last ClaimProcessDevice::settle_request answered, futex word
  std::uint32_t device_index;                         // ordinal of the device in the hypervisor's node
  // Readings of the driver's account: how many were begun and which was the last to be published. What it showed for
  // this tenant is the one figure of its memory that no process of the tenant can write; 0 = it cannot be told. Until
  // reading_done has moved from 0 nothing was read.
  std::atomic<std::uint32_t> reading_begun;
  std::atomic<std::uint32_t> reading_done;
  std::atomic<std::uint64_t> observed_bytes;  // of the reading `reading_done`, at least 1 when it is known
  // Till the next reading: slot + 1 of the one who may take all that is left; 0: each may take its part of that.
  std::atomic<std::uint32_t> turn;
  std::atomic<std::uint32_t> reading_list;  // process_sequence of the list that the reading was published with
  std::atomic<std::uint32_t> reading_mark;  // written before these, reading_done after: equal when they go together
  std::byte reserved[12];
};
static_assert(sizeof(GrantDevice) == 192 && std::atomic<std::uint64_t>::is_always_lock_free);

struct ListedProcess {
  std::atomic<std::uint32_t> host_pid;    // as NVML names it
  std::atomic<std::uint32_t> tenant_pid;  // as the tenant names it
};

struct alignas(4096) GrantPage {
  std::uint64_t magic;
  std::uint32_t abi;
  std::uint32_t size_bytes;                 // sizeof(GrantPage) of the writer
  std::atomic<std::uint64_t> heartbeat_ns;  // every kHeartbeatPeriod while a process holds a slot, and at every ring
  std::atomic<std::uint32_t> generation;    // changes with every change of limits
  std::atomic<std::uint32_t> device_count;
  char tenant[64];
  std::atomic<std::uint32_t> closed;            // the tenant has been removed: refuse new work with a clear error
  std::atomic<std::uint32_t> process_sequence;  // odd while `processes` changes
  std::atomic<std::uint32_t> process_count;
  std::byte reserved[148];
  GrantDevice devices[kMaxDevices];
  ListedProcess processes[kMaxListedProcesses];
};
static_assert(offsetof(GrantPage, devices) == 256 && offsetof(GrantPage, processes) == 256 + 192 * kMaxDevices);

inline constexpr std::uint64_t kHeartbeatPeriodNs = 20'000'000;
inline constexpr std::uint64_t kHeartbeatLateNs = 100'000'000;  // older than this: the hypervisor is away

}  // namespace tensor_fusion::contract
