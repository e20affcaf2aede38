// Random work, against a model that goes tick by tick and is too plain to be wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "sim/device/engine_core.h"
#include "sim/device/fake_engine.h"

namespace tensor_fusion::sim::device {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kStart = 1000;

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

}  // namespace
}  // namespace tensor_fusion::sim::device
