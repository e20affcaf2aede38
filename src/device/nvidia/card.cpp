#include "device/nvidia/card.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "device/nvidia/model.h"

namespace tensor_fusion::device::nvidia {
namespace {

std::string directory(const Nvml& library) {
  if (const char* chosen = std::getenv("TENSOR_FUSION_DEVICE_DIRECTORY"); chosen && *chosen) return chosen;
  const char* given = library.device_directory ? library.device_directory() : nullptr;
  return given && *given ? given : "/dev";
}

bool is_file(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0;
}

std::string node_of(const Nvml& library, const Card& card) {
  const std::string whole = directory(library) + "/nvidia" + std::to_string(card.minor);
  if (!card.mig) return whole;
  const std::string part =
      whole + "-mig-" + std::to_string(card.gpu_instance) + "-" + std::to_string(card.compute_instance);
  return is_file(part) ? part : whole;
}

// The driver names the minor number of the file that opens an instance in its proc tree.
std::string capability_file(const Card& card, const std::string& below) {
  std::ifstream file("/proc/driver/nvidia/capabilities/gpu" + std::to_string(card.minor) + "/mig/gi" +
                     std::to_string(card.gpu_instance) + below + "/access");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("DeviceFileMinor: ")) return "/dev/nvidia-caps/nvidia-cap" + line.substr(17);
  return "";
}

void set_property(DeviceProperties& properties, const char* key, const std::string& value) {
  if (value.empty() || properties.count >= MAX_DEVICE_PROPERTIES) return;
  put(properties.properties[properties.count].key, key);
  put(properties.properties[properties.count].value, value);
  ++properties.count;
}

std::uint64_t memory_of(const Nvml& library, nvml::Device handle) {
  nvml::Memory memory{};
  return library.memory(handle, &memory) == nvml::kSuccess ? memory.total : 0;
}

// MIG devices stand for their card, which itself takes no work while it is cut up.
void add_cards(const Nvml& library, nvml::Device handle, unsigned place, std::vector<Card>& cards) {
  Card card;
  card.place = place;
  card.handle = card.whole = handle;
  card.uuid = text_from<nvml::kUuidBufferV2>(library.uuid, handle);
  card.model = text_from<nvml::kNameBufferV2>(library.name, handle);
  if (card.uuid.empty()) return;
  if (library.minor_number) library.minor_number(handle, &card.minor);
  unsigned current = 0, next = 0, most = 0;
  const bool cut = library.mig_mode && library.mig_by_index && library.max_mig &&
                   library.mig_mode(handle, &current, &next) == nvml::kSuccess && current == 1 &&
                   library.max_mig(handle, &most) == nvml::kSuccess;
  if (!cut) {
    card.memory_bytes = memory_of(library, handle);
    cards.push_back(std::move(card));
    return;
  }
  for (unsigned i = 0; i < most; ++i) {
    Card part = card;
    if (library.mig_by_index(handle, i, &part.handle) != nvml::kSuccess) continue;
    part.mig = true;
    part.memory_bytes = memory_of(library, part.handle);
    part.uuid = text_from<nvml::kUuidBufferV2>(library.uuid, part.handle);
    part.model = text_from<nvml::kNameBufferV2>(library.name, part.handle);
    if (library.gpu_instance) library.gpu_instance(part.handle, &part.gpu_instance);
    if (library.compute_instance) library.compute_instance(part.handle, &part.compute_instance);
    if (!part.uuid.empty()) cards.push_back(std::move(part));
  }
}

// What stood in this place before, or one without a name: NVML tells nothing of a card that is lost.
void add_lost(unsigned place, const std::vector<Card>& before, std::vector<Card>& cards) {
  const std::size_t first = cards.size();
  std::ranges::copy_if(before, std::back_inserter(cards), [&](const Card& card) { return card.place == place; });
  if (cards.size() == first) {
    Card card;
    card.place = place;
    card.uuid = "GPU-lost-" + std::to_string(place);
    card.model = "unknown";
    cards.push_back(std::move(card));
  }
  for (std::size_t i = first; i < cards.size(); ++i) cards[i].lost = true;
}

}  // namespace

