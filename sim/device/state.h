#pragma once
// The machine's one shared file: fixed layout, sparse, mapped whole by every process. Nothing in it is a pointer.
// Each part says who writes it under which lock; everything is readable at any instant.
#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "sim/device/engine_core.h"
#include "sim/device/machine.h"

namespace tensor_fusion::sim::device {

inline constexpr std::uint64_t kStateMagic = 0x314d495347504654;  // "TFPGSIM1"
inline constexpr std::uint32_t kStateAbi = 3;
inline constexpr unsigned kMaxContexts = 1024;    // of the machine
inline constexpr unsigned kContextSlotBits = 10;  // ContextId = generation << bits | slot
inline constexpr unsigned kMaxProcesses = 1024;
inline constexpr unsigned kMaxRetired = 2048;  // contexts already gone whose account is kept, per engine
inline constexpr unsigned kHealthEvents = 64;
inline constexpr std::size_t kDescriptionLength = 16384;  // = kMaxDescription
static_assert(kMaxContexts == 1u << kContextSlotBits);

enum SlotState : std::uint32_t { kSlotFree = 0, kSlotClaimed = 1, kSlotLive = 2, kSlotDying = 3 };

// Taken under the directory's lock file (State::process_live says which are), freed by the owner or the reaper. Whoever
// holds the POSIX lock on byte `slot` of the liveness file is alive: the kernel drops it with the process, zombies
// included, and no reused pid can take it over.
struct ProcessRecord {
  std::atomic<std::uint32_t> pid;
  std::atomic<std::uint64_t> start_ticks;
  std::atomic<std::uint64_t> used[kMaxEngines];    // bytes per memory domain, written under the domain's lock
  std::atomic<std::uint64_t> parked[kMaxEngines];  // what it held when it was checkpointed, likewise
  std::atomic<std::uint32_t> held;                 // futex: 0 = its driver may work (process_state.h)
};

struct ContextRecord {
  std::atomic<std::uint32_t> state;
  std::atomic<std::uint32_t> generation;
  std::atomic<std::uint32_t> process;  // slot of the owner
  std::atomic<std::uint32_t> pid;
  std::atomic<std::uint32_t> engine;
  std::atomic<std::uint32_t> member;  // kNobody until entered
  std::uint64_t start_ticks;
  std::uint64_t overhead_bytes;  // reserved in the domain for it
  std::uint32_t domain;
  std::atomic<std::uint32_t> reaper;                         // a process is tearing it down
  alignas(64) std::atomic<std::uint64_t> tails[kLanes];      // by the producer of each lane
  alignas(64) std::atomic<std::uint64_t> completed[kLanes];  // what the committed epoch says, for lock-free readers
  alignas(64) ContextCore cores[2];                          // under the engine's lock; the newest committed tag counts
  alignas(64) std::atomic<std::uint64_t> event_taken[kEventSlots / 64];
  alignas(64) std::atomic<std::uint64_t> events[kEventSlots];
  LaneItem items[kLanes * kLaneDepth];
};

struct RetiredContext {
  ContextId id;
  std::uint32_t pid;
  std::uint64_t start_ticks;
  std::uint64_t service_ns, copy_ns, kernels;
};

struct EngineRecord {
  pthread_mutex_t lock;                          // robust
  alignas(64) std::atomic<std::uint64_t> epoch;  // cores[epoch % 2] is committed
  std::atomic<std::uint64_t> clock_ns;           // of the committed core, for readers without the lock
  std::atomic<std::uint32_t> exists;
  std::atomic<std::uint32_t> repairs;           // times a dead holder's lock was taken over
  alignas(64) std::atomic<std::uint32_t> stir;  // futex: something was published, opened or killed
  std::atomic<std::uint32_t> stir_waiters;
  alignas(64) std::atomic<std::uint64_t> active[2];  // members that may have unfinished work
  alignas(64) EngineCore cores[2];
  std::atomic<std::uint32_t> members[kMaxMembers];  // context slot + 1, 0 = empty; under the lock
  EngineInfo info;                                  // valid while exists
  std::uint64_t created_ns;
  std::atomic<std::uint64_t> retired_count;
  RetiredContext retired[kMaxRetired];
  RawSample device_ring[kDeviceSamples];
  RawSample process_ring[kProcessSamples];
};

struct DomainRecord {
  pthread_mutex_t lock;  // robust
  std::atomic<std::uint64_t> capacity;
  std::atomic<std::uint64_t> used;  // cache of the sum over processes
  std::atomic<std::uint64_t> peak;
  std::atomic<std::uint64_t> refused;
};

struct GpuInstanceRecord {
  std::atomic<std::uint32_t> exists;
  std::uint32_t profile_id, start, size;
};
struct ComputeInstanceRecord {
  std::atomic<std::uint32_t> exists;
  std::uint32_t gpu_instance, id, profile_id, start, slices;
};

struct HealthRecord {
  std::atomic<std::uint64_t> number;  // stored last; 0 = being written
  std::uint64_t time_ns;
  std::uint32_t xid, pid;
  std::int32_t gpu_instance, compute_instance;
};

struct DeviceRecord {
  DeviceInfo info;
  std::atomic<std::uint32_t> lost;
  std::atomic<std::uint32_t> mig;
  std::atomic<std::uint64_t> health_count;
  HealthRecord health[kHealthEvents];
  GpuInstanceRecord
      gpu_instances[kEnginesPerDevice];  // index = id; domain = device × 8 + id (0 only for 7g: see mig.cpp)
  ComputeInstanceRecord compute_instances[kEnginesPerDevice];  // index = engine within the device
};

struct State {
  std::uint64_t magic;
  std::uint32_t abi;
  std::uint32_t size_mib;
  std::uint64_t made_ns;
  std::uint64_t realtime_offset_ns;  // added to CLOCK_MONOTONIC gives the time of day, fixed at creation
  std::uint32_t device_count;
  std::uint32_t cuda_version;
  char driver_version[32];
  char description[kDescriptionLength];    // the text it was made from
  char description_name[256];              // as a person gave it
  pthread_mutex_t admin;                   // robust: MIG, context table, reaping
  std::atomic<std::uint32_t> health_stir;  // futex
  std::atomic<std::uint64_t> next_reap_ns;
  std::atomic<std::uint64_t> process_live[kMaxProcesses / 64];  // bit n: processes[n] is taken
  std::atomic<std::uint64_t> context_taken[kMaxContexts / 64];  // bit n: contexts[n] may be taken; under admin
  DeviceRecord devices[kMaxMachineDevices];
  DomainRecord domains[kMaxEngines];
  EngineRecord engines[kMaxEngines];
  ProcessRecord processes[kMaxProcesses];
  ContextRecord contexts[kMaxContexts];
};

[[nodiscard]] inline ContextId make_context_id(std::uint32_t slot, std::uint32_t generation) {
  return (generation << kContextSlotBits) | slot;
}
[[nodiscard]] inline std::uint32_t context_slot(ContextId id) { return id & (kMaxContexts - 1); }
[[nodiscard]] inline std::uint32_t context_generation(ContextId id) { return id >> kContextSlotBits; }

}  // namespace tensor_fusion::sim::device
