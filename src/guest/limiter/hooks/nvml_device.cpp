// Which devices the management library shows: those of the slice, counted from 0 in its own order. A card of which the
// slice holds only a MIG device is shown, with that MIG device alone.
#include "guest/limiter/hooks/nvml.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr unsigned kMaxCards = 64;

char lower(char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }

std::uint32_t granted_count() {
  const std::uint32_t count = g_shared.slice.grant->device_count.load(std::memory_order_relaxed);
  return count < contract::kMaxDevices ? count : contract::kMaxDevices;
}

int row_named_by(const char* uuid) {
  for (std::uint32_t row = 0; row < granted_count(); ++row) {
    const char* granted = g_shared.slice.grant->devices[row].uuid;
    std::size_t at = 0;
    while (at < contract::kUuidLength && granted[at] != 0 && lower(granted[at]) == lower(uuid[at])) ++at;
    if (at > 4 && at < contract::kUuidLength && granted[at] == 0 && uuid[at] == 0) return static_cast<int>(row);
  }
  return -1;
}

bool holds_mig() {
  for (std::uint32_t row = 0; row < granted_count(); ++row)
    if (starts_with(g_shared.slice.grant->devices[row].uuid, "MIG-")) return true;
  return false;
}

bool has_granted_part(NvmlDevice card) {
  unsigned count = 0;
  if (!holds_mig() || TF_REAL_NVML(nvmlDeviceGetMaxMigDeviceCount)(card, &count) != nvml::kSuccess) return false;
  for (unsigned index = 0; index < count; ++index) {
    NvmlDevice part = nullptr;
    if (TF_REAL_NVML(nvmlDeviceGetMigDeviceHandleByIndex)(card, index, &part) == nvml::kSuccess &&
        granted_row(part) >= 0)
      return true;
  }
  return false;
}

bool shown(NvmlDevice device) { return granted_row(device) >= 0 || has_granted_part(device); }

// Calls `visit(handle)` for every card shown, in the management library's order, until it answers true.
template <class Visit>
NvmlResult each_shown(Visit visit) {
  unsigned count = 0;
  const auto get_count =
      g_nvml.nvmlDeviceGetCount_v2 != nullptr ? g_nvml.nvmlDeviceGetCount_v2 : TF_REAL_NVML(nvmlDeviceGetCount);
  const auto get_handle = g_nvml.nvmlDeviceGetHandleByIndex_v2 != nullptr ? g_nvml.nvmlDeviceGetHandleByIndex_v2
                                                                          : TF_REAL_NVML(nvmlDeviceGetHandleByIndex);
  if (const NvmlResult result = get_count(&count); result != nvml::kSuccess) return result;
  for (unsigned index = 0; index < count && index < kMaxCards; ++index) {
    NvmlDevice device = nullptr;
    if (get_handle(index, &device) == nvml::kSuccess && shown(device) && visit(device)) break;
  }
  return nvml::kSuccess;
}

NvmlResult count_shown(unsigned* count) {
  if (count == nullptr) return nvml::kInvalidArgument;
  unsigned found = 0;
  const NvmlResult result = each_shown([&](NvmlDevice) {
    ++found;
    return false;
  });
  if (result == nvml::kSuccess) *count = found;
  return result;
}

NvmlResult nth_shown(unsigned wanted, NvmlDevice* device) {
  if (device == nullptr) return nvml::kInvalidArgument;
  bool found = false;
  const NvmlResult result = each_shown([&](NvmlDevice candidate) {
    found = wanted-- == 0;
    if (found) *device = candidate;
    return found;
  });
  if (result != nvml::kSuccess) return result;
  return found ? nvml::kSuccess : nvml::kInvalidArgument;  // what an index too high gives
}

// Keeps the handles of cards that are shown. The library's own rules for room: the count alone says how many there are.
template <class Ask>
NvmlResult shown_of(unsigned* count, NvmlDevice* list, Ask ask) {
  if (!limited() || count == nullptr) return ask(count, list);
  NvmlDevice all[kMaxCards];
  unsigned found = kMaxCards;
  if (const NvmlResult result = ask(&found, all); result != nvml::kSuccess) return result;
  const unsigned room = list == nullptr ? 0 : *count;
  unsigned kept = 0;
  for (unsigned i = 0; i < found && i < kMaxCards; ++i) {
    if (!shown(all[i])) continue;
    if (kept < room) list[kept] = all[i];
    ++kept;
  }
  *count = room != 0 && kept > room ? room : kept;
  return nvml::kSuccess;
}

NvmlResult only_shown(NvmlResult result, const NvmlDevice* device) {
  if (result != nvml::kSuccess || !limited()) return result;
  return shown(*device) ? nvml::kSuccess : nvml::kNotFound;
}

}  // namespace

