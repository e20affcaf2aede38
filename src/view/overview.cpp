#include "view/overview.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/quantity.h"
#include "base/text.h"

namespace tensor_fusion::view {
namespace {

constexpr std::size_t kBarWidth = 20;
constexpr std::size_t kLeastBarWidth = 5;
constexpr std::size_t kLongestModel = 24;

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

std::string trouble_of(const Device& device) {
  std::string trouble = device.healthy ? "" : device.health.empty() ? "LOST" : base::printable(device.health);
  if (device.also_shared_by.empty()) return trouble;
  return trouble + (trouble.empty() ? "" : ", ") + "also given out by " + base::printable(device.also_shared_by);
}

// Behind the line where it fits, else below it: it is what has to be read.
std::string with_trouble(std::string line, std::string_view trouble, std::size_t width) {
  constexpr std::string_view kIndent = "        ";
  if (trouble.empty()) return line + "\n";
  if (width == 0 || columns_of(line) + 2 + columns_of(trouble) <= width) return fmt::format("{}  {}\n", line, trouble);
  line += "\n";
  for (std::size_t room = std::max(width, 2 * kIndent.size()) - kIndent.size(); !trouble.empty();) {
    std::size_t part = trouble.size() <= room ? trouble.size() : trouble.rfind(' ', room);
    if (part == std::string_view::npos || part == 0) part = std::min(room, trouble.size());
    line += fmt::format("{}{}\n", kIndent, trouble.substr(0, part));
    trouble.remove_prefix(std::min(trouble.find_first_not_of(' ', part), trouble.size()));
  }
  return line;
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

std::string device_lines(const std::vector<Device>& devices, const SliceList& slices, std::size_t width) {
  struct Line {
    std::string index, model, busy, memory, health;
    double busy_part = 0, memory_part = 0;
  };
  std::vector<Line> lines;
  std::size_t longest_memory = 0;
  std::size_t longest_model = 0;
  for (const Device& device : devices) {
    std::uint32_t used = 0;
    for (const Slice& slice : slices.slices) {
      for (const SliceDevice& part : slice.devices) used += part.uuid == device.uuid ? part.used_share : 0;
    }
    const double busy = device.utilization_percent.value_or(used / 100.0);
    lines.push_back({.index = fmt::format("GPU {:<2}", device.index),
                     .model = base::printable(device.model).substr(0, kLongestModel),
                     .busy = fmt::format("{:>3.0f}%", busy),
                     .memory = memory_text(device.memory_used_bytes, device.memory_bytes),
                     .health = trouble_of(device),
                     .busy_part = busy / 100,
                     .memory_part = device.memory_bytes == 0 ? 0
                                                             : static_cast<double>(device.memory_used_bytes) /
                                                                   static_cast<double>(device.memory_bytes)});
    longest_memory = std::max(longest_memory, lines.back().memory.size());
    longest_model = std::max(longest_model, lines.back().model.size());
  }
  const std::size_t without_bars = std::string_view("GPU 00    time [] 100%  memory [] ").size() + longest_memory;
  const auto bar_width = [&](std::size_t model) {
    if (width == 0) return kBarWidth;
    const std::size_t taken = without_bars + model;
    return width > taken ? std::min((width - taken) / 2, kBarWidth) : 0;
  };
  if (bar_width(longest_model) < kLeastBarWidth) longest_model = 0;
  const std::size_t bars = bar_width(longest_model);
  std::string out;
  for (const Line& line : lines) {
    const std::string model = longest_model == 0 ? "" : fmt::format(" {:<{}} ", line.model, longest_model);
    if (bars < kLeastBarWidth) {
      out += with_trouble(fmt::format("{} time {}  memory {}", line.index, line.busy, line.memory), line.health, width);
    } else {
      out += with_trouble(fmt::format("{}{} time [{}] {}  memory [{}] {}", line.index, model, bar(line.busy_part, bars),
                                      line.busy, bar(line.memory_part, bars), line.memory),
                          line.health, width);
    }
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
  return device_lines(overview.devices, overview.slices, style.width) + "\n" +
         to_table(overview.slices, overview.time_ms, style);
}

}  // namespace tensor_fusion::view