int list_cards(const Nvml& library, std::vector<Card>& cards) {
  unsigned count = 0;
  if (const int code = library.count(&count); code != nvml::kSuccess) return code;
  const std::vector<Card> before = std::exchange(cards, {});
  for (unsigned i = 0; i < count && i < MAX_TOPOLOGY_DEVICES; ++i) {
    nvml::Device handle = nullptr;
    const int code = library.handle_by_index(i, &handle);
    if (code == nvml::kSuccess) add_cards(library, handle, i, cards);
    if (code == nvml::kGpuIsLost) add_lost(i, before, cards);
  }
  // One that was lost while it was asked is what it was.
  for (Card& card : cards) {
    const auto known = std::ranges::find(before, card.uuid, &Card::uuid);
    if (card.memory_bytes == 0 && known != before.end()) card.memory_bytes = known->memory_bytes;
  }
  if (cards.size() > MAX_TOPOLOGY_DEVICES) cards.resize(MAX_TOPOLOGY_DEVICES);
  return nvml::kSuccess;
}

int numa_of(const Nvml& library, nvml::Device handle) {
  unsigned known = 0;
  if (library.numa && library.numa(handle, &known) == nvml::kSuccess) return static_cast<int>(known);
  nvml::PciInfo pci{};
  if (!library.pci || library.pci(handle, &pci) != nvml::kSuccess) return -1;
  char path[96];
  std::snprintf(path, sizeof path, "/sys/bus/pci/devices/%04x:%02x:%02x.0/numa_node", pci.domain, pci.bus, pci.device);
  std::ifstream file(path);
  int node = -1;
  file >> node;
  return node;
}

void describe(const Nvml& library, const Card& card, std::size_t index, ExtendedDeviceInfo& info) {
  info = {};
  DeviceBasicInfo& basic = info.basic;
  put(basic.uuid, card.uuid);
  put(basic.vendor, "NVIDIA");
  put(basic.model, card.model);
  basic.index = static_cast<std::int32_t>(index);
  basic.numaNode = -1;
  if (card.lost) set_property(info.props, "lost", card.handle ? "true" : "unnamed");
  if (!card.handle) return;
  char version[80] = {};
  if (library.driver_version && library.driver_version(version, sizeof version) == nvml::kSuccess)
    put(basic.driverVersion, version);
  put(basic.firmwareVersion, text_from<64>(library.vbios, card.handle));
  put(basic.deviceNode, node_of(library, card));
  basic.numaNode = numa_of(library, card.handle);
  basic.totalMemoryBytes = card.memory_bytes;
  int major = 0, minor = 0;
  unsigned cores = 0, clock_mhz = 0;
  if (library.capability) library.capability(card.handle, &major, &minor);
  if (library.cores) library.cores(card.handle, &cores);
  if (library.max_clock) library.max_clock(card.handle, nvml::kClockSm, &clock_mhz);
  basic.totalComputeUnits = cores / cores_per_multiprocessor(major, minor);
  basic.maxTflops = tflops_of(card.model);
  if (basic.maxTflops <= 0)
    basic.maxTflops = 2.0 * cores * clock_mhz / 1e6;  // single precision: two operations a cycle
  nvml::Attributes attributes{};
  if (card.mig && library.attributes && library.attributes(card.handle, &attributes) == nvml::kSuccess &&
      attributes.multiprocessors > 0) {
    if (basic.totalComputeUnits > 0)
      basic.maxTflops *=
          std::min(1.0, static_cast<double>(attributes.multiprocessors) / static_cast<double>(basic.totalComputeUnits));
    basic.totalComputeUnits = attributes.multiprocessors;
  }
  if (library.pcie_generation) library.pcie_generation(card.handle, &basic.pcieGen);
  if (library.pcie_width) library.pcie_width(card.handle, &basic.pcieWidth);
  set_property(info.props, "computeCapability", std::to_string(major) + "." + std::to_string(minor));
  if (card.mig) set_property(info.props, "mig", "true");
  info.capabilities.supportsSoftIsolation = true;
  info.capabilities.supportsMetrics = true;
  info.capabilities.maxWorkersPerDevice = 64;
}

std::vector<std::string> files_of(const Nvml& library, const Card& card) {
  if (!card.handle) return {};
  const std::string base = directory(library);
  std::vector<std::string> files = {node_of(library, card), base + "/nvidiactl", base + "/nvidia-uvm",
                                    base + "/nvidia-uvm-tools"};
  if (card.mig) {
    files.push_back(base + "/nvidia" + std::to_string(card.minor));
    files.push_back(capability_file(card, ""));
    files.push_back(capability_file(card, "/ci" + std::to_string(card.compute_instance)));
  }
  std::erase_if(files, [](const std::string& file) { return file.empty() || !is_file(file); });
  return files;
}

}  // namespace tensor_fusion::device::nvidia
