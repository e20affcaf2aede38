// A provider library that does what a text file says, re-read at every call, so that a test can move the world while a
// daemon watches it. The file is named by FAKE_ACCELERATOR; its lines:
//   device UUID MEMORY_BYTES TFLOPS      one card (index in order)
//   process PID UUID BYTES UTILISATION   one process on one card
//   event KIND UUID CODE                 reported once
//   crash FUNCTION | hang FUNCTION | fail FUNCTION | log LEVEL
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "contract/accelerator.h"

namespace {

struct World {
  std::vector<ExtendedDeviceInfo> devices;
  std::vector<ProcessInformation> processes;
  std::vector<AccelEvent> events;
  std::vector<std::string> event_lines;  // what makes each of them one that was reported before
  std::set<std::string> crash, hang, fail;
};
std::set<std::string> reported;
AccelLogCallback log_callback = nullptr;

template <std::size_t N>
void put(char (&field)[N], const std::string& text) {
  std::snprintf(field, N, "%s", text.c_str());
}

World read_world() {
  World world;
  const char* path = std::getenv("FAKE_ACCELERATOR");
  std::ifstream file(path ? path : "/dev/null");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind, name;
    words >> kind >> name;
    if (kind == "device") {
      ExtendedDeviceInfo device{};
      put(device.basic.uuid, name);
      put(device.basic.vendor, "NVIDIA");
      put(device.basic.model, "Fake H100");
      put(device.basic.deviceNode, "/dev/null");
      device.basic.index = static_cast<std::int32_t>(world.devices.size());
      words >> device.basic.totalMemoryBytes >> device.basic.maxTflops;
      device.capabilities.supportsSoftIsolation = true;
      world.devices.push_back(device);
    } else if (kind == "process") {
      ProcessInformation process{};
      std::string uuid;
      put(process.processId, name);
      words >> uuid >> process.memoryUsedBytes >> process.computeUtilizationPercent;
      put(process.deviceUUID, uuid);
      world.processes.push_back(process);
    } else if (kind == "event") {
      AccelEvent event{};
      std::string uuid;
      event.structSize = sizeof event;
      event.kind = static_cast<std::uint32_t>(std::atoi(name.c_str()));
      words >> uuid >> event.code;
      put(event.deviceUUID, uuid);
      world.events.push_back(event);
      world.event_lines.push_back(line);
    } else if (kind == "crash") {
      world.crash.insert(name);
    } else if (kind == "hang") {
      world.hang.insert(name);
    } else if (kind == "fail") {
      world.fail.insert(name);
    } else if (kind == "log" && log_callback) {
      log_callback(name.c_str(), "a message of the library");
    }
  }
  return world;
}

// Misbehaves where the file says so.
AccelResult enter(const World& world, const char* function) {
  if (world.crash.count(function)) ::raise(SIGSEGV);
  while (world.hang.count(function)) ::pause();
  return world.fail.count(function) ? ACCEL_ERROR_OPERATION_FAILED : ACCEL_SUCCESS;
}

template <typename Item>
AccelResult give(const std::vector<Item>& items, Item* out, std::size_t max, std::size_t* count) {
  *count = std::min(max, items.size());
  for (std::size_t i = 0; i < *count; ++i) out[i] = items[i];
  return ACCEL_SUCCESS;
}

AccelResult poll_events(AccelEvent* events, std::size_t max, std::size_t* count) {
  const World world = read_world();
  if (const AccelResult result = enter(world, "pollEvents"); result != ACCEL_SUCCESS) return result;
  std::vector<AccelEvent> fresh;
  for (std::size_t i = 0; i < world.events.size(); ++i)
    if (reported.insert(world.event_lines[i]).second) fresh.push_back(world.events[i]);
  return give(fresh, events, max, count);
}

AccelResult device_files(const char*, MountPath* files, std::size_t max, std::size_t* count) {
  MountPath file{};
  put(file.hostPath, "/dev/null");
  put(file.guestPath, "/dev/null");
  return give(std::vector{file}, files, max, count);
}

const AccelExtension kExtension = {sizeof(AccelExtension), ACCEL_EXTENSION_VERSION, poll_events, device_files};

}  // namespace

extern "C" {
AccelResult AccelInit() { return enter(read_world(), "AccelInit"); }
AccelResult AccelShutdown() { return ACCEL_SUCCESS; }
AccelResult AccelGetDeviceCount(std::size_t* count) {
  *count = read_world().devices.size();
  return ACCEL_SUCCESS;
}
AccelResult AccelGetAllDevices(ExtendedDeviceInfo* devices, std::size_t max, std::size_t* count) {
  const World world = read_world();
  if (const AccelResult result = enter(world, "AccelGetAllDevices"); result != ACCEL_SUCCESS) return result;
  return give(world.devices, devices, max, count);
}
AccelResult AccelGetAllDevicesTopology(ExtendedDeviceTopology* topology) {
  topology->deviceCount = 0;
  return ACCEL_SUCCESS;
}
AccelResult AccelAssignPartition(const char*, const char*, PartitionResult*) { return ACCEL_ERROR_NOT_SUPPORTED; }
AccelResult AccelRemovePartition(const char*, const char*) { return ACCEL_ERROR_NOT_SUPPORTED; }
AccelResult AccelSetMemHardLimit(const char*, std::uint64_t) { return ACCEL_ERROR_NOT_SUPPORTED; }
AccelResult AccelSetComputeUnitHardLimit(const char*, std::uint32_t) { return ACCEL_ERROR_NOT_SUPPORTED; }
AccelResult AccelSnapshot(SnapshotContext*) { return ACCEL_ERROR_NOT_SUPPORTED; }
AccelResult AccelResume(SnapshotContext*) { return ACCEL_ERROR_NOT_SUPPORTED; }
AccelResult AccelGetProcessInformation(ProcessInformation* processes, std::size_t max, std::size_t* count) {
  const World world = read_world();
  if (const AccelResult result = enter(world, "AccelGetProcessInformation"); result != ACCEL_SUCCESS) return result;
  return give(world.processes, processes, max, count);
}
AccelResult AccelGetDeviceMetrics(const char** uuids, std::size_t count, DeviceMetrics* metrics) {
  const World world = read_world();
  if (const AccelResult result = enter(world, "AccelGetDeviceMetrics"); result != ACCEL_SUCCESS) return result;
  for (std::size_t i = 0; i < count; ++i) {
    metrics[i] = DeviceMetrics{};
    put(metrics[i].deviceUUID, uuids[i]);
    for (const ProcessInformation& process : world.processes)
      if (std::strcmp(process.deviceUUID, uuids[i]) == 0) metrics[i].memoryUsedBytes += process.memoryUsedBytes;
  }
  return ACCEL_SUCCESS;
}
AccelResult AccelGetVendorMountLibs(MountPath*, std::size_t, std::size_t* count) {
  *count = 0;
  return ACCEL_ERROR_NOT_SUPPORTED;
}
AccelResult AccelRegisterLogCallback(AccelLogCallback callback) {
  log_callback = callback;
  return ACCEL_SUCCESS;
}
const AccelExtension* AccelGetExtension(std::uint32_t version) {
  return version == ACCEL_EXTENSION_VERSION ? &kExtension : nullptr;
}
}
