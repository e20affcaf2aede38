#pragma once
// The simulated machine as one process sees it: a directory with one shared state file, device files and the doors to
// engines, memory and events. The first process makes it from a description; later ones attach (well under 1 ms).
// The state survives any process being killed at any instruction.
//
// One Machine per process and library is enough; all methods may be called from any thread. It keeps its descriptors
// for the life of the process on purpose: closing the liveness file would look like the process's death.
#include <cstdint>
#include <expected>
#include <memory>
#include <string>
#include <vector>

#include "sim/device/context.h"
#include "sim/device/error.h"
#include "sim/device/profile.h"

namespace tensor_fusion::sim::device {

inline constexpr unsigned kMaxMachineDevices = 16;
inline constexpr unsigned kEnginesPerDevice = 8;  // 0: the whole card; 1…7: MIG compute instances
inline constexpr unsigned kMaxEngines = kMaxMachineDevices * kEnginesPerDevice;
inline constexpr unsigned kMaxContextsPerEngine = 128;

struct State;  // the shared file (state.h)
struct ProcessRecord;

// One card, fixed when the machine is made (MIG and loss are asked of Machine).
struct DeviceInfo {
  Profile profile;
  std::uint32_t index;  // file nvidia<index>, minor number
  char uuid[48];        // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", lower case
  std::uint8_t uuid_bytes[16];
  char serial[32];
  std::uint32_t pci_domain, pci_bus, pci_device;
  std::int32_t numa_node;
  std::uint32_t module_id;
  std::uint32_t pci_switch;  // devices with the same number share a PCIe switch
  char cpu_list[32];         // "0-31"
};

// Something that executes contexts: a whole card, or one MIG compute instance.
struct EngineInfo {
  EngineId id;
  std::uint32_t device;           // index of the card
  std::int32_t gpu_instance;      // -1 for a whole card
  std::int32_t compute_instance;  // -1 for a whole card
  char uuid[48];                  // "GPU-…" or "MIG-…"
  char name[kNameLength + 32];    // "NVIDIA A100-… MIG 1g.5gb"
  char file[64];                  // device file, relative to the directory
  std::uint32_t memory_domain;    // index for memory.h
  std::uint64_t memory_bytes;
  std::uint32_t sm_count;
  double instructions_per_s;  // scaled by its part of the card and by `speed`
  double memory_gb_per_s;
};

struct Options {
  std::string directory;    // empty: TENSOR_FUSION_SIM_DIR or /dev/shm/tensor-fusion-sim-<uid>
  std::string description;  // empty: attach only
  std::string faults;       // as TENSOR_FUSION_SIM_FAULT
};

class Machine {
 public:
  // From TENSOR_FUSION_SIM, TENSOR_FUSION_SIM_DIR and TENSOR_FUSION_SIM_FAULT.
  [[nodiscard]] static std::expected<std::unique_ptr<Machine>, Error> attach_from_environment();
  [[nodiscard]] static std::expected<std::unique_ptr<Machine>, Error> attach(const Options& options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] unsigned device_count() const;
  [[nodiscard]] const DeviceInfo& device(unsigned index) const;
  [[nodiscard]] const char* driver_version() const;  // "580.95.05"
  [[nodiscard]] std::uint32_t cuda_version() const;  // 13000

  // Cards whose device file (and nvidiactl) this process can open for reading and writing now, in index order.
  [[nodiscard]] std::vector<unsigned> visible_devices() const;
  // What CUDA can run on: visible cards without MIG, and the MIG devices whose own file can be opened too.
  [[nodiscard]] std::vector<EngineInfo> visible_engines() const;
  [[nodiscard]] std::vector<EngineInfo> engines_of(unsigned device) const;  // all that exist now, openable or not
  [[nodiscard]] std::expected<EngineInfo, Error> engine(EngineId id) const;
  [[nodiscard]] bool may_open(const char* file) const;

  // Brings the engine's simulated clock up to `now` (less if something unpublished holds it); returns the clock.
  std::uint64_t advance(EngineId engine, std::uint64_t now = now_ns());
  // Sets free what dead processes held, on all engines. advance() does this for its engine every few ms by itself.
  void reap();

  [[nodiscard]] bool lost(unsigned device) const;
  void set_lost(unsigned device, bool lost);

  // Device time a copy takes alone, faults (slow_copy) and `speed` included.
  [[nodiscard]] std::uint64_t copy_duration_ns(EngineId engine, WorkKind direction, std::uint64_t bytes) const;
  [[nodiscard]] std::uint64_t peer_copy_duration_ns(EngineId from, EngineId to, std::uint64_t bytes) const;
  // Device time of a kernel that executed that many PTX thread-instructions, filling `width` of the engine's SMs.
  [[nodiscard]] std::uint64_t kernel_duration_ns(EngineId engine, std::uint64_t thread_instructions,
                                                 double width) const;

  // For the other files of this room.
  [[nodiscard]] State& state() const { return *state_; }
  [[nodiscard]] std::uint32_t process_slot() const { return process_slot_; }
  [[nodiscard]] bool process_alive(std::uint32_t slot) const;
  [[nodiscard]] bool same_process() const;  // false in a forked child that inherited this object
  struct Local;                             // this process's scratch for the clock (clock.cpp)
  [[nodiscard]] Local& local() const { return *local_; }

 private:
  Machine();
  std::string directory_;
  State* state_ = nullptr;
  std::uint32_t process_slot_ = 0;
  std::uint32_t pid_ = 0;
  int live_fd_ = -1;
  std::unique_ptr<Local> local_;
};

}  // namespace tensor_fusion::sim::device
