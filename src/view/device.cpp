#include "view/device.h"

#include <fmt/format.h>

#include "base/quantity.h"
#include "base/text.h"
#include "view/slice.h"

namespace tensor_fusion::view {
namespace {

using base::Json;

constexpr std::string_view kLost = "lost";  // what begins so answers nothing any more

std::optional<double> number(const Json& json) {
  if (!json.is_number() || json.as_double() < 0) return std::nullopt;
  return json.as_double();
}

std::string text_of(std::optional<double> value, std::string_view unit) {
  return value ? fmt::format("{:.0f}{}", *value, unit) : "-";
}

Json json_of(std::optional<double> value) { return value ? Json(*value) : Json(); }

}  // namespace

std::vector<Device> devices_from(const Json& reply) {
  std::vector<Device> devices;
  for (const Json& item : reply["devices"].items()) {
    Device device;
    device.uuid = item["uuid"].as_string();
    device.index = static_cast<int>(item["index"].as_int());
    device.model = item["model"].as_string();
    device.vendor = item["vendor"].as_string();
    device.node = item["node"].as_string();
    device.numa = static_cast<int>(item["numa"].as_int(-1));
    device.memory_bytes = item["memory_bytes"].as_uint();
    device.memory_used_bytes = item["memory_used_bytes"].as_uint();
    device.memory_reserved_bytes = item["memory_reserved_bytes"].as_uint();
    device.tflops = item["tflops"].as_double();
    device.utilization_percent = number(item["utilization_percent"]);
    device.temperature_celsius = number(item["temperature_celsius"]);
    device.power_watts = number(item["power_watts"]);
    device.healthy = item["healthy"].as_bool(true);
    device.health = item["health"].as_string();
    device.also_shared_by = item["also_shared_by"].as_string();
    device.request_share_total = static_cast<std::uint32_t>(item["request_share_total"].as_uint());
    device.limit_share_total = static_cast<std::uint32_t>(item["limit_share_total"].as_uint());
    for (const Json& name : item["tenants"].items()) device.slices.push_back(name.as_string());
    devices.push_back(std::move(device));
  }
  return devices;
}

Json to_json(const std::vector<Device>& devices) {
  Json rows = Json::array();
  for (const Device& device : devices) {
    Json slices = Json::array();
    for (const std::string& name : device.slices) slices.push(name);
    rows.push(Json::object({{"index", device.index},
                            {"uuid", device.uuid},
                            {"model", device.model},
                            {"vendor", device.vendor},
                            {"node", device.node},
                            {"numa", device.numa},
                            {"memory_bytes", device.memory_bytes},
                            {"memory_used_bytes", device.memory_used_bytes},
                            {"memory_reserved_bytes", device.memory_reserved_bytes},
                            {"tflops", device.tflops},
                            {"utilization_percent", json_of(device.utilization_percent)},
                            {"temperature_celsius", json_of(device.temperature_celsius)},
                            {"power_watts", json_of(device.power_watts)},
                            {"healthy", device.healthy},
                            {"health", device.health},
                            {"also_shared_by", device.also_shared_by},
                            {"compute_requested_percent", device.request_share_total / 100.0},
                            {"compute_limits_percent", device.limit_share_total / 100.0},
                            {"slices", slices}}));
  }
  return Json::object({{"devices", rows}});
}

std::string to_table(const std::vector<Device>& devices, const Style& style) {
  if (devices.empty()) return "no GPU here; `tensor-fusion doctor` says why\n";
  Table table({{"GPU", Align::kRight},
               {"MODEL"},
               {"MEMORY", Align::kRight},
               {"RESERVED", Align::kRight},
               {"REQUESTED", Align::kRight},
               {"LIMITS", Align::kRight},
               {"BUSY", Align::kRight},
               {"TEMP", Align::kRight, 2},
               {"POWER", Align::kRight, 3},
               {"HEALTH"},
               {"UUID", Align::kLeft, 4},
               {"SLICES"}});
  std::string below;  // all of what a word in the table stands for
  for (const Device& device : devices) {
    std::string health = device.healthy ? "ok" : (device.health.empty() ? "lost" : device.health);
    const bool lost = !device.healthy && health.starts_with(kLost);
    if (lost && health.size() > kLost.size()) {
      below += fmt::format("GPU {} is {}; nothing new is placed there\n", device.index, base::printable(health));
      health = kLost;
    }
    if (!device.also_shared_by.empty()) health += ", also given out by " + device.also_shared_by;
    const bool good = device.healthy && device.also_shared_by.empty();
    table.add({{std::to_string(device.index)},
               {device.model},
               {memory_text(device.memory_used_bytes, device.memory_bytes)},
               {base::to_text(base::Bytes{device.memory_reserved_bytes})},
               {share_text(device.request_share_total)},
               {share_text(device.limit_share_total)},
               {lost ? "-" : text_of(device.utilization_percent, "%")},
               {lost ? "-" : text_of(device.temperature_celsius, "C")},
               {lost ? "-" : text_of(device.power_watts, "W")},
               {health, good ? Tone::kGood : Tone::kBad},
               {device.uuid},
               {device.slices.empty() ? "-" : base::join(device.slices, ",")}});
  }
  return table.render(style) + below;
}

}  // namespace tensor_fusion::view
