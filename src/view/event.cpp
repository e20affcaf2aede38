#include "view/event.h"

#include <fmt/format.h>

#include <chrono>

namespace tensor_fusion::view {

using base::Json;

std::string time_text(std::uint64_t ms) {
  using namespace std::chrono;
  const sys_seconds moment{seconds{static_cast<std::int64_t>(ms / 1000)}};
  const sys_days day = floor<days>(moment);
  const year_month_day date{day};
  const hh_mm_ss time{moment - day};
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), time.hours().count(),
                     time.minutes().count(), time.seconds().count());
}

std::vector<Event> events_from(const Json& reply) {
  std::vector<Event> events;
  for (const Json& item : reply["events"].items()) {
    events.push_back({.sequence = item["seq"].as_uint(),
                      .time_ms = item["time_ms"].as_uint(),
                      .kind = item["kind"].as_string(),
                      .slice = item["tenant"].as_string(),
                      .device = item["device"].as_string(),
                      .message = item["message"].as_string(),
                      .count = item["count"].as_uint(1),
                      .first_time_ms = item["first_time_ms"].as_uint(item["time_ms"].as_uint())});
  }
  return events;
}

Json to_json(const std::vector<Event>& events) {
  Json rows = Json::array();
  for (const Event& event : events) {
    rows.push(Json::object({{"sequence", event.sequence},
                            {"time_ms", event.time_ms},
                            {"kind", event.kind},
                            {"slice", event.slice},
                            {"device", event.device},
                            {"message", event.message},
                            {"count", event.count},
                            {"first_time_ms", event.first_time_ms}}));
  }
  return Json::object({{"events", rows}});
}

std::string to_table(const std::vector<Event>& events, const Style& style) {
  if (events.empty()) return "no events yet\n";
  Table table({{"TIME (UTC)"}, {"KIND"}, {"SLICE"}, {"MESSAGE"}});
  for (const Event& event : events) {
    table.add({{time_text(event.time_ms), Tone::kFaint},
               {event.kind},
               {event.slice.empty() ? "-" : event.slice},
               {event.count > 1
                    ? fmt::format("{} ({} times since {})", event.message, event.count, time_text(event.first_time_ms))
                    : event.message}});
  }
  return table.render(style);
}

}  // namespace tensor_fusion::view
