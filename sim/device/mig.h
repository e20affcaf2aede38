#pragma once
// Cutting a card into MIG instances. A GPU instance owns memory and placement slots; a compute instance in it is what
// programs run on (an engine). Refuses what the card's profile does not allow, overlapping placements, and teardown in
// the wrong order or under live contexts. State of the machine: survives the process that did it. Any thread.
#include <cstdint>
#include <expected>
#include <optional>
#include <vector>

#include "sim/device/error.h"
#include "sim/device/machine.h"

namespace tensor_fusion::sim::device {

struct GpuInstance {
  std::uint32_t id;  // 0…7 as the driver numbers them
  std::uint32_t profile_id;
  std::uint32_t start, size;  // placement slots
  std::uint32_t memory_domain;
};
struct ComputeInstance {
  std::uint32_t gpu_instance;
  std::uint32_t id;
  std::uint32_t profile_id;     // as NVML: slices 1,2,3,4,7 → 0,1,2,3,4
  std::uint32_t start, slices;  // within the GPU instance
  EngineId engine;
};

[[nodiscard]] bool mig_enabled(const Machine& machine, unsigned device);
// in_use while contexts or instances exist.
std::expected<void, Error> set_mig(Machine& machine, unsigned device, bool enabled);
[[nodiscard]] std::vector<GpuInstance> gpu_instances(const Machine& machine, unsigned device);
[[nodiscard]] std::vector<std::uint32_t> free_placements(const Machine& machine, unsigned device,
                                                         std::uint32_t profile_id);
// Without a start: the last free placement that leaves the most room (the driver's own choice).
[[nodiscard]] std::expected<GpuInstance, Error> create_gpu_instance(Machine& machine, unsigned device,
                                                                    std::uint32_t profile_id,
                                                                    std::optional<std::uint32_t> start = {});
std::expected<void, Error> destroy_gpu_instance(Machine& machine, unsigned device, std::uint32_t id);
[[nodiscard]] std::vector<ComputeInstance> compute_instances(const Machine& machine, unsigned device);
[[nodiscard]] std::expected<ComputeInstance, Error> create_compute_instance(Machine& machine, unsigned device,
                                                                            std::uint32_t gpu_instance,
                                                                            std::uint32_t slices,
                                                                            std::optional<std::uint32_t> start = {});
std::expected<void, Error> destroy_compute_instance(Machine& machine, unsigned device, std::uint32_t gpu_instance,
                                                    std::uint32_t id);

}  // namespace tensor_fusion::sim::device
