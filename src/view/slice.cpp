#include "view/slice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity.h"
#include "base/text.h"
#include "pool/over_limit.h"

namespace tensor_fusion::view {
namespace {

using base::Json;

constexpr std::uint64_t kSecondMs = 1000;
constexpr std::uint64_t kMinuteMs = 60 * kSecondMs;
constexpr std::uint64_t kHourMs = 60 * kMinuteMs;
constexpr std::uint64_t kDayMs = 24 * kHourMs;
constexpr std::uint64_t kNearlyFullPercent = 95;

SliceDevice device_from(const Json& json) {
  return {.uuid = json["uuid"].as_string(),
          .index = static_cast<int>(json["index"].as_int()),
          .memory_limit_bytes = json["memory_limit_bytes"].as_uint(),
          .memory_used_bytes = json["memory_used_bytes"].as_uint(),
          .memory_peak_bytes = json["memory_peak_bytes"].as_uint(),
          .request_share = static_cast<std::uint32_t>(json["request_share"].as_uint()),
          .limit_share = static_cast<std::uint32_t>(json["limit_share"].as_uint()),
          .used_share = static_cast<std::uint32_t>(json["used_share"].as_uint()),
          .held_launches = json["held_launches"].as_uint(),
          .refused = json["refused"].as_uint()};
}

bool limiter_is_live(const SliceProcess& process) { return process.limiter.empty() || process.limiter == "live"; }

bool is_far_above(const SliceDevice& device) {
  return pool::is_far_above(device.memory_used_bytes, device.memory_limit_bytes);
}

Slice slice_from(const Json& json) {
  Slice slice;
  slice.id = json["id"].as_string();
  slice.name = json["name"].as_string();
  slice.command = json["command"].as_string();
  slice.state = json["state"].as_string();
  slice.user = json["user"].is_string() ? json["user"].as_string() : json["user"].dump();
  slice.qos = json["qos"].as_string();
  slice.pid = json["pid"].as_int();
  slice.created_ms = json["created_ms"].as_uint();
  for (const Json& item : json["devices"].items()) slice.devices.push_back(device_from(item));
  for (const Json& item : json["processes"].items()) {
    slice.processes.push_back({.pid = item["pid"].as_int(),
                               .command = item["command"].as_string(),
                               .limiter = item["limiter"].is_string()
                                              ? item["limiter"].as_string()
                                              : (item["limiter"].as_bool(true) ? "live" : "missing"),
                               .memory_bytes = item["memory_bytes"].as_uint()});
  }
  const Json& tampered = json["tampered"];
  if (tampered.as_bool() || !tampered.as_string().empty() || tampered.as_int() != 0)
    slice.alarms.emplace_back("tampered");
  if (!std::ranges::all_of(slice.processes, limiter_is_live)) slice.alarms.emplace_back("unlimited process");
  if (std::ranges::any_of(json["devices"].items(), [](const Json& item) { return item["bypass_suspected"].as_bool(); }))
    slice.alarms.emplace_back("bypass suspected");
  if (std::ranges::any_of(slice.devices, is_far_above)) slice.alarms.emplace_back("over limit");
  return slice;
}

std::string name_in(const std::vector<Slice>& slices, const std::string& id, std::int64_t pid) {
  for (const Slice& slice : slices) {
    if (!id.empty() && (slice.id == id || slice.name == id)) return slice.name;
    if (std::ranges::find(slice.processes, pid, &SliceProcess::pid) != slice.processes.end()) return slice.name;
  }
  return "";
}

// Those without a slice, and those that a slice should hold, are two different troubles.
std::string strangers_table(const std::vector<Stranger>& strangers, bool in_slices, const Style& style) {
  std::vector<Table::Column> columns{{"PID", Align::kRight}, {"MEMORY", Align::kRight}, {"UUID"}};
  if (in_slices) columns.push_back({"SLICE"});
  columns.push_back({"COMMAND"});
  Table table(std::move(columns));
  bool any = false;
  for (const Stranger& stranger : strangers) {
    if (stranger.slice.empty() == in_slices) continue;
    std::vector<Cell> row{{std::to_string(stranger.pid), Tone::kBad},
                          {base::to_text(base::Bytes{stranger.memory_bytes})},
                          {stranger.uuid}};
    if (in_slices) row.push_back({stranger.slice});
    row.push_back({stranger.command});
    table.add(std::move(row));
    any = true;
  }
  if (!any) return "";
  return (in_slices ? "\nThese processes of a slice use a GPU without a limiter, so nothing limits them:\n"
                    : "\nThese processes use a GPU without a slice, so nothing limits them:\n") +
         table.render(style);
}

Cell memory_cell(const SliceDevice& device) {
  const bool nearly_full = device.memory_limit_bytes != 0 &&
                           device.memory_used_bytes / 100 * 100 >= device.memory_limit_bytes / 100 * kNearlyFullPercent;
  return {memory_text(device.memory_used_bytes, device.memory_limit_bytes),
          nearly_full ? Tone::kWarning : Tone::kPlain};
}

// A measurement: hundredths of a percent would be noise.
std::string tenths_text(std::uint32_t basis_points) {
  constexpr std::uint32_t kTenth = 10;
  return share_text((basis_points + kTenth / 2) / kTenth * kTenth);
}

Tone state_tone(const std::string& state) {
  if (state == "running") return Tone::kGood;
  if (state == "waiting" || state == "placed" || state == "starting") return Tone::kWarning;
  return Tone::kFaint;
}

}  // namespace

std::string share_text(std::uint32_t basis_points) {
  if (basis_points == 0) return "0%";
  return base::to_text(base::Percent{basis_points});
}

std::string compute_text(const SliceDevice& device) {
  if (device.request_share == device.limit_share) return share_text(device.limit_share);
  return fmt::format("{}-{}", share_text(device.request_share), share_text(device.limit_share));
}

std::string compute_usage_text(const SliceDevice& device) {
  return fmt::format("{}/{}", tenths_text(device.used_share), compute_text(device));
}

std::string age_text(std::uint64_t ms) {
  if (ms < 2 * kMinuteMs) return fmt::format("{}s", ms / kSecondMs);
  if (ms < 2 * kHourMs) return fmt::format("{}m", ms / kMinuteMs);
  if (ms < 2 * kDayMs) return fmt::format("{}h", ms / kHourMs);
  return fmt::format("{}d", ms / kDayMs);
}

std::string memory_text(std::uint64_t used_bytes, std::uint64_t limit_bytes) {
  const std::string used = base::to_text(base::Bytes{used_bytes});
  if (limit_bytes == 0) return used + "/-";
  return fmt::format("{}/{}", used, base::to_text(base::Bytes{limit_bytes}));
}

SliceList slice_list_from(const Json& reply) {
  SliceList list;
  for (const Json& item : reply["tenants"].items()) list.slices.push_back(slice_from(item));
  for (const Json& item : reply["unlimited"].items()) {
    list.strangers.push_back({.pid = item["pid"].as_int(),
                              .uuid = item["uuid"].as_string(),
                              .command = item["command"].as_string(),
                              .memory_bytes = item["memory_bytes"].as_uint(),
                              .slice = name_in(list.slices, item["tenant"].as_string(), item["pid"].as_int())});
  }
  return list;
}

Json to_json(const SliceList& list) {
  Json slices = Json::array();
  for (const Slice& slice : list.slices) {
    Json devices = Json::array();
    for (const SliceDevice& device : slice.devices) {
      devices.push(Json::object({{"index", device.index},
                                 {"uuid", device.uuid},
                                 {"memory_limit_bytes", device.memory_limit_bytes},
                                 {"memory_used_bytes", device.memory_used_bytes},
                                 {"memory_peak_bytes", device.memory_peak_bytes},
                                 {"compute_request_percent", device.request_share / 100.0},
                                 {"compute_limit_percent", device.limit_share / 100.0},
                                 {"compute_used_percent", device.used_share / 100.0},
                                 {"held_launches", device.held_launches},
                                 {"refused_allocations", device.refused}}));
    }
    Json processes = Json::array();
    for (const SliceProcess& process : slice.processes) {
      processes.push(Json::object({{"pid", process.pid},
                                   {"command", process.command},
                                   {"limited", limiter_is_live(process)},
                                   {"memory_bytes", process.memory_bytes}}));
    }
    Json alarms = Json::array();
    for (const std::string& alarm : slice.alarms) alarms.push(alarm);
    slices.push(Json::object({{"name", slice.name},
                              {"id", slice.id},
                              {"state", slice.state},
                              {"command", slice.command},
                              {"pid", slice.pid},
                              {"user", slice.user},
                              {"qos", slice.qos},
                              {"created_ms", slice.created_ms},
                              {"alarms", alarms},
                              {"devices", devices},
                              {"processes", processes}}));
  }
  Json strangers = Json::array();
  for (const Stranger& stranger : list.strangers) {
    strangers.push(Json::object({{"pid", stranger.pid},
                                 {"uuid", stranger.uuid},
                                 {"command", stranger.command},
                                 {"memory_bytes", stranger.memory_bytes},
                                 {"slice", stranger.slice}}));
  }
  return Json::object({{"slices", slices}, {"unlimited_processes", strangers}});
}

std::string to_table(const SliceList& list, std::uint64_t now_ms, const Style& style) {
  const bool alarmed = std::ranges::any_of(list.slices, [](const Slice& slice) { return !slice.alarms.empty(); });
  Table table({{"NAME"},
               {"STATE", Align::kLeft, 3},
               {"GPU", Align::kRight},
               {"COMPUTE", Align::kRight},
               {"MEMORY", Align::kRight},
               {"PROCS", Align::kRight, 2},
               {"AGE", Align::kRight, 1},
               {"ALARM", Align::kLeft, alarmed ? 0u : 4u},
               {"COMMAND"}});
  for (const Slice& slice : list.slices) {
    const std::string age = age_text(now_ms > slice.created_ms ? now_ms - slice.created_ms : 0);
    const std::string alarm = slice.alarms.empty() ? "-" : base::join(slice.alarms, ", ");
    const Tone alarm_tone = slice.alarms.empty() ? Tone::kFaint : Tone::kBad;
    if (slice.devices.empty()) {
      table.add({{slice.name},
                 {slice.state, state_tone(slice.state)},
                 {"-"},
                 {"-"},
                 {"-"},
                 {"0"},
                 {age},
                 {alarm, alarm_tone},
                 {slice.command}});
    }
    bool first = true;
    for (const SliceDevice& device : slice.devices) {
      table.add({{first ? slice.name : ""},
                 {first ? slice.state : "", state_tone(slice.state)},
                 {std::to_string(device.index)},
                 {compute_usage_text(device)},
                 memory_cell(device),
                 {first ? std::to_string(slice.processes.size()) : ""},
                 {first ? age : ""},
                 {first ? alarm : "", alarm_tone},
                 {first ? slice.command : ""}});
      first = false;
    }
  }
  std::string out = list.slices.empty() ? "no slices; `tensor-fusion run -- PROGRAM` makes one\n" : table.render(style);
  for (const bool in_slices : {false, true}) out += strangers_table(list.strangers, in_slices, style);
  return out;
}

}  // namespace tensor_fusion::view
