#pragma once
// The last things that happened here and why: what `events` and `doctor` show. Bounded; the oldest go first. The same
// trouble over and over is one entry with a count, so that a hostile tenant cannot push the others out. One thread.
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace tensor_fusion::node::hypervisor {

struct Event {
  std::uint64_t sequence = 0;
  std::uint64_t time_ms = 0;
  std::string kind;  // started, ended, limits, tampered, unlimited, provider, device, recovered, refused, hypervisor
  std::string tenant;
  std::string device;
  std::string message;
  std::uint64_t count = 1;
};
base::Json to_json(const Event& event);

class EventRing {
 public:
  static constexpr std::size_t kKept = 512;
  using Listener = std::function<void(const Event&)>;

  void add(Event event);  // time and sequence are filled in
  void listen(Listener listener) { listener_ = std::move(listener); }
  std::vector<Event> after(std::uint64_t sequence) const;

 private:
  std::deque<Event> events_;
  std::uint64_t next_ = 1;
  Listener listener_;
};

}  // namespace tensor_fusion::node::hypervisor
