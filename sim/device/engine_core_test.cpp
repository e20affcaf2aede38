#include "sim/device/engine_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "sim/device/fake_engine.h"

namespace tensor_fusion::sim::device {
namespace {

constexpr std::uint64_t kUs = 1000;
constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kStart = 1000;

Work kernel(std::uint64_t duration, std::uint64_t arrival = kStart, float width = 1) {
  return {.kind = WorkKind::compute, .duration_ns = duration, .width = width, .arrival_ns = arrival};
}

TEST(EngineCore, runs_the_items_of_a_lane_back_to_back) {
  FakeEngine e(1);
  const Ticket a = e.submit(0, 0, kernel(10 * kUs));
  const Ticket b = e.submit(0, 0, kernel(5 * kUs));
  e.advance(kStart + 12 * kUs);
  EXPECT_TRUE(e.done(0, a));
  EXPECT_FALSE(e.done(0, b));
  e.advance(kStart + 20 * kUs);
  EXPECT_EQ(e.start(0, a), kStart);
  EXPECT_EQ(e.end(0, a), kStart + 10 * kUs);
  EXPECT_EQ(e.start(0, b), kStart + 10 * kUs);
  EXPECT_EQ(e.end(0, b), kStart + 15 * kUs);
  EXPECT_EQ(e.core.busy_ns, 15 * kUs);
  EXPECT_EQ(e.core.idle_ns, 5 * kUs);
}

TEST(EngineCore, gives_two_busy_contexts_alternating_slices) {
  FakeEngine e(2);
  const Ticket a = e.submit(0, 0, kernel(5 * kMs));
  const Ticket b = e.submit(1, 0, kernel(5 * kMs));
  e.advance(kStart + 20 * kMs);
  // a: 2, b: 2, a: 2, b: 2, a: 1, b: 1; each hand-over costs 20 µs.
  EXPECT_EQ(e.end(0, a), kStart + 9 * kMs + 4 * 20 * kUs);
  EXPECT_EQ(e.end(1, b), kStart + 10 * kMs + 5 * 20 * kUs);
  EXPECT_EQ(e.context(0).service_ns, 5 * kMs);
  EXPECT_EQ(e.context(1).service_ns, 5 * kMs);
  EXPECT_EQ(e.core.switches, 5u);
  EXPECT_EQ(e.core.switch_ns, 100 * kUs);
}

TEST(EngineCore, skips_an_idle_context_at_once) {
  FakeEngine e(2);
  e.submit(0, 0, kernel(100 * kUs));
  const Ticket b = e.submit(1, 0, kernel(1 * kMs));
  e.advance(kStart + 5 * kMs);
  EXPECT_EQ(e.end(1, b), kStart + 100 * kUs + 20 * kUs + 1 * kMs);
}

TEST(EngineCore, overlaps_lanes_that_leave_each_other_room) {
  FakeEngine e(1);
  const Ticket a = e.submit(0, 0, kernel(100 * kUs, kStart, 0.5F));
  const Ticket b = e.submit(0, 1, kernel(100 * kUs, kStart, 0.5F));
  e.advance(kStart + 1 * kMs);
  EXPECT_EQ(e.end(0, a), kStart + 100 * kUs);
  EXPECT_EQ(e.end(0, b), kStart + 100 * kUs);
  EXPECT_EQ(e.context(0).service_ns, 100 * kUs);
}

TEST(EngineCore, shares_the_device_among_lanes_that_fill_it) {
  FakeEngine e(1);
  const Ticket a = e.submit(0, 0, kernel(100 * kUs));
  const Ticket b = e.submit(0, 1, kernel(200 * kUs));
  e.advance(kStart + 1 * kMs);
  EXPECT_EQ(e.end(0, a), kStart + 200 * kUs);
  EXPECT_EQ(e.end(0, b), kStart + 300 * kUs);
}

TEST(EngineCore, copies_beside_compute_and_in_order_per_direction) {
  FakeEngine e(2);
  const Ticket k = e.submit(0, 0, kernel(1 * kMs));
  const Ticket up1 = e.submit(1, 0, {.kind = WorkKind::h2d, .duration_ns = 100 * kUs, .arrival_ns = kStart});
  const Ticket up2 = e.submit(0, 1, {.kind = WorkKind::h2d, .duration_ns = 50 * kUs, .arrival_ns = kStart + 10});
  const Ticket down = e.submit(0, 2, {.kind = WorkKind::d2h, .duration_ns = 70 * kUs, .arrival_ns = kStart + 10});
  e.advance(kStart + 2 * kMs);
  EXPECT_EQ(e.end(0, k), kStart + 1 * kMs);
  EXPECT_EQ(e.end(1, up1), kStart + 100 * kUs);
  EXPECT_EQ(e.start(0, up2), kStart + 100 * kUs);
  EXPECT_EQ(e.end(0, up2), kStart + 150 * kUs);
  EXPECT_EQ(e.end(0, down), kStart + 10 + 70 * kUs);
  EXPECT_EQ(e.context(1).copy_ns, 100 * kUs);
}

TEST(EngineCore, an_unpublished_duration_stops_the_simulation_but_not_the_device) {
  FakeEngine e(2);
  const Ticket a = e.submit(0, 0, kernel(kUnknownNs));
  const Advanced held = e.advance(kStart + 50 * kMs);
  EXPECT_TRUE(held.stalled);
  EXPECT_EQ(held.member, 0u);
  EXPECT_EQ(e.core.clock_ns, kStart);
  const Ticket b = e.submit(1, 0, kernel(1 * kMs, kStart + 1 * kMs));  // arrived while the simulation stood
  e.item(0, a).duration.store(3 * kMs);
  EXPECT_FALSE(e.advance(kStart + 50 * kMs).stalled);
  EXPECT_EQ(e.end(1, b), kStart + 2 * kMs + 20 * kUs + 1 * kMs);
  EXPECT_EQ(e.end(0, a), kStart + 4 * kMs + 40 * kUs);
  EXPECT_EQ(e.core.busy_ns, 4 * kMs);
}

TEST(EngineCore, progress_lets_the_clock_run_up_to_it) {
  FakeEngine e(1);
  const Ticket a = e.submit(0, 0, kernel(kUnknownNs));
  e.item(0, a).duration.store(kAtLeast | (700 * kUs));
  EXPECT_TRUE(e.advance(kStart + 10 * kMs).stalled);
  EXPECT_EQ(e.core.clock_ns, kStart + 700 * kUs);
  e.item(0, a).duration.store(900 * kUs);
  EXPECT_FALSE(e.advance(kStart + 10 * kMs).stalled);
  EXPECT_EQ(e.end(0, a), kStart + 900 * kUs);
}

TEST(EngineCore, sets_aside_a_kernel_whose_process_is_stopped) {
  Rules rules;
  rules.stall_ns = 100 * kMs;
  FakeEngine e(2, rules);
  const Ticket a = e.submit(0, 0, kernel(kUnknownNs));
  const Ticket b = e.submit(1, 0, kernel(1 * kMs));
  EXPECT_TRUE(e.advance(kStart + 90 * kMs).stalled);
  EXPECT_FALSE(e.advance(kStart + 200 * kMs).stalled);
  EXPECT_TRUE(e.done(1, b));
  e.item(0, a).duration.store(2 * kMs);
  e.advance(kStart + 300 * kMs);
  EXPECT_TRUE(e.done(0, a));
}

TEST(EngineCore, a_gate_stops_its_own_lane_only) {
  FakeEngine e(1);
  const Ticket gate = e.submit(0, 0, {.kind = WorkKind::gate, .arrival_ns = kStart});
  const Ticket after = e.submit(0, 0, kernel(10 * kUs));
  const Ticket other = e.submit(0, 1, kernel(10 * kUs));
  EXPECT_FALSE(e.advance(kStart + 1 * kMs).stalled);
  EXPECT_TRUE(e.done(0, other));
  EXPECT_FALSE(e.done(0, gate));
  e.item(0, gate).duration.store(kStart + 2 * kMs);
  e.advance(kStart + 3 * kMs);
  EXPECT_EQ(e.end(0, gate), kStart + 2 * kMs);
  EXPECT_EQ(e.end(0, after), kStart + 2 * kMs + 10 * kUs);
}

TEST(EngineCore, waits_for_an_item_of_another_context) {
  FakeEngine e(2);
  const Ticket a = e.submit(0, 0, kernel(300 * kUs));
  e.submit(1, 3, {.kind = WorkKind::wait, .after = {1, a}, .arrival_ns = kStart});
  const Ticket b = e.submit(1, 3, kernel(100 * kUs));
  e.advance(kStart + 1 * kMs);
  EXPECT_EQ(e.start(1, b), kStart + 300 * kUs + 20 * kUs);
}

TEST(EngineCore, a_marker_leaves_its_time_in_the_event_slot) {
  FakeEngine e(1);
  e.submit(0, 0, kernel(10 * kUs));
  const Ticket m = e.submit(0, 0, {.kind = WorkKind::marker, .event = 7, .arrival_ns = kStart});
  e.advance(kStart + 1 * kMs);
  EXPECT_TRUE(e.done(0, m));
  EXPECT_EQ(e.end(0, m), kStart + 10 * kUs);
}

TEST(EngineCore, late_work_starts_at_the_clock) {
  FakeEngine e(1);
  e.advance(kStart + 1 * kMs);
  const Ticket a = e.submit(0, 0, kernel(10 * kUs, kStart));
  e.advance(kStart + 2 * kMs);
  EXPECT_EQ(e.start(0, a), kStart + 1 * kMs);
}

TEST(EngineCore, samples_whole_percent_per_window_and_process) {
  FakeEngine e(2);
  const Rules rules;
  e.submit(0, 0, kernel(rules.window_ns / 2));
  e.advance(kStart + rules.window_ns + 1);
  ASSERT_EQ(e.core.device_samples, 1u);
  EXPECT_EQ(e.device_ring[0].compute, 50);
  ASSERT_EQ(e.core.process_samples, 1u);
  EXPECT_EQ(e.process_ring[0].pid, 100u);
  EXPECT_EQ(e.process_ring[0].compute, 50);
  e.advance(kStart + 3 * rules.window_ns);
  EXPECT_EQ(e.core.device_samples, 3u);
  EXPECT_EQ(e.core.process_samples, 1u);  // nothing new of an idle process
}

// Random work of several contexts and lanes; arrivals in random order of submission but increasing per lane.
struct Plan {
  struct Entry {
    unsigned member, lane;
    Work work;
  };
  std::vector<Entry> entries;
};

Plan random_plan(std::mt19937_64& random, unsigned members, unsigned lanes, std::uint64_t tick, bool narrow) {
  Plan plan;
  std::vector<std::vector<std::uint64_t>> last(members, std::vector<std::uint64_t>(lanes, kStart));
  std::vector<std::vector<std::uint64_t>> count(members, std::vector<std::uint64_t>(lanes, 0));
  for (int i = 0; i < 120; ++i) {
    const auto m = static_cast<unsigned>(random() % members);
    const auto l = static_cast<unsigned>(random() % lanes);
    if (count[m][l] >= FakeEngine::kDepth) continue;
    Work w;
    w.arrival_ns = last[m][l] += (random() % 200) * tick;
    switch (random() % 8) {
      case 0:
        w.kind = WorkKind::h2d;
        w.duration_ns = (1 + random() % 100) * tick;
        break;
      case 1:
        w.kind = WorkKind::d2h;
        w.duration_ns = (1 + random() % 100) * tick;
        break;
      case 2:
        w.kind = WorkKind::marker;
        break;
      case 3: {
        const auto om = static_cast<unsigned>(random() % members);
        const auto ol = static_cast<unsigned>(random() % lanes);
        w.kind = WorkKind::wait;  // only on what was submitted before: no cycles
        if (count[om][ol] != 0) w.after = {om + 1, make_ticket(ol, 1 + random() % count[om][ol])};
        break;
      }
      default:
        w.kind = WorkKind::compute;
        w.duration_ns = (1 + random() % 5000) * tick;
        w.width = narrow ? 1.0F / kLanes : static_cast<float>(1 + random() % 8) / 8.0F;
    }
    ++count[m][l];
    plan.entries.push_back({m, l, w});
  }
  return plan;
}

// The same rules, one tick at a time, in the plainest way.
class SlowModel {
 public:
  SlowModel(unsigned members, std::uint64_t tick, const Rules& rules) : tick_(tick), rules_(rules), lanes_(members) {}
  void submit(const Plan::Entry& e) { lanes_[e.member][e.lane].push_back({e.work, 0, 0, 0, false}); }
  struct Item {
    Work work;
    std::uint64_t worked, start, end;
    bool done;
  };
  std::array<std::vector<Item>, kLanes>& lanes(unsigned m) { return lanes_[m]; }

