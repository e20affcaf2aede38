#pragma once
// What happened, newest last: one line an event. Read from the hypervisor's `events` reply. Pure: the time of day is
// UTC, because no time zone is asked here.
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "view/table.h"

namespace tensor_fusion::view {

struct Event {
  std::uint64_t sequence = 0;
  std::uint64_t time_ms = 0;  // since 1970
  std::string kind;
  std::string slice;
  std::string device;
  std::string message;
  std::uint64_t count = 1;          // how often it has happened; time_ms is the last time
  std::uint64_t first_time_ms = 0;  // the first, where it happened more than once
};

std::vector<Event> events_from(const base::Json& reply);
base::Json to_json(const std::vector<Event>& events);
std::string to_table(const std::vector<Event>& events, const Style& style);

std::string time_text(std::uint64_t ms);  // "2026-03-01 12:00:07" UTC

}  // namespace tensor_fusion::view
