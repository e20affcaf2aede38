#pragma once
// What calls on a GPU instance have in common: its handle, resolved to the instance and its profile.
#include "sim/nvml/session.h"

namespace tensor_fusion::sim::nvml {

[[nodiscard]] inline const device::MigProfile* by_id(const device::Profile& p, unsigned id) {
  for (unsigned i = 0; i < p.mig_profile_count; ++i) {
    if (p.mig_profiles[i].id == id) return &p.mig_profiles[i];
  }
  return nullptr;
}

// A GPU instance handle resolved to the instance and its profile.
template <typename Body>
[[nodiscard]] Return with_gpu_instance(abi::GpuInstance handle, Body body) {
  const auto machine = session();
  if (!machine) return abi::kUninitialized;
  if (handle == nullptr) return abi::kInvalidArgument;
  for (const auto& gi : device::gpu_instances(*machine, handle->device)) {
    if (gi.id == handle->id)
      return body(*machine, handle->device, gi, *by_id(machine->device(handle->device).profile, gi.profile_id));
  }
  return abi::kNotFound;
}

}  // namespace tensor_fusion::sim::nvml