  void run(std::uint64_t until) {
    for (std::uint64_t t = kStart; t <= until; t += tick_) instant(t);
  }
  std::uint64_t busy = 0;

 private:
  struct Server {
    Item* item = nullptr;
  };
  struct Queued {
    std::uint64_t since;
    unsigned member, lane;
    Item* item;
  };
  Item* head(unsigned m, unsigned l) {
    for (Item& i : lanes_[m][l])
      if (!i.done) return &i;
    return nullptr;
  }
  bool ready(Item& i, std::uint64_t t) {
    if (i.work.arrival_ns > t) return false;
    if (i.work.after.ticket == 0) return true;
    return lanes_[i.work.after.context - 1][ticket_lane(i.work.after.ticket)][ticket_number(i.work.after.ticket) - 1]
        .done;
  }
  void finish(Item& i, std::uint64_t t) {
    i.done = true;
    i.end = t;
    if (i.start == 0) i.start = t;
  }
  bool runnable(unsigned m, std::uint64_t t) {
    for (unsigned l = 0; l < kLanes; ++l) {
      Item* i = head(m, l);
      if (i != nullptr && i->work.kind == WorkKind::compute && ready(*i, t)) return true;
    }
    return false;
  }
  void instant(std::uint64_t t) {
    // Finish what the previous tick completed, and all that takes no time, until nothing changes.
    for (bool changed = true; changed;) {
      changed = false;
      for (unsigned m = 0; m < lanes_.size(); ++m) {
        for (unsigned l = 0; l < kLanes; ++l) {
          Item* i = head(m, l);
          if (i == nullptr || !ready(*i, t)) continue;
          const bool instant_kind = i->work.kind == WorkKind::marker || i->work.kind == WorkKind::wait;
          if (instant_kind || (i->start != 0 && i->worked == i->work.duration_ns)) {
            for (Server& s : servers_)
              if (s.item == i) s.item = nullptr;
            finish(*i, t);
            changed = true;
          } else if (i->work.kind != WorkKind::compute) {
            const bool known = std::any_of(queue_.begin(), queue_.end(), [&](const Queued& q) { return q.item == i; });
            if (!known && i->start == 0) queue_.push_back({t, m, l, i});
          }
        }
      }
    }
    schedule(t);
    for (unsigned s = 0; s < 2; ++s) {
      const WorkKind kind = s == 0 ? WorkKind::h2d : WorkKind::d2h;
      if (servers_[s].item == nullptr) {
        std::sort(queue_.begin(), queue_.end(), [](const Queued& a, const Queued& b) {
          return std::tie(a.since, a.member, a.lane) < std::tie(b.since, b.member, b.lane);
        });
        const auto found =
            std::find_if(queue_.begin(), queue_.end(), [&](const Queued& q) { return q.item->work.kind == kind; });
        if (found != queue_.end()) {
          servers_[s].item = found->item;
          found->item->start = t;
          queue_.erase(found);
        }
      }
      if (servers_[s].item != nullptr) servers_[s].item->worked += tick_;
    }
    if (resident_ >= 0 && t >= switch_until_) {
      bool any = false;
      for (unsigned l = 0; l < kLanes; ++l) {
        Item* i = head(static_cast<unsigned>(resident_), l);
        if (i == nullptr || i->work.kind != WorkKind::compute || !ready(*i, t)) continue;
        if (i->start == 0) i->start = t;
        i->worked += tick_;
        any = true;
      }
      if (any) busy += tick_;
    }
  }
  void schedule(std::uint64_t t) {
    if (t < switch_until_) return;
    const auto n = static_cast<int>(lanes_.size());
    const auto next = [&]() {
      for (int k = 1; k <= n; ++k) {
        const int m = (resident_ + k + n) % n;
        if (m != resident_ && runnable(static_cast<unsigned>(m), t)) return m;
      }
      return -1;
    };
    const bool mine = resident_ >= 0 && runnable(static_cast<unsigned>(resident_), t);
    if (mine && slice_end_ == 0) slice_end_ = t + rules_.slice_ns;
    if (mine && t < slice_end_) return;
    const int other = next();
    if (other < 0) {
      slice_end_ = mine ? t + rules_.slice_ns : 0;
      return;
    }
    if (resident_ >= 0) switch_until_ = t + rules_.switch_ns;
    resident_ = other;
    slice_end_ = std::max(switch_until_, t) + rules_.slice_ns;
  }