NvmlResult management_unavailable() { return nvml::kLibraryNotFound; }

bool limited() { return resolve_slice() == Stage::limited; }

int granted_row(NvmlDevice device) {
  char uuid[nvml::kUuidBufferV2] = {};
  if (TF_REAL_NVML(nvmlDeviceGetUUID)(device, uuid, sizeof uuid) != nvml::kSuccess) return -1;
  uuid[sizeof uuid - 1] = 0;
  return row_named_by(uuid);
}

TF_NVML_ENTRY(nvmlDeviceGetCount, (unsigned* count)) {
  return limited() ? count_shown(count) : TF_REAL_NVML(nvmlDeviceGetCount)(count);
}
TF_NVML_ENTRY(nvmlDeviceGetCount_v2, (unsigned* count)) {
  return limited() ? count_shown(count) : TF_REAL_NVML(nvmlDeviceGetCount_v2)(count);
}
TF_NVML_ENTRY(nvmlDeviceGetHandleByIndex, (unsigned index, NvmlDevice* device)) {
  return limited() ? nth_shown(index, device) : TF_REAL_NVML(nvmlDeviceGetHandleByIndex)(index, device);
}
TF_NVML_ENTRY(nvmlDeviceGetHandleByIndex_v2, (unsigned index, NvmlDevice* device)) {
  return limited() ? nth_shown(index, device) : TF_REAL_NVML(nvmlDeviceGetHandleByIndex_v2)(index, device);
}
TF_NVML_ENTRY(nvmlDeviceGetHandleByUUID, (const char* uuid, NvmlDevice* device)) {
  return only_shown(TF_REAL_NVML(nvmlDeviceGetHandleByUUID)(uuid, device), device);
}
TF_NVML_ENTRY(nvmlDeviceGetHandleByUUIDV, (const void* uuid, NvmlDevice* device)) {
  return only_shown(TF_REAL_NVML(nvmlDeviceGetHandleByUUIDV)(uuid, device), device);
}
TF_NVML_ENTRY(nvmlDeviceGetHandleBySerial, (const char* serial, NvmlDevice* device)) {
  return only_shown(TF_REAL_NVML(nvmlDeviceGetHandleBySerial)(serial, device), device);
}
TF_NVML_ENTRY(nvmlDeviceGetHandleByPciBusId, (const char* bus, NvmlDevice* device)) {
  return only_shown(TF_REAL_NVML(nvmlDeviceGetHandleByPciBusId)(bus, device), device);
}
TF_NVML_ENTRY(nvmlDeviceGetHandleByPciBusId_v2, (const char* bus, NvmlDevice* device)) {
  return only_shown(TF_REAL_NVML(nvmlDeviceGetHandleByPciBusId_v2)(bus, device), device);
}
TF_NVML_ENTRY(nvmlDeviceGetMigDeviceHandleByIndex, (NvmlDevice parent, unsigned index, NvmlDevice* device)) {
  const NvmlResult result = TF_REAL_NVML(nvmlDeviceGetMigDeviceHandleByIndex)(parent, index, device);
  if (result != nvml::kSuccess || !limited()) return result;
  // A place without a device, as there are many: the program goes on to the next. A whole card holds all of its parts.
  return granted_row(*device) >= 0 || granted_row(parent) >= 0 ? nvml::kSuccess : nvml::kNotFound;
}
TF_NVML_ENTRY(nvmlDeviceGetTopologyNearestGpus, (NvmlDevice device, int level, unsigned* count, NvmlDevice* list)) {
  return shown_of(count, list, [&](unsigned* room, NvmlDevice* all) {
    return TF_REAL_NVML(nvmlDeviceGetTopologyNearestGpus)(device, level, room, all);
  });
}
TF_NVML_ENTRY(nvmlSystemGetTopologyGpuSet, (unsigned cpu, unsigned* count, NvmlDevice* list)) {
  return shown_of(count, list, [&](unsigned* room, NvmlDevice* all) {
    return TF_REAL_NVML(nvmlSystemGetTopologyGpuSet)(cpu, room, all);
  });
}
TF_NVML_ENTRY(nvmlDeviceGetIndex, (NvmlDevice device, unsigned* index)) {
  if (!limited() || index == nullptr) return TF_REAL_NVML(nvmlDeviceGetIndex)(device, index);
  unsigned position = 0;
  bool found = false;
  const NvmlResult result = each_shown([&](NvmlDevice candidate) {
    found = candidate == device;
    position += found ? 0 : 1;
    return found;
  });
  if (result != nvml::kSuccess) return result;
  if (!found) return TF_REAL_NVML(nvmlDeviceGetIndex)(device, index);  // a MIG device counts within its card
  *index = position;
  return nvml::kSuccess;
}

}  // namespace tensor_fusion::guest::limiter
