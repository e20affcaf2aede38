#pragma once
// Inside the core only: one call of advance_core(), the engine's view with the verbs of the simulation. Two files share
// it: engine_lanes.cpp (what the head of each lane is doing) and engine_core.cpp (who runs, until when, for how long).
#include <algorithm>

#include "sim/device/engine_core.h"

namespace tensor_fusion::sim::device {

inline constexpr std::uint64_t kNever = ~std::uint64_t{0};

[[nodiscard]] inline bool is_copy(WorkKind kind) {
  return kind == WorkKind::h2d || kind == WorkKind::d2h || kind == WorkKind::d2d;
}
[[nodiscard]] inline unsigned server_of(WorkKind kind) {
  return static_cast<unsigned>(kind) - static_cast<unsigned>(WorkKind::h2d);
}
[[nodiscard]] inline std::uint64_t known_ns(std::uint64_t duration) { return duration & ~kAtLeast; }
[[nodiscard]] inline bool is_final(std::uint64_t duration) { return (duration & kAtLeast) == 0; }

// One call of advance_core: the engine's view with the verbs of the simulation.
class EngineRun {
 public:
  explicit EngineRun(EngineView& engine) : e_(engine), core_(*engine.core), s_(*engine.scratch) {}

  Advanced until(std::uint64_t now);

 private:
  using Status = CoreScratch::Status;
  void ingest();
  void resolve(unsigned m, unsigned l);
  void clear_status(unsigned m, unsigned l);
  void set_status(unsigned m, unsigned l, Status status, std::uint64_t when_ns = 0);
  void finish(unsigned m, unsigned l, LaneItem& item);
  [[nodiscard]] std::uint64_t dependency_time(unsigned m, const LaneItem& item);
  void settle_blocked();
  void settle_timed();
  void schedule();
  void switch_to(std::uint32_t m);
  void run_lanes(std::uint32_t mask);
  void stop_running();
  void start_copies();
  void finish_compute();
  void finish_copies();
  [[nodiscard]] std::uint64_t compute_end(unsigned l, std::uint64_t known);
  [[nodiscard]] std::uint64_t next_event();
  [[nodiscard]] bool stall(std::uint64_t now, Advanced& result);
  void account(std::uint64_t until_ns);
  void close_window();
  void skip_idle_windows(std::uint64_t now);

  [[nodiscard]] MemberView& member(unsigned m) { return (*e_.members)[m]; }
  [[nodiscard]] LaneItem& head(unsigned m, unsigned l) {
    return member(m).items[l * e_.depth + static_cast<std::uint32_t>(member(m).core->lanes[l].completed % e_.depth)];
  }
  [[nodiscard]] bool runnable(std::uint32_t m) const {
    return m != kNobody && ((s_.runnable[m >> 6] >> (m & 63)) & 1) != 0;
  }
  [[nodiscard]] bool any_runnable() const { return (s_.runnable[0] | s_.runnable[1]) != 0; }
  [[nodiscard]] bool others_runnable(std::uint32_t than) const {
    auto copy = s_.runnable;
    copy[than >> 6] &= ~(std::uint64_t{1} << (than & 63));
    return (copy[0] | copy[1]) != 0;
  }
  [[nodiscard]] std::uint32_t runnable_after(std::uint32_t m) const;

  EngineView& e_;
  EngineCore& core_;
  CoreScratch& s_;
  bool finished_any_ = false;
};

}  // namespace tensor_fusion::sim::device
