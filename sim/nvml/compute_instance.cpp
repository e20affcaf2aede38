// MIG: compute instances inside of a GPU instance.
#include <cstdio>
#include <optional>

#include "sim/nvml/gpu_instance.h"

namespace tensor_fusion::sim::nvml {
namespace {

// Slices by compute instance profile constant; 0 = no such.
[[nodiscard]] unsigned slices_of(unsigned constant) {
  static constexpr unsigned kSlices[] = {1, 2, 3, 4, 7, 8, 6, 0, 0};
  return constant < abi::kComputeInstanceProfiles ? kSlices[constant] : 0;
}

[[nodiscard]] unsigned free_slices(device::Machine& machine, unsigned card, const device::GpuInstance& gi,
                                   const device::MigProfile& profile) {
  unsigned used = 0;
  for (const auto& ci : device::compute_instances(machine, card)) used += ci.gpu_instance == gi.id ? ci.slices : 0;
  return profile.compute_slices - used;
}

[[nodiscard]] abi::ComputeInstanceProfile compute_profile(const device::MigProfile& m, unsigned constant) {
  const unsigned slices = slices_of(constant);
  return {constant,
          slices,
          m.compute_slices / slices,
          m.sm_count * slices / m.compute_slices,
          m.copy_engines,
          m.decoders,
          0,
          m.decoders != 0 ? 1u : 0u,
          m.decoders != 0 ? 1u : 0u};
}
[[nodiscard]] bool compute_profile_fits(const device::MigProfile& m, unsigned constant) {
  const unsigned slices = slices_of(constant);
  return slices != 0 && slices <= m.compute_slices;
}

[[nodiscard]] Return make_compute_instance(abi::GpuInstance handle, unsigned profile,
                                           std::optional<std::uint32_t> start, abi::ComputeInstance* out) {
  return with_gpu_instance(
      handle, [&](device::Machine& machine, unsigned card, const auto& gi, const auto& whole) -> Return {
        if (out == nullptr || !compute_profile_fits(whole, profile)) return abi::kInvalidArgument;
        const auto made = device::create_compute_instance(machine, card, gi.id, slices_of(profile), start);
        if (!made) return from_error(made.error());
        *out = compute_instance_handle(card, gi.id, made->id);
        return abi::kSuccess;
      });
}

}  // namespace

extern "C" {

Return nvmlGpuInstanceGetComputeInstanceProfileInfo(abi::GpuInstance handle, unsigned constant, unsigned engine_profile,
                                                    abi::ComputeInstanceProfile* out) {
  return with_gpu_instance(handle, [&](device::Machine&, unsigned, const auto&, const auto& whole) -> Return {
    if (out == nullptr || constant >= abi::kComputeInstanceProfiles || engine_profile != 0)
      return abi::kInvalidArgument;
    if (!compute_profile_fits(whole, constant)) return abi::kNotSupported;
    *out = compute_profile(whole, constant);
    return abi::kSuccess;
  });
}
Return nvmlGpuInstanceGetComputeInstanceProfileInfoV(abi::GpuInstance handle, unsigned constant,
                                                     unsigned engine_profile, abi::ComputeInstanceProfileV2* out) {
  return with_gpu_instance(handle, [&](device::Machine&, unsigned, const auto&, const auto& whole) -> Return {
    if (out == nullptr || constant >= abi::kComputeInstanceProfiles || engine_profile != 0)
      return abi::kInvalidArgument;
    if (out->version != abi::version_word<abi::ComputeInstanceProfileV2>(2)) return abi::kArgumentVersionMismatch;
    if (!compute_profile_fits(whole, constant)) return abi::kNotSupported;
    const auto p = compute_profile(whole, constant);
    *out = {out->version, p.id,    p.slices, p.instances, p.multiprocessors, p.copy_engines, p.decoders,
            p.encoders,   p.jpegs, p.ofas,   {}};
    if (p.slices == whole.compute_slices)
      std::snprintf(out->name, sizeof(out->name), "MIG %s", whole.name);
    else
      std::snprintf(out->name, sizeof(out->name), "MIG %uc.%s", p.slices, whole.name);
    return abi::kSuccess;
  });
}
Return nvmlGpuInstanceGetComputeInstanceRemainingCapacity(abi::GpuInstance handle, unsigned profile, unsigned* out) {
  return with_gpu_instance(handle,
                           [&](device::Machine& machine, unsigned card, const auto& gi, const auto& whole) -> Return {
                             if (out == nullptr || !compute_profile_fits(whole, profile)) return abi::kInvalidArgument;
                             *out = free_slices(machine, card, gi, whole) / slices_of(profile);
                             return abi::kSuccess;
                           });
}
Return nvmlGpuInstanceGetComputeInstancePossiblePlacements(abi::GpuInstance handle, unsigned profile,
                                                           abi::Placement* out, unsigned* count) {
  return with_gpu_instance(handle, [&](device::Machine&, unsigned, const auto&, const auto& whole) -> Return {
    if (count == nullptr || !compute_profile_fits(whole, profile)) return abi::kInvalidArgument;
    const unsigned slices = slices_of(profile), needed = whole.compute_slices - slices + 1;
    if (out != nullptr && *count < needed) {
      *count = needed;
      return abi::kInsufficientSize;
    }
    *count = needed;
    for (unsigned i = 0; out != nullptr && i < needed; ++i) out[i] = {i, slices};
    return abi::kSuccess;
  });
}
Return nvmlGpuInstanceCreateComputeInstance(abi::GpuInstance handle, unsigned profile, abi::ComputeInstance* out) {
  return make_compute_instance(handle, profile, {}, out);
}
Return nvmlGpuInstanceCreateComputeInstanceWithPlacement(abi::GpuInstance handle, unsigned profile,
                                                         const abi::Placement* placement, abi::ComputeInstance* out) {
  if (placement == nullptr) return session() ? abi::kInvalidArgument : abi::kUninitialized;
  return make_compute_instance(handle, profile, placement->start, out);
}
Return nvmlGpuInstanceGetComputeInstances(abi::GpuInstance handle, unsigned profile, abi::ComputeInstance* out,
                                          unsigned* count) {
  return with_gpu_instance(handle, [&](device::Machine& machine, unsigned card, const auto& gi, const auto&) -> Return {
    if (out == nullptr || count == nullptr) return abi::kInvalidArgument;
    unsigned n = 0;
    for (const auto& ci : device::compute_instances(machine, card)) {
      if (ci.gpu_instance == gi.id && ci.profile_id == profile) out[n++] = compute_instance_handle(card, gi.id, ci.id);
    }
    *count = n;
    return abi::kSuccess;
  });
}
Return nvmlGpuInstanceGetComputeInstanceById(abi::GpuInstance handle, unsigned id, abi::ComputeInstance* out) {
  return with_gpu_instance(handle, [&](device::Machine& machine, unsigned card, const auto& gi, const auto&) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    for (const auto& ci : device::compute_instances(machine, card)) {
      if (ci.gpu_instance != gi.id || ci.id != id) continue;
      *out = compute_instance_handle(card, gi.id, id);
      return abi::kSuccess;
    }
    return abi::kNotFound;
  });
}
Return nvmlComputeInstanceGetInfo_v2(abi::ComputeInstance handle, abi::ComputeInstanceInfo* out) {
  const auto machine = session();
  if (!machine) return abi::kUninitialized;
  if (handle == nullptr || out == nullptr) return abi::kInvalidArgument;
  for (const auto& ci : device::compute_instances(*machine, handle->device)) {
    if (ci.gpu_instance != handle->gpu_instance || ci.id != handle->id) continue;
    *out = {device_handle(handle->device),
            gpu_instance_handle(handle->device, ci.gpu_instance),
            ci.id,
            ci.profile_id,
            {ci.start, ci.slices}};
    return abi::kSuccess;
  }
  return abi::kNotFound;
}
Return nvmlComputeInstanceGetInfo(abi::ComputeInstance handle, abi::ComputeInstanceInfo* out) {
  return nvmlComputeInstanceGetInfo_v2(handle, out);
}
Return nvmlComputeInstanceDestroy(abi::ComputeInstance handle) {
  const auto machine = session();
  if (!machine) return abi::kUninitialized;
  if (handle == nullptr) return abi::kInvalidArgument;
  const auto gone = device::destroy_compute_instance(*machine, handle->device, handle->gpu_instance, handle->id);
  return gone ? abi::kSuccess : from_error(gone.error());
}

}  // extern "C"
}  // namespace tensor_fusion::sim::nvml
