#include "sim/device/mig.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/device/device_file.h"
#include "sim/device/kill_point.h"
#include "sim/device/memory_domain.h"
#include "sim/device/robust_lock.h"
#include "sim/device/state.h"

namespace tensor_fusion::sim::device {
namespace {

[[nodiscard]] std::unexpected<Error> no(Errc code, std::string why) {
  return std::unexpected(Error{code, std::move(why)});
}

[[nodiscard]] const MigProfile* profile_of(const DeviceRecord& card, std::uint32_t id) {
  const Profile& profile = card.info.profile;
  for (std::uint32_t i = 0; i < profile.mig_profile_count; ++i) {
    if (profile.mig_profiles[i].id == id) return &profile.mig_profiles[i];
  }
  return nullptr;
}

[[nodiscard]] bool has_contexts(const State& state, EngineId engine) {
  return std::any_of(std::begin(state.engines[engine].members), std::end(state.engines[engine].members),
                     [](const auto& member) { return member.load(std::memory_order_acquire) != 0; });
}

[[nodiscard]] std::uint32_t taken_slots(const DeviceRecord& card) {
  std::uint32_t mask = 0;
  for (const GpuInstanceRecord& gi : card.gpu_instances) {
    if (gi.exists.load(std::memory_order_acquire) != 0) mask |= ((1u << gi.size) - 1) << gi.start;
  }
  return mask;
}

[[nodiscard]] std::uint32_t taken_slices(const DeviceRecord& card) {
  std::uint32_t sum = 0;
  for (const GpuInstanceRecord& gi : card.gpu_instances) {
    if (gi.exists.load(std::memory_order_acquire) != 0) sum += profile_of(card, gi.profile_id)->compute_slices;
  }
  return sum;
}

[[nodiscard]] std::vector<std::uint32_t> free_starts(const DeviceRecord& card, const MigProfile& profile) {
  std::vector<std::uint32_t> list;
  std::uint32_t same = 0;
  for (const GpuInstanceRecord& gi : card.gpu_instances) {
    if (gi.exists.load(std::memory_order_acquire) != 0 && gi.profile_id == profile.id) ++same;
  }
  if (same >= profile.max_instances ||
      taken_slices(card) + profile.compute_slices > card.info.profile.mig_compute_slices)
    return list;
  const std::uint32_t taken = taken_slots(card);
  for (std::uint32_t i = 0; i < profile.placement_count; ++i) {
    const std::uint32_t start = profile.placements[i];
    if ((taken & (((1u << profile.memory_slots) - 1) << start)) == 0) list.push_back(start);
  }
  return list;
}

// Slices of a GPU instance that its compute instances have, as a mask.
[[nodiscard]] std::uint32_t compute_mask(const DeviceRecord& card, std::uint32_t gpu_instance) {
  std::uint32_t mask = 0;
  for (const ComputeInstanceRecord& ci : card.compute_instances) {
    if (ci.exists.load(std::memory_order_acquire) != 0 && ci.gpu_instance == gpu_instance)
      mask |= ((1u << ci.slices) - 1) << ci.start;
  }
  return mask;
}

[[nodiscard]] std::uint32_t compute_profile_id(std::uint32_t slices) {
  return slices <= 4 ? slices - 1 : slices == 7 ? 4 : slices == 8 ? 5 : 6;  // 6 = six slices, as NVML counts
}

EngineInfo describe_engine(const State& state, unsigned device, EngineId id, const MigProfile& whole,
                           const ComputeInstanceRecord& ci) {
  EngineInfo info{};
  info.id = id;
  const DeviceInfo& card = state.devices[device].info;
  info.device = device;
  info.gpu_instance = static_cast<std::int32_t>(ci.gpu_instance);
  info.compute_instance = static_cast<std::int32_t>(ci.id);
  // The identity follows from card, placement and order, so the same cut gives the same names.
  const GpuInstanceRecord& gi = state.devices[device].gpu_instances[ci.gpu_instance];
  const auto* u = card.uuid_bytes;
  const auto twist = static_cast<std::uint8_t>(gi.start * 16 + gi.size);
  std::snprintf(
      info.uuid, sizeof(info.uuid), "MIG-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[15],
      u[14], u[13], u[12], u[11], u[10], (u[9] & 0x0f) | 0x50, u[8], (u[7] & 0x3f) | 0x80, u[6], u[5], u[4], u[3],
      static_cast<unsigned>(twist), static_cast<unsigned>(gi.profile_id), static_cast<unsigned>(ci.start * 16 + ci.id));
  if (ci.slices == whole.compute_slices) {
    std::snprintf(info.name, sizeof(info.name), "%s MIG %s", card.profile.name, whole.name);
  } else {
    std::snprintf(info.name, sizeof(info.name), "%s MIG %uc.%s", card.profile.name, ci.slices, whole.name);
  }
  std::snprintf(info.file, sizeof(info.file), "nvidia%u-mig-%u-%u", device, ci.gpu_instance, ci.id);
  info.memory_domain = device * kEnginesPerDevice + ci.gpu_instance;
  info.memory_bytes = whole.memory_bytes;
  info.sm_count = whole.sm_count * ci.slices / whole.compute_slices;
  const double part = static_cast<double>(info.sm_count) / card.profile.sm_count;
  info.instructions_per_s = card.profile.instructions_per_s * card.profile.speed * part;
  info.memory_gb_per_s =
      card.profile.memory_gb_per_s * card.profile.speed * whole.memory_slots / card.profile.mig_memory_slots;
  return info;
}

}  // namespace

bool mig_enabled(const Machine& machine, unsigned device) {
  return machine.state().devices[device].mig.load(std::memory_order_acquire) != 0;
}

std::expected<void, Error> set_mig(Machine& machine, unsigned device, bool enabled) {
  State& state = machine.state();
  DeviceRecord& card = state.devices[device];
  if (card.info.profile.mig_capable == 0) return no(Errc::not_supported, "this card cannot be partitioned");
  machine.reap();
  RobustLock lock(state.admin, [] {});
  if ((card.mig.load() != 0) == enabled) return {};
  const EngineId whole = device * kEnginesPerDevice;
  if (enabled && has_contexts(state, whole)) return no(Errc::in_use, "programs are running on the card");
  for (const GpuInstanceRecord& gi : card.gpu_instances) {
    if (gi.exists.load() != 0) return no(Errc::in_use, "GPU instances exist on the card");
  }
  state.engines[whole].exists.store(enabled ? 0 : 1, std::memory_order_release);
  if (!enabled) set_domain_capacity(state, whole, card.info.profile.memory_bytes);
  kill_point();
  card.mig.store(enabled ? 1 : 0, std::memory_order_release);
  return {};
}

std::vector<GpuInstance> gpu_instances(const Machine& machine, unsigned device) {
  std::vector<GpuInstance> list;
  const DeviceRecord& card = machine.state().devices[device];
  for (std::uint32_t id = 0; id < kEnginesPerDevice; ++id) {
    const GpuInstanceRecord& gi = card.gpu_instances[id];
    if (gi.exists.load(std::memory_order_acquire) != 0) {
      list.push_back({id, gi.profile_id, gi.start, gi.size, device * kEnginesPerDevice + id});
    }
  }
  return list;
}

std::vector<std::uint32_t> free_placements(const Machine& machine, unsigned device, std::uint32_t profile_id) {
  const DeviceRecord& card = machine.state().devices[device];
  const MigProfile* profile = profile_of(card, profile_id);
  return profile == nullptr ? std::vector<std::uint32_t>{} : free_starts(card, *profile);
}

std::expected<GpuInstance, Error> create_gpu_instance(Machine& machine, unsigned device, std::uint32_t profile_id,
                                                      std::optional<std::uint32_t> start) {
  State& state = machine.state();
  DeviceRecord& card = state.devices[device];
  RobustLock lock(state.admin, [] {});
  if (card.mig.load() == 0) return no(Errc::not_supported, "MIG mode is off");
  const MigProfile* profile = profile_of(card, profile_id);
  if (profile == nullptr) return no(Errc::invalid, "the card has no such GPU instance profile");
  const auto* end = profile->placements + profile->placement_count;
  if (start && std::find(profile->placements, end, *start) == end)
    return no(Errc::invalid, "the profile cannot start there");
  const std::vector<std::uint32_t> starts = free_starts(card, *profile);
  if (starts.empty() || (start && std::find(starts.begin(), starts.end(), *start) == starts.end())) {
    return no(Errc::exhausted, "no room for that GPU instance");
  }
  // The last one keeps the low slots, which the larger profiles need, free.
  const std::uint32_t at = start ? *start : starts.back();
  std::uint32_t id = profile->memory_slots == card.info.profile.mig_memory_slots ? 0 : 1;
  while (id < kEnginesPerDevice && card.gpu_instances[id].exists.load() != 0) ++id;
  if (id == kEnginesPerDevice) return no(Errc::exhausted, "the card has its full number of GPU instances");
  GpuInstanceRecord& gi = card.gpu_instances[id];
  gi.profile_id = profile_id;
  gi.start = at;
  gi.size = profile->memory_slots;
  set_domain_capacity(state, device * kEnginesPerDevice + id, profile->memory_bytes);
  kill_point();
  gi.exists.store(1, std::memory_order_release);
  return GpuInstance{id, profile_id, at, profile->memory_slots, device * kEnginesPerDevice + id};
}

std::expected<void, Error> destroy_gpu_instance(Machine& machine, unsigned device, std::uint32_t id) {
  State& state = machine.state();
  DeviceRecord& card = state.devices[device];
  RobustLock lock(state.admin, [] {});
  if (id >= kEnginesPerDevice || card.gpu_instances[id].exists.load() == 0)
    return no(Errc::not_found, "there is no such GPU instance");
  if (compute_mask(card, id) != 0) return no(Errc::in_use, "compute instances exist in it");
  card.gpu_instances[id].exists.store(0, std::memory_order_release);
  return {};
}

std::vector<ComputeInstance> compute_instances(const Machine& machine, unsigned device) {
  std::vector<ComputeInstance> list;
  const DeviceRecord& card = machine.state().devices[device];
  for (std::uint32_t k = 1; k < kEnginesPerDevice; ++k) {
    const ComputeInstanceRecord& ci = card.compute_instances[k];
    if (ci.exists.load(std::memory_order_acquire) == 0) continue;
    list.push_back({ci.gpu_instance, ci.id, ci.profile_id, ci.start, ci.slices, device * kEnginesPerDevice + k});
  }
  return list;
}

std::expected<ComputeInstance, Error> create_compute_instance(Machine& machine, unsigned device,
                                                              std::uint32_t gpu_instance, std::uint32_t slices,
                                                              std::optional<std::uint32_t> start) {
  State& state = machine.state();
  DeviceRecord& card = state.devices[device];
  RobustLock lock(state.admin, [] {});
  if (gpu_instance >= kEnginesPerDevice || card.gpu_instances[gpu_instance].exists.load() == 0) {
    return no(Errc::not_found, "there is no such GPU instance");
  }
  const MigProfile& whole = *profile_of(card, card.gpu_instances[gpu_instance].profile_id);
  if (slices == 0 || slices > whole.compute_slices)
    return no(Errc::invalid, "the GPU instance has not that many slices");
  const std::uint32_t taken = compute_mask(card, gpu_instance);
  std::optional<std::uint32_t> at;
  for (std::uint32_t s = 0; s + slices <= whole.compute_slices && !at; ++s) {
    if (start && *start != s) continue;
    if ((taken & (((1u << slices) - 1) << s)) == 0) at = s;
  }
  std::uint32_t k = 1;
  while (k < kEnginesPerDevice && card.compute_instances[k].exists.load() != 0) ++k;
  if (!at || k == kEnginesPerDevice) return no(Errc::exhausted, "no room for that compute instance");
  std::uint32_t id = 0;
  const auto used = [&](std::uint32_t wanted) {
    return std::any_of(std::begin(card.compute_instances), std::end(card.compute_instances),
                       [&](const ComputeInstanceRecord& ci) {
                         return ci.exists.load() != 0 && ci.gpu_instance == gpu_instance && ci.id == wanted;
                       });
  };
  while (used(id)) ++id;
  ComputeInstanceRecord& ci = card.compute_instances[k];
  ci.gpu_instance = gpu_instance;
  ci.id = id;
  ci.slices = slices;
  ci.profile_id = compute_profile_id(slices);
  ci.start = *at;
  EngineRecord& engine = state.engines[device * kEnginesPerDevice + k];
  engine.info = describe_engine(state, device, device * kEnginesPerDevice + k, whole, ci);
  if (!write_device_file(machine.directory(), engine.info.file, engine.info.uuid)) {
    return no(Errc::system, "cannot make the device file " + machine.directory() + "/" + engine.info.file);
  }
  kill_point();
  ci.exists.store(1, std::memory_order_release);
  kill_point();
  engine.exists.store(1, std::memory_order_release);
  return ComputeInstance{gpu_instance, id, ci.profile_id, *at, slices, engine.info.id};
}

std::expected<void, Error> destroy_compute_instance(Machine& machine, unsigned device, std::uint32_t gpu_instance,
                                                    std::uint32_t id) {
  State& state = machine.state();
  DeviceRecord& card = state.devices[device];
  machine.reap();
  RobustLock lock(state.admin, [] {});
  for (std::uint32_t k = 1; k < kEnginesPerDevice; ++k) {
    ComputeInstanceRecord& ci = card.compute_instances[k];
    if (ci.exists.load() == 0 || ci.gpu_instance != gpu_instance || ci.id != id) continue;
    EngineRecord& engine = state.engines[device * kEnginesPerDevice + k];
    if (has_contexts(state, engine.info.id)) return no(Errc::in_use, "programs are running on it");
    engine.exists.store(0, std::memory_order_release);
    kill_point();
    remove_device_file(machine.directory(), engine.info.file);
    ci.exists.store(0, std::memory_order_release);
    return {};
  }
  return no(Errc::not_found, "there is no such compute instance");
}

}  // namespace tensor_fusion::sim::device
