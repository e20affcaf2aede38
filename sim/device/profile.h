#pragma once
// What one kind of card is: the numbers a driver reports and the rates the clock uses. Plain data of fixed size, so a
// resolved profile lies in the machine's shared file and nobody parses anything to attach. Built-in profiles are
// starting points; a YAML machine file may override every number (docs/internals/simulated-gpu.md lists the keys).
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tensor_fusion::sim::device {

inline constexpr std::size_t kNameLength = 96;
inline constexpr std::size_t kMaxMigProfiles = 8;
inline constexpr std::size_t kMaxMigPlacements = 8;

// One size of MIG GPU instance. `id` is the number that creates it; `constant` the index NVML enumerates it by.
struct MigProfile {
  char name[32];
  std::uint32_t id;
  std::uint32_t constant;
  std::uint32_t compute_slices;
  std::uint32_t memory_slots;  // placement size
  std::uint32_t sm_count;
  std::uint32_t max_instances;
  std::uint32_t copy_engines;
  std::uint32_t decoders;
  std::uint64_t memory_bytes;
  std::uint32_t placement_count;
  std::uint32_t placements[kMaxMigPlacements];  // allowed start slots
};

enum class Architecture : std::uint32_t {
  turing = 6,
  ampere = 7,
  ada = 8,
  hopper = 9,
  blackwell = 10
};  // NVML's numbers
enum class LinkKind : std::uint32_t { none = 0, nvlink_mesh = 1, nvswitch = 2 };

struct Profile {
  char key[32];            // "h100", as the machine description names it
  char name[kNameLength];  // "NVIDIA H100 80GB HBM3"
  char board_part_number[32];
  char vbios[32];
  Architecture architecture;
  std::uint32_t capability_major, capability_minor;
  std::uint32_t pci_device_id;  // device << 16 | vendor
  std::uint32_t pci_subsystem_id;

  std::uint64_t memory_bytes;            // what contexts can have
  std::uint64_t memory_reserved_bytes;   // the driver's own, shown by NVML on top
  std::uint64_t context_overhead_bytes;  // taken by each context, as real ones do
  std::uint64_t bar1_bytes;
  std::uint32_t memory_bus_bits;
  std::uint32_t l2_bytes;

  std::uint32_t sm_count;
  std::uint32_t cores_per_sm;
  std::uint32_t warp_size;
  std::uint32_t max_threads_per_sm;
  std::uint32_t max_blocks_per_sm;
  std::uint32_t max_threads_per_block;
  std::uint32_t registers_per_sm;
  std::uint32_t registers_per_block;
  std::uint32_t shared_bytes_per_sm;
  std::uint32_t shared_bytes_per_block;  // without opting in
  std::uint32_t shared_bytes_per_block_optin;
  std::uint32_t shared_bytes_reserved_per_block;
  std::uint32_t copy_engines;

  std::uint32_t sm_clock_mhz, memory_clock_mhz;  // maximum
  std::uint32_t power_limit_mw, power_idle_mw;
  std::uint32_t pcie_generation, pcie_width;
  double fp32_tflops, fp16_tflops;  // dense; fp16 on tensor cores
  double memory_gb_per_s;           // HBM or GDDR, 1e9 bytes a second
  double pcie_gb_per_s;             // one direction, as reached
  double nvlink_gb_per_s;           // one direction, all links together; 0 = none
  std::uint32_t nvlink_links;
  std::uint32_t nvlink_version;
  LinkKind link_kind;
  std::uint32_t ecc;  // 1 = ECC memory, on

  std::uint32_t mig_capable;
  std::uint32_t mig_compute_slices, mig_memory_slots;
  std::uint32_t mig_profile_count;
  std::array<MigProfile, kMaxMigProfiles> mig_profiles;

  // The clock's own rules.
  double slice_us;            // time slice of one context while others have work
  double switch_us;           // cost of making another context resident
  double launch_overhead_us;  // from submission to the earliest start
  double min_kernel_us;       // no kernel takes less device time
  double copy_latency_us;     // fixed part of each copy
  double instructions_per_s;  // executed PTX thread-instructions per second of device time, the whole card
  double speed;               // scales kernels and copies: 2 = twice as fast
  double stall_ms;  // a kernel whose duration stays unpublished this long is set aside (its process is stopped)
};

// The built-in profile of that key, or nothing.
[[nodiscard]] std::optional<Profile> builtin_profile(std::string_view key);
// Keys of all built-in profiles, for messages.
[[nodiscard]] std::span<const std::string_view> builtin_profile_keys();

}  // namespace tensor_fusion::sim::device