  std::uint64_t tick_;
  Rules rules_;
  std::vector<std::array<std::vector<Item>, kLanes>> lanes_;
  std::array<Server, 2> servers_;
  std::vector<Queued> queue_;
  int resident_ = -1;
  std::uint64_t slice_end_ = 0, switch_until_ = 0;
};

TEST(EngineCore, agrees_with_the_plain_model_on_random_work) {
  constexpr std::uint64_t kTick = 1000;
  Rules rules;
  rules.slice_ns = 200 * kTick;
  rules.switch_ns = 20 * kTick;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    const unsigned members = 1 + seed % 4;
    const Plan plan = random_plan(random, members, 1 + seed % 3, kTick, true);
    FakeEngine e(members, rules);
    SlowModel model(members, kTick, rules);
    std::vector<Ticket> tickets;
    for (const auto& entry : plan.entries) {
      tickets.push_back(e.submit(entry.member, entry.lane, entry.work));
      model.submit(entry);
    }
    const std::uint64_t horizon = kStart + 700'000 * kTick;
    e.advance(horizon);
    std::uint64_t last = kStart;
    for (std::size_t i = 0; i < tickets.size(); ++i) {
      ASSERT_TRUE(e.done(plan.entries[i].member, tickets[i])) << "seed " << seed << " item " << i;
      last = std::max(last, e.end(plan.entries[i].member, tickets[i]));
    }
    model.run(last + kTick);
    std::vector<std::array<std::size_t, kLanes>> at(members);
    for (const auto& entry : plan.entries) {
      const std::size_t n = at[entry.member][entry.lane]++;
      const auto& slow = model.lanes(entry.member)[entry.lane][n];
      const Ticket t = make_ticket(entry.lane, n + 1);
      ASSERT_EQ(e.end(entry.member, t), slow.end)
          << "seed " << seed << " member " << entry.member << " lane " << entry.lane << " item " << n;
      ASSERT_EQ(e.start(entry.member, t), slow.start) << "seed " << seed;
    }
    ASSERT_EQ(e.core.busy_ns, model.busy) << "seed " << seed;
  }
}

TEST(EngineCore, gives_the_same_times_however_one_advances) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const unsigned members = 1 + seed % 5;
    const Plan plan = random_plan(random, members, 1 + seed % kLanes, 777, false);
    FakeEngine once(members), often(members);
    std::vector<Ticket> tickets;
    for (const auto& entry : plan.entries) {
      tickets.push_back(once.submit(entry.member, entry.lane, entry.work));
      often.submit(entry.member, entry.lane, entry.work);
    }
    const std::uint64_t horizon = kStart + 3'000 * kMs;
    once.advance(horizon);
    for (std::uint64_t t = kStart; t < kStart + 600 * kMs; t += 1 + random() % (2 * kMs)) often.advance(t);
    often.advance(horizon);
    for (std::size_t i = 0; i < tickets.size(); ++i) {
      const unsigned m = plan.entries[i].member;
      ASSERT_EQ(once.end(m, tickets[i]), often.end(m, tickets[i])) << "seed " << seed << " item " << i;
      ASSERT_EQ(once.start(m, tickets[i]), often.start(m, tickets[i])) << "seed " << seed << " item " << i;
    }
    ASSERT_EQ(once.core.busy_ns, often.core.busy_ns);
    ASSERT_EQ(once.core.switches, often.core.switches);
    std::uint64_t service = 0;
    for (unsigned m = 0; m < members; ++m) service += once.context(m).service_ns;
    ASSERT_EQ(service, once.core.busy_ns);
    ASSERT_EQ(once.core.busy_ns + once.core.switch_ns + once.core.idle_ns, horizon - kStart);
  }
}

