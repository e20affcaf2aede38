#include "node/hypervisor/event_ring.h"

#include <algorithm>

#include "system/clock.h"

namespace tensor_fusion::node::hypervisor {

base::Json to_json(const Event& event) {
  base::Json json = base::Json::object({{"seq", event.sequence}, {"time_ms", event.time_ms}, {"kind", event.kind}});
  if (!event.tenant.empty()) json.set("tenant", event.tenant);
  if (!event.device.empty()) json.set("device", event.device);
  json.set("message", event.message);
  if (event.count > 1) json.set("count", event.count);
  return json;
}

void EventRing::add(Event event) {
  constexpr std::size_t kLookedAt = 32;
  event.time_ms = system::wall_ms();
  event.sequence = next_++;
  const auto end = events_.size() > kLookedAt ? events_.rbegin() + kLookedAt : events_.rend();
  const auto same = std::find_if(events_.rbegin(), end, [&](const Event& old) {
    return old.kind == event.kind && old.tenant == event.tenant && old.device == event.device &&
           old.message == event.message;
  });
  const bool repeated = same != end;
  if (repeated) {
    event.count = same->count + 1;
    events_.erase(std::next(same).base());
  }
  events_.push_back(event);
  if (events_.size() > kKept) events_.pop_front();
  if (listener_) listener_(event);
}

std::vector<Event> EventRing::after(std::uint64_t sequence) const {
  std::vector<Event> result;
  for (const Event& event : events_)
    if (event.sequence > sequence) result.push_back(event);
  return result;
}

}  // namespace tensor_fusion::node::hypervisor
