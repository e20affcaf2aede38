// MIG: mode, GPU instances and the devices they make. What is inside of one: compute_instance.cpp.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/nvml/gpu_instance.h"
#include "sim/nvml/session.h"

namespace tensor_fusion::sim::nvml {
namespace {

[[nodiscard]] const device::MigProfile* by_constant(const device::Profile& p, unsigned constant) {
  for (unsigned i = 0; i < p.mig_profile_count; ++i) {
    if (p.mig_profiles[i].constant == constant) return &p.mig_profiles[i];
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

template <typename Body>
[[nodiscard]] Return with_mig(abi::Device handle, Body body) {
  return with_card(handle, [&](Target& t) -> Return {
    if (t.profile.mig_capable == 0 || !device::mig_enabled(t.machine, t.device)) return abi::kNotSupported;
    return body(t);
  });
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

}  // extern "C"
}  // namespace tensor_fusion::sim::nvml
