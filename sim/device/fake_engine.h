#pragma once
// For tests: an engine over plain vectors and a clock that only the test moves.
#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "sim/device/engine_core.h"

namespace tensor_fusion::sim::device {

class FakeEngine {
 public:
  static constexpr std::uint32_t kDepth = 64;
  struct FakeContext {
    ContextCore core{};
    std::array<std::atomic<std::uint64_t>, kLanes> tails{};
    std::vector<LaneItem> items = std::vector<LaneItem>(kLanes * kDepth);
    std::vector<std::atomic<std::uint64_t>> events = std::vector<std::atomic<std::uint64_t>>(64);
  };

  explicit FakeEngine(unsigned contexts, Rules rules = {}, std::uint64_t start = 1000) : rules_(rules) {
    init_engine_core(core, start, rules);
    for (unsigned m = 0; m < contexts; ++m) {
      contexts_.push_back(std::make_unique<FakeContext>());
      FakeContext& c = *contexts_.back();
      members_[m] = MemberView{&c.core, c.tails.data(), c.items.data(), c.events.data(), m + 1, 100 + m};
    }
  }

  Ticket submit(unsigned m, unsigned lane, const Work& work) {
    FakeContext& c = *contexts_[m];
    const std::uint64_t tail = c.tails[lane].load();
    LaneItem& item = c.items[lane * kDepth + tail % kDepth];
    item.arrival_ns = work.arrival_ns;
    const bool timed = work.kind <= WorkKind::d2d;
    item.duration.store(!timed ? 0 : work.duration_ns == kUnknownNs ? kAtLeast : work.duration_ns);
    item.after_context = work.after.context;
    item.after_ticket = work.after.ticket;
    item.width = work.width;
    item.event = work.event;
    item.kind = work.kind;
    c.tails[lane].store(tail + 1);
    return make_ticket(lane, tail + 1);
  }
  LaneItem& item(unsigned m, Ticket t) {
    return contexts_[m]->items[ticket_lane(t) * kDepth + (ticket_number(t) - 1) % kDepth];
  }
  bool done(unsigned m, Ticket t) { return contexts_[m]->core.lanes[ticket_lane(t)].completed >= ticket_number(t); }
  std::uint64_t end(unsigned m, Ticket t) { return item(m, t).end_ns.load(); }
  std::uint64_t start(unsigned m, Ticket t) { return item(m, t).start_ns.load(); }
  ContextCore& context(unsigned m) { return contexts_[m]->core; }

  Advanced advance(std::uint64_t now) {
    EngineView view;
    view.core = &core;
    view.rules = rules_;
    view.members = &members_;
    view.depth = kDepth;
    view.foreign_done = [](void*, ContextId id, Ticket, std::uint32_t* here) -> std::uint64_t {
      *here = id - 1;  // every other context of a test is a member
      return 0;
    };
    view.device_ring = device_ring.data();
    view.process_ring = process_ring.data();
    view.scratch = scratch_.get();
    scratch_->count = 0;
    for (unsigned m = 0; m < contexts_.size(); ++m) scratch_->list[scratch_->count++] = static_cast<std::uint16_t>(m);
    return advance_core(view, now);
  }

  EngineCore core{};
  std::vector<RawSample> device_ring = std::vector<RawSample>(kDeviceSamples);
  std::vector<RawSample> process_ring = std::vector<RawSample>(kProcessSamples);

 private:
  Rules rules_;
  std::vector<std::unique_ptr<FakeContext>> contexts_;
  std::array<MemberView, kMaxMembers> members_{};
  std::unique_ptr<CoreScratch> scratch_ = std::make_unique<CoreScratch>();
};

}  // namespace tensor_fusion::sim::device
