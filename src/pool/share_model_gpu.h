#pragma once
// A model of one GPU in time: it rotates between contexts that have work queued, one time slice each; streams of one
// context overlap. Tests only.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

namespace tensor_fusion::pool::model {

using Time = std::uint64_t;
inline constexpr Time kUs = 1000, kMs = 1'000'000, kSecond = 1'000'000'000;

struct Hardware {
  Time slice = 2 * kMs;
  Time switch_cost = 20 * kUs;
  double overlap = 2;    // how many streams of one context run at full speed together
  Time wake = 40 * kUs;  // from a futex wake, or a bell, to running
  Time wake_noise = 30 * kUs;
};

class Gpu {
 public:
  struct Item {
    double left = 0;  // of a kernel; an event has none
    std::function<void(Time)> done;
  };
  struct Context {
    std::vector<std::deque<Item>> streams;
    double served = 0;
    bool has_work() const {
      for (const auto& stream : streams) {
        if (!stream.empty()) return true;
      }
      return false;
    }
  };
  explicit Gpu(Hardware hardware) : hardware_(hardware) {}
  unsigned add_context() {
    contexts_.emplace_back();
    return static_cast<unsigned>(contexts_.size() - 1);
  }
  void push(unsigned context, unsigned stream, Item item) {
    auto& streams = contexts_[context].streams;
    if (streams.size() <= stream) streams.resize(stream + 1);
    streams[stream].push_back(std::move(item));
  }
  Context& context(unsigned index) { return contexts_[index]; }
  double busy() const { return busy_; }

  // Runs until `until` or until something completed, whichever is first; returns the time reached.
  Time run(Time now, Time until) {
    while (now < until) {
      if (current_ < 0 || (!contexts_[at()].has_work())) {
        if (!rotate(now)) return until;
        continue;
      }
      if (switching_ > 0) {
        const Time step = std::min<Time>(switching_, until - now);
        switching_ -= step;
        now += step;
        slice_end_ = now + hardware_.slice;
        continue;
      }
      Context& context = contexts_[at()];
      if (finish_events(context, now)) return now;
      if (now >= slice_end_ && others_waiting()) {
        rotate(now);
        continue;
      }
      unsigned active = 0;
      double shortest = 1e18;
      for (auto& stream : context.streams) {
        if (stream.empty()) continue;
        ++active;
        shortest = std::min(shortest, stream.front().left);
      }
      if (active == 0) continue;
      const double rate = std::min(1.0, hardware_.overlap / active);
      Time step = std::min<Time>(until - now, static_cast<Time>(shortest / rate) + 1);
      if (others_waiting()) step = std::min<Time>(step, slice_end_ > now ? slice_end_ - now : 1);
      for (auto& stream : context.streams) {
        if (!stream.empty()) stream.front().left -= static_cast<double>(step) * rate;
      }
      context.served += static_cast<double>(step);
      busy_ += static_cast<double>(step);
      now += step;
      if (finish_events(context, now)) return now;
    }
    return now;
  }

 private:
  std::size_t at() const { return static_cast<std::size_t>(current_); }
  bool others_waiting() const {
    for (std::size_t i = 0; i < contexts_.size(); ++i) {
      if (i != at() && contexts_[i].has_work()) return true;
    }
    return false;
  }
  bool rotate(Time now) {
    const std::size_t n = contexts_.size();
    for (std::size_t step = 1; step <= n; ++step) {
      const std::size_t i = (static_cast<std::size_t>(current_ + 1) + step - 1) % n;
      if (!contexts_[i].has_work()) continue;
      if (static_cast<int>(i) != current_) switching_ = hardware_.switch_cost;
      current_ = static_cast<int>(i);
      slice_end_ = now + hardware_.slice;
      return true;
    }
    return false;
  }
  static bool finish_events(Context& context, Time now) {
    bool any = false;
    for (std::size_t s = 0; s < context.streams.size(); ++s) {
      while (!context.streams[s].empty() && context.streams[s].front().left <= 0) {
        const auto done = std::move(context.streams[s].front().done);
        context.streams[s].pop_front();
        if (done) done(now);
        any = true;
      }
    }
    return any;
  }
  Hardware hardware_;
  std::vector<Context> contexts_;
  int current_ = -1;
  Time slice_end_ = 0, switching_ = 0;
  double busy_ = 0;
};

}  // namespace tensor_fusion::pool::model
