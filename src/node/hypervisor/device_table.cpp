#include "node/hypervisor/device_table.h"

#include <algorithm>
#include <cstring>

#include "base/id.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr const char* kLost = "the driver no longer lists it";

template <std::size_t N>
std::string text(const char (&field)[N]) {
  return std::string(field, ::strnlen(field, N));
}

}  // namespace

std::vector<DeviceChange> DeviceTable::update(std::span<const ExtendedDeviceInfo> listed) {
  std::vector<DeviceChange> changes;
  std::vector<bool> seen(devices_.size(), false);
  for (const ExtendedDeviceInfo& info : listed) {
    const std::string native = text(info.basic.uuid);
    if (native.empty()) continue;
    Device* device = find(native);
    if (!device) {
      Device fresh;
      fresh.uuid = base::canonical_uuid(native);
      fresh.ordinal = static_cast<std::uint32_t>(devices_.size());
      devices_.push_back(std::move(fresh));
      seen.push_back(true);
      device = &devices_.back();
      if (known_) changes.push_back({device->uuid, "a new device"});
    }
    seen[device->ordinal] = true;
    if (device->trouble == kLost) {
      device->trouble.clear();
      changes.push_back({device->uuid, "the device is back"});
    }
    device->native_uuid = native;
    device->index = info.basic.index;
    device->vendor = text(info.basic.vendor);
    device->model = text(info.basic.model);
    device->driver = text(info.basic.driverVersion);
    device->node = text(info.basic.deviceNode);
    device->numa = info.basic.numaNode;
    device->memory_bytes = info.basic.totalMemoryBytes;
    device->tflops = info.basic.maxTflops;
  }
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (seen[i] || !devices_[i].trouble.empty()) continue;
    devices_[i].trouble = kLost;
    changes.push_back({devices_[i].uuid, kLost});
  }
  known_ = true;
  return changes;
}

Device* DeviceTable::find(const std::string& uuid) {
  const std::string canonical = base::canonical_uuid(uuid);
  const auto found =
      std::find_if(devices_.begin(), devices_.end(), [&](const Device& device) { return device.uuid == canonical; });
  return found == devices_.end() ? nullptr : &*found;
}

std::vector<pool::PlaceDevice> DeviceTable::places() const {
  std::vector<pool::PlaceDevice> places;
  for (const Device& device : devices_)
    places.push_back({.uuid = device.uuid,
                      .index = device.index,
                      .model = device.model,
                      .memory_bytes = device.memory_bytes,
                      .outside_bytes = device.outside_bytes,
                      .tflops = device.tflops,
                      .unusable = device.trouble});
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  return places;
}

std::string also_shared_text(const Device& device) {
  return "another hypervisor (" + device.also_shared_by +
         ") gives out the same card, and neither knows what the other has promised; stop one of the two";
}

bool xid_condemns(std::uint64_t xid) {
  // Double-bit ECC, row remapping failure, NVLink, off the bus, uncontained memory error, GSP gone: no program causes
  // these.
  constexpr std::uint64_t kCondemning[] = {48, 62, 64, 74, 79, 95, 119, 120};
  return std::find(std::begin(kCondemning), std::end(kCondemning), xid) != std::end(kCondemning);
}

}  // namespace tensor_fusion::node::hypervisor
