#include "device/nvidia/partition.h"

#include <charconv>
#include <cstring>
#include <optional>

namespace tensor_fusion::device::nvidia {
namespace {

bool can_cut(const Nvml& library) {
  return library.create_gpu_instance && library.destroy_gpu_instance && library.gpu_instance_info &&
         library.compute_instance_profile && library.create_compute_instance && library.destroy_compute_instance &&
         library.compute_instance_info && library.gpu_instance_by_id && library.compute_instance_by_id &&
         library.gpu_instance_profile && library.mig_by_index && library.max_mig && library.gpu_instance &&
         library.compute_instance && library.uuid;
}

std::optional<nvml::GpuInstanceProfile> profile_of(const Nvml& library, nvml::Device card, const char* text) {
  unsigned wanted = 0;
  const char* end = text + std::strlen(text);
  if (const auto parsed = std::from_chars(text, end, wanted); parsed.ec != std::errc() || parsed.ptr != end)
    return std::nullopt;
  for (unsigned constant = 0; constant < nvml::kGpuInstanceProfiles; ++constant) {
    nvml::GpuInstanceProfile profile{};
    if (library.gpu_instance_profile(card, constant, &profile) == nvml::kSuccess && profile.id == wanted)
      return profile;
  }
  return std::nullopt;
}

// The one that has all slices of its GPU instance. An instance may have fewer than its profile says, so the most.
int make_whole_compute_instance(const Nvml& library, nvml::GpuInstance instance, nvml::ComputeInstance& out) {
  nvml::ComputeInstanceProfile most{};
  for (unsigned constant = 0; constant < nvml::kComputeInstanceProfiles; ++constant) {
    nvml::ComputeInstanceProfile profile{};
    constexpr unsigned kSharedEngines = 0;
    if (library.compute_instance_profile(instance, constant, kSharedEngines, &profile) == nvml::kSuccess &&
        profile.slices > most.slices)
      most = profile;
  }
  return most.slices == 0 ? nvml::kNotSupported : library.create_compute_instance(instance, most.id, &out);
}

int uuid_of(const Nvml& library, nvml::Device card, unsigned gpu_instance, unsigned compute_instance,
            std::string& uuid) {
  unsigned most = 0;
  if (const int code = library.max_mig(card, &most); code != nvml::kSuccess) return code;
  for (unsigned i = 0; i < most; ++i) {
    nvml::Device part = nullptr;
    unsigned gpu = 0, compute = 0;
    if (library.mig_by_index(card, i, &part) != nvml::kSuccess || library.gpu_instance(part, &gpu) != nvml::kSuccess ||
        library.compute_instance(part, &compute) != nvml::kSuccess || gpu != gpu_instance ||
        compute != compute_instance)
      continue;
    char text[nvml::kUuidBufferV2] = {};
    const int code = library.uuid(part, text, sizeof text);
    uuid = text;
    return code;
  }
  return nvml::kNotFound;
}

}  // namespace

int make_partition(const Nvml& library, nvml::Device card, const char* profile_text, std::string& uuid) {
  if (!can_cut(library)) return nvml::kFunctionNotFound;
  const auto profile = profile_of(library, card, profile_text);
  if (!profile) return nvml::kInvalidArgument;
  nvml::GpuInstance instance = nullptr;
  if (const int code = library.create_gpu_instance(card, profile->id, &instance); code != nvml::kSuccess) return code;
  nvml::ComputeInstance compute = nullptr;
  int code = make_whole_compute_instance(library, instance, compute);
  if (code == nvml::kSuccess) {
    nvml::GpuInstanceInfo outer{};
    nvml::ComputeInstanceInfo inner{};
    code = library.gpu_instance_info(instance, &outer);
    if (code == nvml::kSuccess) code = library.compute_instance_info(compute, &inner);
    if (code == nvml::kSuccess) code = uuid_of(library, card, outer.id, inner.id, uuid);
    if (code == nvml::kSuccess) return code;
    library.destroy_compute_instance(compute);
  }
  library.destroy_gpu_instance(instance);
  return code;
}

int destroy_partition(const Nvml& library, nvml::Device card, unsigned gpu_instance, unsigned compute_instance) {
  if (!can_cut(library)) return nvml::kFunctionNotFound;
  nvml::GpuInstance instance = nullptr;
  nvml::ComputeInstance compute = nullptr;
  if (const int code = library.gpu_instance_by_id(card, gpu_instance, &instance); code != nvml::kSuccess) return code;
  if (const int code = library.compute_instance_by_id(instance, compute_instance, &compute); code != nvml::kSuccess)
    return code;
  // Refused while somebody uses it: then all stays as it was.
  if (const int code = library.destroy_compute_instance(compute); code != nvml::kSuccess) return code;
  return library.destroy_gpu_instance(instance);
}

}  // namespace tensor_fusion::device::nvidia
