#include "node/hypervisor/device_table.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/id.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::string_view kLostWord = "lost:";  // begins each of these, and what the provider says of a loss
constexpr const char* kLost = "lost: the driver no longer lists it";
constexpr const char* kOffTheBus = "lost: the device has fallen off the bus and answers no more";

template <std::size_t N>
std::string text(const char (&field)[N]) {
  return std::string(field, ::strnlen(field, N));
}

// What the provider says of a card that is lost: "" of one that is not.
std::string lost_word(const ExtendedDeviceInfo& info) {
  for (std::size_t i = 0; i < info.props.count && i < MAX_DEVICE_PROPERTIES; ++i)
    if (text(info.props.properties[i].key) == "lost") return text(info.props.properties[i].value);
  return "";
}

}  // namespace

// Without a name on one of the two sides, the index says who is who.
Device* DeviceTable::counterpart(const ExtendedDeviceInfo& info) {
  if (Device* device = find(text(info.basic.uuid))) return device;
  const bool nameless = lost_word(info) == "unnamed";
  const auto found = std::ranges::find_if(devices_, [&](const Device& device) {
    return device.index == info.basic.index && (nameless || device.nameless);
  });
  return found == devices_.end() ? nullptr : &*found;
}

std::vector<DeviceChange> DeviceTable::update(std::span<const ExtendedDeviceInfo> listed) {
  std::vector<DeviceChange> changes;
  std::vector<bool> seen(devices_.size(), false);
  for (const ExtendedDeviceInfo& info : listed) {
    const std::string native = text(info.basic.uuid);
    if (native.empty()) continue;
    const std::string lost = lost_word(info);
    Device* device = counterpart(info);
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
    if (!lost.empty() && device->trouble.empty()) {
      device->trouble = kOffTheBus;
      changes.push_back({device->uuid, kOffTheBus});
    }
    if (lost == "unnamed" && !device->native_uuid.empty() && !device->nameless) continue;  // all else is known better
    const bool named = device->nameless && lost != "unnamed";
    device->nameless = lost == "unnamed";
    device->uuid = base::canonical_uuid(native);
    if (lost.empty() && (device->trouble.starts_with(kLostWord) || named)) {
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
