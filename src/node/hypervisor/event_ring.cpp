#include "node/hypervisor/event_ring.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <map>

#include "base/text.h"
#include "system/clock.h"
#include "system/fd.h"
#include "system/file.h"

namespace tensor_fusion::node::hypervisor {
namespace {

std::string older(const std::string& file) { return file + ".old"; }

}  // namespace

base::Json to_json(const Event& event) {
  base::Json json = base::Json::object({{"seq", event.sequence}, {"time_ms", event.time_ms}, {"kind", event.kind}});
  if (!event.tenant.empty()) json.set("tenant", event.tenant);
  if (!event.device.empty()) json.set("device", event.device);
  json.set("message", event.message);
  if (event.count > 1) json.set("count", event.count).set("first_time_ms", event.first_time_ms);
  if (event.user != Event::kNobody) json.set("user", event.user);
  return json;
}

void EventRing::add(Event event) {
  event.time_ms = event.first_time_ms = system::wall_ms();
  event.sequence = next_++;
  if (event.user == Event::kNobody && user_of_ && !event.tenant.empty()) event.user = user_of_(event.tenant);
  const Event& entered = enter(std::move(event));
  // What repeats without end is written more and more seldom, so that it cannot push the rest out of the file either.
  if (!file_.empty() && std::has_single_bit(entered.count)) write(entered);
  if (listener_) listener_(Event(entered));
}

Event& EventRing::enter(Event event) {
  constexpr std::size_t kLookedAt = 32;
  const auto end = events_.size() > kLookedAt ? events_.rbegin() + kLookedAt : events_.rend();
  const auto same = std::find_if(events_.rbegin(), end, [&](const Event& old) {
    return old.kind == event.kind && old.tenant == event.tenant && old.user == event.user &&
           old.device == event.device && old.message == event.message;
  });
  const bool repeated = same != end;
  if (repeated) {
    event.count = std::max(event.count, same->count + 1);
    event.first_time_ms = same->first_time_ms;
    events_.erase(std::next(same).base());
  }
  events_.push_back(std::move(event));
  if (events_.size() > kKept) make_room();
  return events_.back();
}

void EventRing::make_room() {
  std::map<std::int64_t, std::size_t> of_users;
  for (const Event& event : events_) ++of_users[event.user];
  const auto most = std::ranges::max_element(of_users, {}, [](const auto& entry) { return entry.second; });
  events_.erase(std::ranges::find(events_, most->first, &Event::user));
}

void EventRing::keep_in(const std::string& folder) {
  file_ = folder + "/events.jsonl";
  for (const std::string& file : {older(file_), file_}) {
    const auto text = system::read_file(file, 2 * kLargestFile);
    if (!text) continue;
    for (const std::string_view line : base::split(*text, '\n')) {
      const auto json = base::Json::parse(line);
      if (!json || !(*json)["kind"].is_string()) continue;  // cut short, where the disk was full
      Event event{.sequence = next_++,
                  .time_ms = (*json)["time_ms"].as_uint(),
                  .kind = (*json)["kind"].as_string(),
                  .tenant = (*json)["tenant"].as_string(),
                  .device = (*json)["device"].as_string(),
                  .message = (*json)["message"].as_string(),
                  .count = std::max<std::uint64_t>(1, (*json)["count"].as_uint(1)),
                  .first_time_ms = 0,
                  .user = (*json)["user"].as_int(Event::kNobody)};
      event.first_time_ms = (*json)["first_time_ms"].as_uint(event.time_ms);
      enter(std::move(event));
    }
  }
}

void EventRing::write(const Event& event) {
  const std::string line = base::valid_utf8(to_json(event).dump()) + "\n";
  struct stat status{};
  if (::stat(file_.c_str(), &status) == 0 && static_cast<std::size_t>(status.st_size) + line.size() > kLargestFile) {
    // Those that are remembered, not the last ones written: these may all be of one user.
    std::string all;
    for (auto at = events_.rbegin(); at != events_.rend() && all.size() < kLargestFile; ++at)
      all.insert(0, base::valid_utf8(to_json(*at).dump()) + "\n");
    if (system::replace_file(older(file_), all)) ::unlink(file_.c_str());
    return;  // it is among them
  }
  const system::Fd file(::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file && ::write(file.get(), line.data(), line.size()) < 0) return;
}

std::vector<Event> EventRing::after(std::uint64_t sequence) const {
  std::vector<Event> result;
  for (const Event& event : events_)
    if (event.sequence > sequence) result.push_back(event);
  return result;
}

base::Json kept_events(const std::string& folder) {
  EventRing ring;
  ring.keep_in(folder);
  base::Json list = base::Json::array();
  for (const Event& event : ring.after(0)) list.push(to_json(event));
  return base::Json::object({{"events", list}});
}

}  // namespace tensor_fusion::node::hypervisor
