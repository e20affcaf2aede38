// MIG: mode, GPU instances, compute instances and the devices they make.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/nvml/session.h"

namespace tensor_fusion::sim::nvml {
namespace {

[[nodiscard]] const device::MigProfile* by_constant(const device::Profile& p, unsigned constant) {
  for (unsigned i = 0; i < p.mig_profile_count; ++i) {
    if (p.mig_profiles[i].constant == constant) return &p.mig_profiles[i];
  }
  return nullptr;
}
[[nodiscard]] const device::MigProfile* by_id(const device::Profile& p, unsigned id) {
  for (unsigned i = 0; i < p.mig_profile_count; ++i) {
    if (p.mig_profiles[i].id == id) return &p.mig_profiles[i];
  }
  return nullptr;
}

[[nodiscard]] abi::GpuInstanceProfile profile_info(const device::MigProfile& m) {
  return {m.id,       0, m.compute_slices,          m.max_instances,           m.sm_count,          m.copy_engines,
          m.decoders, 0, m.decoders != 0 ? 1u : 0u, m.decoders != 0 ? 1u : 0u, m.memory_bytes >> 20};
}
[[nodiscard]] Return versioned_profile(const device::MigProfile& m, abi::GpuInstanceProfileV2* out) {
  if (out->version != abi::version_word<abi::GpuInstanceProfileV2>(2)) return abi::kArgumentVersionMismatch;
  const abi::GpuInstanceProfile i = profile_info(m);
  *out = {out->version, i.id,    i.p2p,  i.slices,     i.instances, i.multiprocessors, i.copy_engines, i.decoders,
          i.encoders,   i.jpegs, i.ofas, i.memory_mib, {}};
  std::snprintf(out->name, sizeof(out->name), "MIG %s", m.name);
  return abi::kSuccess;
}

// Slices by compute instance profile constant; 0 = no such.
[[nodiscard]] unsigned slices_of(unsigned constant) {
  static constexpr unsigned kSlices[] = {1, 2, 3, 4, 7, 8, 6, 0, 0};
  return constant < abi::kComputeInstanceProfiles ? kSlices[constant] : 0;
}

template <typename Body>
[[nodiscard]] Return with_mig(abi::Device handle, Body body) {
  return with_card(handle, [&](Target& t) -> Return {
    if (t.profile.mig_capable == 0 || !device::mig_enabled(t.machine, t.device)) return abi::kNotSupported;
    return body(t);
  });
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

[[nodiscard]] Return make_gpu_instance(abi::Device handle, unsigned profile, std::optional<std::uint32_t> start,
                                       abi::GpuInstance* out) {
  return with_mig(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    const auto made = device::create_gpu_instance(t.machine, t.device, profile, start);
    if (!made) return from_error(made.error());
    *out = gpu_instance_handle(t.device, made->id);
    return abi::kSuccess;
  });
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

Return nvmlDeviceGetMigMode(abi::Device handle, unsigned* current, unsigned* pending) {
  return with_card(handle, [&](Target& t) -> Return {
    if (current == nullptr || pending == nullptr) return abi::kInvalidArgument;
    if (t.profile.mig_capable == 0) return abi::kNotSupported;
    *current = *pending = device::mig_enabled(t.machine, t.device) ? 1 : 0;
    return abi::kSuccess;
  });
}
Return nvmlDeviceSetMigMode(abi::Device handle, unsigned mode, Return* activation) {
  return with_card(handle, [&](Target& t) -> Return {
    if (mode > 1 || activation == nullptr) return abi::kInvalidArgument;
    const auto set = device::set_mig(t.machine, t.device, mode == 1);
    *activation = set ? abi::kSuccess : from_error(set.error());
    return *activation;
  });
}
Return nvmlDeviceIsMigDeviceHandle(abi::Device handle, unsigned* out) {
  return with_device(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    *out = t.is_mig() ? 1 : 0;
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetMaxMigDeviceCount(abi::Device handle, unsigned* out) {
  return card_value(handle, out,
                    [](Target& t) { return t.profile.mig_capable != 0 ? t.profile.mig_compute_slices : 0; });
}
Return nvmlDeviceGetMigDeviceHandleByIndex(abi::Device handle, unsigned index, abi::Device* out) {
  return with_mig(handle, [&](Target& t) -> Return {
    if (out == nullptr || index >= t.profile.mig_compute_slices) return abi::kInvalidArgument;
    unsigned n = 0;
    for (const auto& engine : t.machine.engines_of(t.device)) {
      if (!t.machine.may_open(engine.file)) continue;
      if (n++ == index) {
        *out = device_handle(t.device, engine.id % device::kEnginesPerDevice);
        return abi::kSuccess;
      }
    }
    return abi::kNotFound;
  });
}
Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(abi::Device handle, abi::Device* out) {
  return with_device(handle, [&](Target& t) -> Return {
    if (out == nullptr || !t.is_mig()) return abi::kInvalidArgument;
    *out = device_handle(t.device);
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetGpuInstanceId(abi::Device handle, unsigned* out) {
  return with_device(handle, [&](Target& t) -> Return {
    if (out == nullptr || !t.mig) return abi::kInvalidArgument;
    *out = t.mig->gpu_instance;
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetComputeInstanceId(abi::Device handle, unsigned* out) {
  return with_device(handle, [&](Target& t) -> Return {
    if (out == nullptr || !t.mig) return abi::kInvalidArgument;
    *out = t.mig->id;
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetAttributes_v2(abi::Device handle, abi::Attributes* out) {
  return with_device(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    if (!t.mig) return abi::kNotSupported;
    const auto engine = t.machine.engine(t.engine_id());
    if (!engine) return abi::kNotFound;
    for (const auto& gi : device::gpu_instances(t.machine, t.device)) {
      if (gi.id != t.mig->gpu_instance) continue;
      const device::MigProfile& m = *by_id(t.profile, gi.profile_id);
      *out = {engine->sm_count,
              m.copy_engines,
              m.decoders,
              0,
              m.decoders != 0 ? 1u : 0u,
              m.decoders != 0 ? 1u : 0u,
              m.compute_slices,
              t.mig->slices,
              m.memory_bytes >> 20};
      return abi::kSuccess;
    }
    return abi::kNotFound;
  });
}
Return nvmlDeviceGetAttributes(abi::Device handle, abi::Attributes* out) {
  return nvmlDeviceGetAttributes_v2(handle, out);
}

Return nvmlDeviceGetGpuInstanceProfileInfo(abi::Device handle, unsigned constant, abi::GpuInstanceProfile* out) {
  return with_card(handle, [&](Target& t) -> Return {
    if (out == nullptr || constant >= abi::kGpuInstanceProfiles) return abi::kInvalidArgument;
    const device::MigProfile* m = by_constant(t.profile, constant);
    if (m == nullptr) return abi::kNotSupported;
    *out = profile_info(*m);
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetGpuInstanceProfileInfoV(abi::Device handle, unsigned constant, abi::GpuInstanceProfileV2* out) {
  return with_card(handle, [&](Target& t) -> Return {
    if (out == nullptr || constant >= abi::kGpuInstanceProfiles) return abi::kInvalidArgument;
    const device::MigProfile* m = by_constant(t.profile, constant);
    return m == nullptr ? abi::kNotSupported : versioned_profile(*m, out);
  });
}
Return nvmlDeviceGetGpuInstanceProfileInfoByIdV(abi::Device handle, unsigned id, abi::GpuInstanceProfileV2* out) {
  return with_card(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    const device::MigProfile* m = by_id(t.profile, id);
    return m == nullptr ? abi::kNotSupported : versioned_profile(*m, out);
  });
}
Return nvmlDeviceGetGpuInstanceRemainingCapacity(abi::Device handle, unsigned id, unsigned* out) {
  return with_mig(handle, [&](Target& t) -> Return {
    const device::MigProfile* m = by_id(t.profile, id);
    if (out == nullptr || m == nullptr) return abi::kInvalidArgument;
    // How many more fit side by side: placements that do not overlap, from the top.
    unsigned count = 0, last = ~0u, left = m->max_instances, slices = t.profile.mig_compute_slices;
    for (const auto& gi : device::gpu_instances(t.machine, t.device)) {
      left -= gi.profile_id == id ? 1 : 0;
      slices -= by_id(t.profile, gi.profile_id)->compute_slices;
    }
    auto starts = device::free_placements(t.machine, t.device, id);
    std::sort(starts.rbegin(), starts.rend());
    for (const unsigned start : starts) {
      if (start + m->memory_slots > last) continue;
      ++count;
      last = start;
    }
    *out = std::min({count, left, slices / m->compute_slices});
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetGpuInstancePossiblePlacements_v2(abi::Device handle, unsigned id, abi::Placement* out,
                                                     unsigned* count) {
  return with_card(handle, [&](Target& t) -> Return {
    const device::MigProfile* m = by_id(t.profile, id);
    if (count == nullptr || m == nullptr)
      return t.profile.mig_capable == 0 ? abi::kNotSupported : abi::kInvalidArgument;
    if (out != nullptr && *count < m->placement_count) {
      *count = m->placement_count;
      return abi::kInsufficientSize;
    }
    *count = m->placement_count;
    for (unsigned i = 0; out != nullptr && i < m->placement_count; ++i) out[i] = {m->placements[i], m->memory_slots};
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetGpuInstancePossiblePlacements(abi::Device handle, unsigned id, abi::Placement* out,
                                                  unsigned* count) {
  return nvmlDeviceGetGpuInstancePossiblePlacements_v2(handle, id, out, count);
}
Return nvmlDeviceCreateGpuInstance(abi::Device handle, unsigned profile, abi::GpuInstance* out) {
  return make_gpu_instance(handle, profile, {}, out);
}
Return nvmlDeviceCreateGpuInstanceWithPlacement(abi::Device handle, unsigned profile, const abi::Placement* placement,
                                                abi::GpuInstance* out) {
  if (placement == nullptr) return session() ? abi::kInvalidArgument : abi::kUninitialized;
  return make_gpu_instance(handle, profile, placement->start, out);
}
Return nvmlDeviceGetGpuInstances(abi::Device handle, unsigned profile, abi::GpuInstance* out, unsigned* count) {
  return with_mig(handle, [&](Target& t) -> Return {
    if (out == nullptr || count == nullptr || by_id(t.profile, profile) == nullptr) return abi::kInvalidArgument;
    unsigned n = 0;
    for (const auto& gi : device::gpu_instances(t.machine, t.device)) {
      if (gi.profile_id == profile) out[n++] = gpu_instance_handle(t.device, gi.id);
    }
    *count = n;
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetGpuInstanceById(abi::Device handle, unsigned id, abi::GpuInstance* out) {
  return with_mig(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    for (const auto& gi : device::gpu_instances(t.machine, t.device)) {
      if (gi.id != id) continue;
      *out = gpu_instance_handle(t.device, id);
      return abi::kSuccess;
    }
    return abi::kNotFound;
  });
}
Return nvmlGpuInstanceGetInfo(abi::GpuInstance handle, abi::GpuInstanceInfo* out) {
  return with_gpu_instance(handle, [&](device::Machine&, unsigned card, const auto& gi, const auto&) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    *out = {device_handle(card), gi.id, gi.profile_id, {gi.start, gi.size}};
    return abi::kSuccess;
  });
}
Return nvmlGpuInstanceDestroy(abi::GpuInstance handle) {
  return with_gpu_instance(handle, [&](device::Machine& machine, unsigned card, const auto& gi, const auto&) -> Return {
    const auto gone = device::destroy_gpu_instance(machine, card, gi.id);
    return gone ? abi::kSuccess : from_error(gone.error());
  });
}

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
