#include "device/provider.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "device/nvidia/card.h"
#include "device/nvidia/nvml.h"
#include "device/nvidia/partition.h"
#include "system/clock.h"

namespace tensor_fusion::device {
namespace {

using namespace nvidia;

std::mutex mutex;  // the ABI wants thread-safe functions; NVML is asked one question at a time
Nvml library;
std::string trouble;
std::vector<Card> cards;
nvml::EventSet events = nullptr;
std::vector<AccelEvent> pending_events;
std::vector<std::string> lost;
std::map<std::string, ExtendedDeviceInfo> described;  // by UUID: of a card that is lost NVML tells nothing any more

AccelResult result_of(int code) {
  switch (code) {
    case nvml::kSuccess:
      return ACCEL_SUCCESS;
    case nvml::kInvalidArgument:
      return ACCEL_ERROR_INVALID_PARAM;
    case nvml::kNotFound:
    case nvml::kGpuNotFound:
      return ACCEL_ERROR_NOT_FOUND;
    case nvml::kNotSupported:
    case nvml::kFunctionNotFound:
      return ACCEL_ERROR_NOT_SUPPORTED;
    case nvml::kInsufficientResources:
      return ACCEL_ERROR_RESOURCE_EXHAUSTED;
    default:
      return ACCEL_ERROR_OPERATION_FAILED;
  }
}

void note_loss(const Card& card, int code) {
  if (code != nvml::kGpuIsLost || std::find(lost.begin(), lost.end(), card.uuid) != lost.end()) return;
  lost.push_back(card.uuid);
  AccelEvent event{};
  event.structSize = sizeof event;
  event.kind = ACCEL_EVENT_DEVICE_LOST;
  put(event.deviceUUID, card.uuid);
  put(event.message, "lost: the device has fallen off the bus and answers no more");
  pending_events.push_back(event);
}

const Card* card_of(const char* uuid) {
  const auto found = std::find_if(cards.begin(), cards.end(), [&](const Card& card) { return card.uuid == uuid; });
  return found == cards.end() ? nullptr : &*found;
}

AccelResult init() {
  const std::lock_guard lock(mutex);
  trouble = library.load();
  if (!trouble.empty()) return ACCEL_ERROR_NOT_FOUND;
  if (const int code = library.init(); code != nvml::kSuccess) {
    const char* text = library.error_string ? library.error_string(code) : nullptr;
    trouble = std::string("NVIDIA's driver does not start: ") +
              (text ? text : ("NVML error " + std::to_string(code)).c_str()) + "; try nvidia-smi";
    return ACCEL_ERROR_OPERATION_FAILED;
  }
  return result_of(list_cards(library, cards));
}

AccelResult shutdown() {
  const std::lock_guard lock(mutex);
  return library.shutdown ? result_of(library.shutdown()) : ACCEL_SUCCESS;
}

AccelResult device_count(std::size_t* count) {
  const std::lock_guard lock(mutex);
  *count = cards.size();
  return ACCEL_SUCCESS;
}

AccelResult all_devices(ExtendedDeviceInfo* out, std::size_t max, std::size_t* count) {
  const std::lock_guard lock(mutex);
  if (const int code = list_cards(library, cards); code != nvml::kSuccess) return result_of(code);
  *count = std::min(max, cards.size());
  for (std::size_t i = 0; i < *count; ++i) {
    describe(library, cards[i], i, out[i]);
    const auto known = described.find(cards[i].uuid);
    if (!cards[i].lost) {
      described[cards[i].uuid] = out[i];
    } else if (known != described.end()) {
      const DeviceProperties properties = out[i].props;
      out[i] = known->second;
      out[i].basic.index = static_cast<std::int32_t>(i);
      out[i].props = properties;
    }
    if (cards[i].lost) note_loss(cards[i], nvml::kGpuIsLost);
  }
  return ACCEL_SUCCESS;
}

TopoLevel level_of(int nvml_level) {
  switch (nvml_level) {
    case nvml::kTopologyInternal:
      return TOPO_LEVEL_INTERNAL;
    case nvml::kTopologySingle:
      return TOPO_LEVEL_SINGLE_SWITCH;
    case nvml::kTopologyMultiple:
      return TOPO_LEVEL_MULTI_SWITCH;
    case nvml::kTopologyHostBridge:
      return TOPO_LEVEL_HOST_BRIDGE;
    case nvml::kTopologyNode:
      return TOPO_LEVEL_NUMA_NODE;
    case nvml::kTopologySystem:
      return TOPO_LEVEL_SYSTEM;
    default:
      return TOPO_LEVEL_UNKNOWN;
  }
}

AccelResult topology(ExtendedDeviceTopology* out) {
  const std::lock_guard lock(mutex);
  *out = {};
  out->deviceCount = cards.size();
  for (std::size_t i = 0; i < cards.size(); ++i) {
    DeviceTopologyInfo& device = out->devices[i];
    put(device.deviceUUID, cards[i].uuid);
    device.deviceIndex = static_cast<std::int32_t>(i);
    device.numaNode = cards[i].handle ? numa_of(library, cards[i].handle) : -1;
    for (std::size_t j = 0; j < cards.size(); ++j) {
      DeviceTopoNode& peer = device.peers[device.peerCount++];
      put(peer.peerUUID, cards[j].uuid);
      peer.peerIndex = static_cast<std::int32_t>(j);
      int level = -1;
      const bool known = library.common_ancestor && cards[i].handle && cards[j].handle &&
                         library.common_ancestor(cards[i].handle, cards[j].handle, &level) == nvml::kSuccess;
      peer.topoLevel = i == j ? TOPO_LEVEL_SELF : known ? level_of(level) : TOPO_LEVEL_UNKNOWN;
    }
  }
  return ACCEL_SUCCESS;
}

using ListFunction = int (*)(nvml::Device, unsigned*, nvml::ProcessInfo*);

int list_processes(ListFunction function, nvml::Device handle, std::map<unsigned, std::uint64_t>& bytes) {
  if (!function) return nvml::kSuccess;
  std::vector<nvml::ProcessInfo> list(64);
  for (int tries = 0; tries < 4; ++tries) {
    auto count = static_cast<unsigned>(list.size());
    const int code = function(handle, &count, list.data());
    if (code == nvml::kInsufficientSize) {
      list.resize(static_cast<std::size_t>(count) + 32);  // more may start before the next try
      continue;
    }
    if (code != nvml::kSuccess) return code;
    for (unsigned i = 0; i < count && i < list.size(); ++i) {
      const std::uint64_t used = list[i].used_bytes == nvml::kValueNotAvailable ? 0 : list[i].used_bytes;
      bytes[list[i].pid] = std::max(bytes[list[i].pid], used);  // one process may stand in several lists
    }
    return nvml::kSuccess;
  }
  return nvml::kInsufficientSize;
}

// Of each process in the time that its last sample tells of. A process has no sample of a time in which it did nothing
// and is told its newest: only one that is of just now says what it does on average.
std::map<unsigned, double> utilisation_of(nvml::Device handle) {
  std::map<unsigned, double> sums;
  if (!library.process_utilization) return sums;
  constexpr unsigned long long kSampleMs = 170;
  const unsigned long long since_us = (system::wall_ms() - kSampleMs) * 1000;
  unsigned count = 0;
  library.process_utilization(handle, nullptr, &count, since_us);
  if (count == 0) return sums;
  std::vector<nvml::ProcessUtilization> samples(count);
  if (library.process_utilization(handle, samples.data(), &count, since_us) != nvml::kSuccess) return sums;
  std::map<unsigned, unsigned> counts;
  for (unsigned i = 0; i < count && i < samples.size(); ++i) {
    if (samples[i].pid == 0 || samples[i].sm > 100) continue;
    sums[samples[i].pid] += samples[i].sm;
    ++counts[samples[i].pid];
  }
  for (auto& [pid, sum] : sums) sum /= counts[pid];
  return sums;
}

AccelResult process_information(ProcessInformation* out, std::size_t max, std::size_t* count) {
  const std::lock_guard lock(mutex);
  *count = 0;
  for (const Card& card : cards) {
    if (!card.handle) continue;
    std::map<unsigned, std::uint64_t> bytes;
    int code = list_processes(library.compute_processes, card.handle, bytes);
    if (code == nvml::kSuccess) {
      list_processes(library.mps_processes, card.handle, bytes);
      list_processes(library.graphics_processes, card.handle, bytes);
    }
    note_loss(card, code);
    if (bytes.empty()) continue;
    const auto utilisation = utilisation_of(card.handle);
    for (const auto& [pid, used] : bytes) {
      if (*count == max) return ACCEL_SUCCESS;
      ProcessInformation& process = out[(*count)++];
      process = {};
      put(process.processId, std::to_string(pid));
      put(process.deviceUUID, card.uuid);
      process.memoryUsedBytes = used;
      process.memoryReservedBytes = used;
      if (const auto found = utilisation.find(pid); found != utilisation.end())
        process.computeUtilizationPercent = found->second;
    }
  }
  return ACCEL_SUCCESS;
}

AccelResult device_metrics(const char** uuids, std::size_t count, DeviceMetrics* out) {
  const std::lock_guard lock(mutex);
  for (std::size_t i = 0; i < count; ++i) {
    DeviceMetrics& metrics = out[i];
    metrics = {};
    put(metrics.deviceUUID, uuids[i]);
    const Card* card = card_of(uuids[i]);
    if (!card || !card->handle) continue;
    nvml::Utilization use{};
    if (library.utilization && library.utilization(card->handle, &use) == nvml::kSuccess)
      metrics.utilizationPercent = use.gpu;
    nvml::Memory memory{};
    if (library.memory(card->handle, &memory) == nvml::kSuccess) metrics.memoryUsedBytes = memory.used;
    unsigned value = 0;
    constexpr int kGpuSensor = 0;
    if (library.temperature && library.temperature(card->handle, kGpuSensor, &value) == nvml::kSuccess)
      metrics.temperatureCelsius = value;
    if (library.power && library.power(card->handle, &value) == nvml::kSuccess)
      metrics.powerUsageWatts = value / 1000.0;
    constexpr int kSent = 0, kReceived = 1;  // KB/s over the last 20 ms
    if (library.pcie_throughput && library.pcie_throughput(card->handle, kSent, &value) == nvml::kSuccess)
      metrics.pcieTxBytes = std::uint64_t{value} * 1000;
    if (library.pcie_throughput && library.pcie_throughput(card->handle, kReceived, &value) == nvml::kSuccess)
      metrics.pcieRxBytes = std::uint64_t{value} * 1000;
  }
  return ACCEL_SUCCESS;
}

AccelResult poll_events(AccelEvent* out, std::size_t max, std::size_t* count) {
  const std::lock_guard lock(mutex);
  *count = 0;
  if (!events && library.event_set && library.register_events && library.wait_event &&
      library.event_set(&events) == nvml::kSuccess)
    for (const Card& card : cards)
      if (card.handle) library.register_events(card.handle, nvml::kEventXidCritical | nvml::kEventDoubleBitEcc, events);
  for (; *count < max && !pending_events.empty(); pending_events.erase(pending_events.begin()))
    out[(*count)++] = pending_events.front();
  nvml::EventData data{};
  while (events && *count < max && library.wait_event(events, &data, 0) == nvml::kSuccess) {
    AccelEvent& event = out[(*count)++];
    event = {};
    event.structSize = sizeof event;
    event.kind = data.type == nvml::kEventXidCritical ? ACCEL_EVENT_XID : ACCEL_EVENT_ECC;
    event.code = data.data;
    put(event.deviceUUID, text_from<nvml::kUuidBufferV2>(library.uuid, data.device));
  }
  return ACCEL_SUCCESS;
}

AccelResult device_files(const char* uuid, MountPath* out, std::size_t max, std::size_t* count) {
  const std::lock_guard lock(mutex);
  *count = 0;
  const Card* card = card_of(uuid);
  if (!card) return ACCEL_ERROR_NOT_FOUND;
  for (const std::string& file : files_of(library, *card)) {
    if (*count == max) break;
    MountPath& path = out[(*count)++];
    path = {};
    put(path.hostPath, file);
    put(path.guestPath, file);
  }
  return ACCEL_SUCCESS;
}

// A card that is cut up is not among `cards`: it takes no work itself.
nvml::Device whole_card(const char* uuid) {
  unsigned count = 0;
  if (library.count(&count) != nvml::kSuccess) return nullptr;
  for (unsigned i = 0; i < count; ++i) {
    nvml::Device handle = nullptr;
    if (library.handle_by_index(i, &handle) == nvml::kSuccess &&
        text_from<nvml::kUuidBufferV2>(library.uuid, handle) == uuid)
      return handle;
  }
  return nullptr;
}

AccelResult assign_partition(const char* profile, const char* uuid, PartitionResult* out) {
  const std::lock_guard lock(mutex);
  if (!profile || !uuid || !out) return ACCEL_ERROR_INVALID_PARAM;
  *out = {};
  const nvml::Device card = whole_card(uuid);
  if (!card) return ACCEL_ERROR_NOT_FOUND;
  std::string part;
  if (const int code = make_partition(library, card, profile, part); code != nvml::kSuccess) return result_of(code);
  list_cards(library, cards);
  put(out->deviceUUID, part);
  out->type = PARTITION_TYPE_DEVICE_NODE;
  put(out->envVars[0], "NVIDIA_VISIBLE_DEVICES=" + part);
  put(out->envVars[1], "CUDA_VISIBLE_DEVICES=" + part);
  std::size_t count = 0;
  const Card* fresh = card_of(part.c_str());
  for (const std::string& file : fresh ? files_of(library, *fresh) : std::vector<std::string>())
    if (count < MAX_PARTITION_DEVICE_NODES) put(out->deviceNodes[count++], file + "=" + file);
  return ACCEL_SUCCESS;
}

AccelResult remove_partition(const char*, const char* uuid) {
  const std::lock_guard lock(mutex);
  if (!uuid) return ACCEL_ERROR_INVALID_PARAM;
  const Card* part = card_of(uuid);
  if (!part) return ACCEL_ERROR_NOT_FOUND;
  if (!part->mig) return ACCEL_ERROR_INVALID_PARAM;
  const int code = destroy_partition(library, part->whole, part->gpu_instance, part->compute_instance);
  list_cards(library, cards);
  return result_of(code);
}

AccelResult no_memory_limit(const char*, std::uint64_t) { return ACCEL_ERROR_NOT_SUPPORTED; }
AccelResult no_compute_limit(const char*, std::uint32_t) { return ACCEL_ERROR_NOT_SUPPORTED; }
AccelResult no_snapshot(SnapshotContext*) { return ACCEL_ERROR_NOT_SUPPORTED; }
AccelResult no_mounts(MountPath*, std::size_t, std::size_t* count) {
  *count = 0;
  return ACCEL_ERROR_NOT_SUPPORTED;
}

const AccelExtension kExtension = {sizeof(AccelExtension), ACCEL_EXTENSION_VERSION, poll_events, device_files};

}  // namespace

Provider nvidia_provider() {
  Provider provider;
  provider.name = "NVIDIA (NVML)";
  provider.init = init;
  provider.shutdown = shutdown;
  provider.device_count = device_count;
  provider.all_devices = all_devices;
  provider.topology = topology;
  provider.assign_partition = assign_partition;
  provider.remove_partition = remove_partition;
  provider.set_memory_hard_limit = no_memory_limit;
  provider.set_compute_hard_limit = no_compute_limit;
  provider.snapshot = no_snapshot;
  provider.resume = no_snapshot;
  provider.process_information = process_information;
  provider.device_metrics = device_metrics;
  provider.mount_libraries = no_mounts;
  provider.extension = &kExtension;
  provider.trouble = [] { return trouble.c_str(); };
  return provider;
}

}  // namespace tensor_fusion::device
