#include "view/overview.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quantity.h"

namespace tensor_fusion::view {
namespace {

constexpr std::size_t kBarWidth = 20;

std::uint32_t used_share(const Slice& slice) {
  std::uint32_t total = 0;
  for (const SliceDevice& device : slice.devices) total += device.used_share;
  return total;
}

std::uint64_t used_memory(const Slice& slice) {
  std::uint64_t total = 0;
  for (const SliceDevice& device : slice.devices) total += device.memory_used_bytes;
  return total;
}

}  // namespace

void sort_slices(SliceList& list, Order order) {
  std::ranges::stable_sort(list.slices, [order](const Slice& a, const Slice& b) {
    switch (order) {
      case Order::kUsed:
        return used_share(a) > used_share(b);
      case Order::kMemory:
        return used_memory(a) > used_memory(b);
      case Order::kAge:
        return a.created_ms < b.created_ms;
      case Order::kName:
        break;
    }
    return a.name < b.name;
  });
}

std::string bar(double part, std::size_t width) {
  const double held = std::isnan(part) ? 0 : std::clamp(part, 0.0, 1.0);
  const auto full = static_cast<std::size_t>(std::lround(held * static_cast<double>(width)));
  return std::string(full, '#') + std::string(width - full, '.');
}

std::string device_lines(const std::vector<Device>& devices, const SliceList& slices) {
  std::string out;
  for (const Device& device : devices) {
    std::uint32_t used = 0;
    for (const Slice& slice : slices.slices) {
      for (const SliceDevice& part : slice.devices) used += part.uuid == device.uuid ? part.used_share : 0;
    }
    const double busy = device.utilization_percent.value_or(used / 100.0);
    const double memory = device.memory_bytes == 0 ? 0
                                                   : static_cast<double>(device.memory_used_bytes) /
                                                         static_cast<double>(device.memory_bytes);
    out += fmt::format(
        "GPU {:<2} {:<24.24} time [{}] {:>3.0f}%  memory [{}] {}{}\n", device.index, printable(device.model),
        bar(busy / 100, kBarWidth), busy, bar(memory, kBarWidth),
        memory_text(device.memory_used_bytes, device.memory_bytes),
        device.healthy ? "" : fmt::format("  {}", device.health.empty() ? "LOST" : printable(device.health)));
  }
  return out;
}

base::Json to_json(const Overview& overview) {
  base::Json json = base::Json::object({{"time_ms", overview.time_ms}});
  json.set("devices", to_json(overview.devices)["devices"]);
  const base::Json slices = to_json(overview.slices);
  for (const auto& [key, value] : slices.members()) json.set(key, value);
  return json;
}

std::string to_text(const Overview& overview, const Style& style) {
  return device_lines(overview.devices, overview.slices) + "\n" + to_table(overview.slices, overview.time_ms, style);
}

}  // namespace tensor_fusion::view
