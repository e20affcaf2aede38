#pragma once
// The last things that happened here and why: what `events` and `doctor` show. Bounded; the oldest go first, of the
// user of whose slices there are most. The same trouble of one user over and over is one entry with a count. So neither
// a hostile tenant nor one with many short runs can push the others out, nor a slice that takes another's name. Where
// it is told to keep them, they outlive the hypervisor in two files of bounded size. One thread.
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace tensor_fusion::node::hypervisor {

struct Event {
  std::uint64_t sequence = 0;
  std::uint64_t time_ms = 0;
  std::string kind;  // started, ended, limits, tampered, bypass suspected, over limit, unlimited, provider, device,
                     // recovered, hypervisor
  std::string tenant;
  std::string device;
  std::string message;
  std::uint64_t count = 1;
  std::uint64_t first_time_ms = 0;  // of those counted
  std::int64_t user = kNobody;      // whose slice it is about
  static constexpr std::int64_t kNobody = -1;
};
base::Json to_json(const Event& event);

// {"events": […]} of a state directory whose hypervisor has gone.
base::Json kept_events(const std::string& folder);

class EventRing {
 public:
  static constexpr std::size_t kKept = 512;
  static constexpr std::size_t kLargestFile = 512u << 10;
  using Listener = std::function<void(const Event&)>;
  using UserOf = std::function<std::int64_t(const std::string& tenant)>;

  void add(Event event);  // time and sequence are filled in
  // Goes on after what <folder>/events.jsonl and the file before it hold, and adds to it from now on. What cannot be
  // read or written is left out: events are there to be looked at, and nothing depends on them.
  void keep_in(const std::string& folder);
  void listen(Listener listener) { listener_ = std::move(listener); }
  void tell_users_by(UserOf user_of) { user_of_ = std::move(user_of); }
  std::vector<Event> after(std::uint64_t sequence) const;

 private:
  Event& enter(Event event);
  void make_room();
  void write(const Event& event);
  std::string file_;  // empty: not kept

  std::deque<Event> events_;
  std::uint64_t next_ = 1;
  Listener listener_;
  UserOf user_of_;
};

}  // namespace tensor_fusion::node::hypervisor