TEST(EngineCore, is_never_idle_while_a_kernel_is_queued) {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    FakeEngine e(4);
    std::uint64_t total = 0;
    for (int i = 0; i < 100; ++i) {
      const std::uint64_t d = (1 + random() % 3000) * kUs;
      total += d;
      e.submit(static_cast<unsigned>(random() % 4), 0, kernel(d));
    }
    e.advance(kStart + total / 2);
    EXPECT_EQ(e.core.idle_ns, 0u);
    e.advance(kStart + 2 * total);
    EXPECT_EQ(e.core.busy_ns, total);
  }
}

TEST(EngineCore, forgets_a_member_without_a_trace_in_the_schedule) {
  FakeEngine e(2);
  e.submit(0, 0, kernel(50 * kMs));
  e.submit(0, 1, {.kind = WorkKind::h2d, .duration_ns = 50 * kMs, .arrival_ns = kStart});
  e.advance(kStart + 1 * kMs);
  forget_member(e.core, 0);
  e.context(0) = ContextCore{};
  e.context(0).lanes[0].completed = 1;
  e.context(0).lanes[1].completed = 1;
  const Ticket b = e.submit(1, 0, kernel(1 * kMs, kStart + 1 * kMs));
  const Ticket c = e.submit(1, 1, {.kind = WorkKind::h2d, .duration_ns = 1 * kMs, .arrival_ns = kStart + 1 * kMs});
  e.advance(kStart + 10 * kMs);
  EXPECT_EQ(e.end(1, b), kStart + 2 * kMs);
  EXPECT_EQ(e.end(1, c), kStart + 2 * kMs);
}

}  // namespace
}  // namespace tensor_fusion::sim::device
