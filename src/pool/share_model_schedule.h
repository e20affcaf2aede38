#pragma once
// What will happen when on the model machine: actions in order of time, those of one moment in the order they were
// asked for. Tests only.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "pool/share_model_gpu.h"

namespace tensor_fusion::pool::model {

class Schedule {
 public:
  void at(Time when, std::function<void()> action) { events_.push({when, sequence_++, std::move(action)}); }
  Time next(Time latest) const { return events_.empty() ? latest : std::min(latest, events_.top().when); }
  void run(Time now) {
    while (!events_.empty() && events_.top().when <= now) {
      auto action = std::move(const_cast<Event&>(events_.top()).action);
      events_.pop();
      action();
    }
  }

 private:
  struct Event {
    Time when;
    std::uint64_t sequence;
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return when != other.when ? when > other.when : sequence > other.sequence;
    }
  };
  std::uint64_t sequence_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace tensor_fusion::pool::model
