#pragma once
// A discrete-event model of one GPU, of programs and of the gate they launch through, for the tests of the arbiter. The
// gate here is a sketch of the limiter's: the same rules, no system calls. Tests only.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "pool/share.h"
#include "pool/share_model_gpu.h"
#include "pool/share_model_process.h"
#include "pool/share_model_programs.h"
#include "pool/share_model_schedule.h"

namespace tensor_fusion::pool::model {

class Machine {
 public:
  explicit Machine(ShareRules rules = {}, Hardware hardware = {}, bool limited = true)
      : arbiter(rules), rules_(rules), hardware_(hardware), gpu_(hardware), limited_(limited) {}

  std::size_t add_tenant(ShareTerms terms, const Program& program, unsigned copies = 1) {
    tenants.push_back({});
    const std::size_t index = tenants.size() - 1;
    tenants[index].terms = terms;
    arbiter.add(index + 1, terms, now);
    for (unsigned i = 0; i < copies; ++i) {
      Process process;
      process.tenant = index;
      process.context = gpu_.add_context();
      process.program = program;
      process.random.seed(1000 * index + i + 1);
      processes.push_back(std::move(process));
      tenants[index].processes.push_back(processes.size() - 1);
      const std::size_t p = processes.size() - 1;
      at(now + kUs * (p + 1), [this, p] { next(p); });
    }
    return index;
  }
  void remove_tenant(std::size_t index) {
    tenants[index].present = false;
    arbiter.remove(index + 1, now);
    for (const std::size_t p : tenants[index].processes) {
      ++processes[p].epoch;
      processes[p].blocked = false;
      gpu_.context(processes[p].context).streams.clear();
    }
    bell();
  }
  // A stopped process does nothing itself; what it has put on the device runs.
  void stop(std::size_t p) { processes[p].stopped = true; }
  void go_on(std::size_t p) {
    processes[p].stopped = false;
    std::vector<std::function<void()>> kept;
    kept.swap(processes[p].kept);
    for (const auto& action : kept) action();
  }
  void ring() { bell(); }
  void at(Time when, std::function<void()> action) { schedule_.at(when, std::move(action)); }

  void run_until(Time end) {
    if (!started_) {
      started_ = true;
      bell();
      window_tick();
    }
    while (now < end) {
      const Time next_event = schedule_.next(end);
      if (next_event > now) {
        now = gpu_.run(now, next_event);
        if (now < next_event) continue;
      }
      schedule_.run(now);
    }
  }

  // Mean share of one tenant in the windows of one second from `from` on.
  std::vector<double> shares(std::size_t tenant, std::size_t from = 2) const {
    std::vector<double> result;
    for (std::size_t i = from; i < tenants[tenant].windows.size(); ++i) {
      result.push_back(tenants[tenant].windows[i] / static_cast<double>(kSecond) * 100);
    }
    return result;
  }
  double mean_share(std::size_t tenant, std::size_t from = 2) const {
    const auto all = shares(tenant, from);
    double sum = 0;
    for (const double share : all) sum += share;
    return all.empty() ? 0 : sum / static_cast<double>(all.size());
  }
  double device_ns(std::size_t tenant) {
    double served = 0;
    for (const std::size_t p : tenants[tenant].processes) served += gpu_.context(processes[p].context).served;
    return served;
  }
  double busy() const { return gpu_.busy(); }

  // Stops the daemon: nobody decides any more.
  void kill_daemon() {
    daemon_alive = false;
    died_at = now;
  }
  bool daemon_alive = true;
  Time died_at = 0;
  Time late_pass = 0;  // added to every pass of the daemon
  Arbiter arbiter;
  std::vector<TenantModel> tenants;
  std::deque<Process> processes;
  Time now = kMs;
  std::uint64_t passes = 0;

 private:
  // By the process's own hand.
  void at(std::size_t p, Time when, std::function<void()> action) {
    at(when, [this, p, action = std::move(action)] {
      if (processes[p].stopped) {
        processes[p].kept.push_back(action);
      } else {
        action();
      }
    });
  }

  Time latency() { return hardware_.wake + (hardware_.wake_noise > 0 ? random_() % hardware_.wake_noise : 0); }

  void window_tick() {
    at(now + kSecond, [this] {
      for (TenantModel& tenant : tenants) {
        const double served = device_ns(static_cast<std::size_t>(&tenant - tenants.data()));
        tenant.windows.push_back(served - tenant.served_mark);
        tenant.served_mark = served;
      }
      window_tick();
    });
  }

  void bell() {
    if (bell_pending_) return;
    bell_pending_ = true;
    at(now + latency() + late_pass, [this] {
      bell_pending_ = false;
      pass();
    });
  }

  void pass() {
    if (!daemon_alive) return;
    ++passes;
    for (std::size_t i = 0; i < tenants.size(); ++i) {
      if (!tenants[i].present) continue;
      ShareClaim claim;
      claim.processes = 0;
      std::vector<ShareStretch> stretches;
      std::uint64_t gap = ~0ull, ahead = 0;
      for (const std::size_t p : tenants[i].processes) {
        Process& process = processes[p];
        claim.launched_ns += static_cast<std::uint64_t>(process.launched);
        const auto progress = static_cast<std::uint64_t>(std::max(0.0, process.progress));
        if (progress > now) ahead += progress - now;
        claim.progress_ns = std::max(claim.progress_ns, progress);
        claim.wanted_since_ns = std::max(claim.wanted_since_ns, process.wanted_since);
        claim.blocked += process.blocked ? 1 : 0;
        for (const auto& stream : process.streams) {
          claim.streams += stream.queued > 0 ? 1 : 0;
          if (stream.unmarked > 0 || stream.markers > 0 || !process.ready.empty()) {
            claim.open_since_ns = std::min(claim.open_since_ns, stream.open_since);
          }
        }
        claim.processes += process.blocked || process.queued > 0 ? 1 : 0;
        gap = std::min(gap, static_cast<std::uint64_t>(process.gap));
        for (ShareStretch stretch : process.published) {
          if (stretch.end_ns != 0) {
            stretch.start_ns += static_cast<Time>(tenants[i].clock_offset);
            stretch.end_ns += static_cast<Time>(tenants[i].clock_offset);
          }
          stretch.process = static_cast<std::uint32_t>(p);
          stretches.push_back(stretch);
        }
        process.published.clear();
      }
      claim.gap_ns = gap;
      if (ahead > 0) claim.progress_ns = now + ahead;
      if (tenants[i].lie) tenants[i].lie(claim, stretches, now);
      arbiter.observe(i + 1, claim, stretches, now);
    }
    const std::uint64_t deadline = arbiter.decide(now);
    for (std::size_t i = 0; i < tenants.size(); ++i) {
      if (!tenants[i].present) continue;
      const ShareGrant before = tenants[i].grant;
      tenants[i].grant = arbiter.grant(i + 1);
      if (!tenants[i].grant.admitted && before.admitted) {
        tenants[i].own_until = now;
        for (const std::size_t p : tenants[i].processes)
          tenants[i].own_until = std::max(tenants[i].own_until, static_cast<Time>(processes[p].progress));
      }
      if (tenants[i].grant.admitted && !before.admitted) {
        tenants[i].admitted_since = now;
        tenants[i].own_until = kNever;
        for (const std::size_t p : tenants[i].processes) wake(p, latency());
      }
    }
    if (deadline != kNever) {
      const std::uint64_t turn = ++deadline_turn_;
      at(std::max(deadline, now + kUs) + latency() / 2 + late_pass, [this, turn] {
        if (turn == deadline_turn_) pass();
      });
    }
  }

  void wake(std::size_t p, Time in) {
    const std::uint64_t epoch = processes[p].epoch;
    at(p, now + in, [this, p, epoch] {
      if (processes[p].epoch == epoch && processes[p].blocked) try_launch(p);
    });
  }

  void next(std::size_t p) {
    Process& process = processes[p];
    if (!tenants[process.tenant].present) return;
    const Step step = process.program(process.random);
    const std::uint64_t epoch = process.epoch;
    switch (step.kind) {
      case Step::kEnd:
        poll(process);
        process.end(static_cast<std::uint32_t>(p), now);
        for (auto& stream : gpu_.context(process.context).streams) stream.clear();
        bell();
        at(p, now + step.ns, [this, p] { next(p); });
        break;
      case Step::kThink:
        at(p, now + step.ns, [this, p, epoch] {
          if (processes[p].epoch == epoch) next(p);
        });
        break;
      case Step::kSync:
        poll(process);
        for (unsigned s = 0; s < process.streams.size(); ++s) mark(p, s);
        if (tenants[process.tenant].grant.contended && process.gap >= 300e3) bell();
        if (process.queued == 0) {
          at(p, now + kUs, [this, p, epoch] {
            if (processes[p].epoch == epoch) next(p);
          });
        } else {
          process.syncing = true;
        }
        break;
      case Step::kLaunch:
        process.held = step;
        if (process.step_began == 0) process.step_began = now;
        try_launch(p);
        break;
    }
  }

  void poll(Process& process) { process.poll(now, tenants[process.tenant].grant.scale); }

  void mark(std::size_t p, unsigned s) {
    Process& process = processes[p];
    auto& stream = process.streams[s];
    if (stream.unmarked <= 0) return;
    const double estimated = stream.unmarked;
    const bool guessed = std::exchange(stream.guessed, false);
    stream.unmarked = 0;
    ++stream.markers;
    gpu_.push(process.context, s, {0, [this, p, s, estimated, guessed](Time when) {
                                     Process& mine = processes[p];
                                     auto& my_stream = mine.streams[s];
                                     --my_stream.markers;
                                     mine.ready.push_back({s,
                                                           {.start_ns = my_stream.mark_start,
                                                            .end_ns = when,
                                                            .estimated_ns = static_cast<std::uint64_t>(estimated),
                                                            .guessed = guessed}});
                                     my_stream.mark_start = when;
                                     if (my_stream.queued == 0) my_stream.marked = false;
                                   }});
  }

  // The daemon is away: each process refills at its part of the request, by estimates.
  void launch_on_bucket(std::size_t p) {
    Process& process = processes[p];
    const TenantModel& tenant = tenants[process.tenant];
    const double share = tenant.terms.request / static_cast<double>(tenant.processes.size());
    if (process.bucket_at == 0) process.bucket_at = now;
    process.bucket = std::min(10e6, process.bucket + share * static_cast<double>(now - process.bucket_at));
    process.bucket_at = now;
    if (process.bucket <= 0) {
      process.blocked = true;
      wake(p, static_cast<Time>(std::min(100e6, (-process.bucket + 200e3) / share)));
      return;
    }
    process.bucket -= process.estimate(process.held.key) * tenant.grant.scale;
    put(p);
  }

  void try_launch(std::size_t p) {
    Process& process = processes[p];
    const Step step = process.held;
    TenantModel& tenant = tenants[process.tenant];
    if (process.streams.size() <= step.stream) process.streams.resize(step.stream + 1);
    poll(process);
    const double scale = tenant.grant.scale;
    const double moment = static_cast<double>(now);
    const double estimated = process.estimate(step.key);
    const double ahead = rules_.subtract_progress ? std::max(0.0, process.progress - moment)
                                                  : static_cast<double>(process.queued) * estimated * scale;
    if (!process.blocked && process.queued == 0) {
      if (process.progress > 0) process.gap += 0.2 * (std::min(moment - process.progress, 5e6) - process.gap);
      if (process.wanted_since == 0 || moment > process.progress) process.wanted_since = now;
    }
    // A function never measured: one launch at a time until the first has told.
    const bool unknown = process.learned[step.key].ns <= 0 && process.learned[step.key].launched > 0;
    if (limited_ && !daemon_alive && now > died_at + 100 * kMs) return launch_on_bucket(p);
    if (tenant.grant.admitted && !tenant.grant.known) bell();
    if (limited_ &&
        !(tenant.grant.admitted && !unknown &&
          (ahead < static_cast<double>(tenant.grant.window_ns) || process.streams[step.stream].queued == 0))) {
      const bool first = !process.blocked;
      process.blocked = true;
      if (first) {
        for (unsigned s = 0; s < process.streams.size(); ++s) mark(p, s);
      }
      if (!tenant.grant.admitted) {
        if (first || !tenant.grant.known) bell();
        bool in_flight = false;
        unsigned running = 0;
        for (const auto& each : process.streams) {
          in_flight = in_flight || each.markers > 0;
          running += each.queued > 0 ? 1 : 0;
        }
        wake(p, in_flight ? static_cast<Time>(std::max(200e3, ahead / std::max(running, 1u) + 100e3)) : 100 * kMs);
      } else {
        wake(p, static_cast<Time>(std::max(20e3, ahead - 0.6 * static_cast<double>(tenant.grant.window_ns))) +
                    latency() / 2);
      }
      return;
    }
    put(p);
  }

  void put(std::size_t p) {
    Process& process = processes[p];
    const Step step = process.held;
    const TenantModel& tenant = tenants[process.tenant];
    const double scale = tenant.grant.scale;
    const double moment = static_cast<double>(now);
    const double estimated = process.estimate(step.key);
    process.blocked = false;
    ++process.epoch;
    auto& stream = process.streams[step.stream];
    if (stream.marked && stream.queued == 0 && stream.unmarked > 0) {
      // Drained without a marker behind it: known by its estimate only.
      process.ready.push_back({step.stream, {0, 0, static_cast<std::uint64_t>(stream.unmarked)}});
      stream.unmarked = 0;
      stream.marked = false;
    }
    if (!stream.marked) {
      stream.marked = true;
      stream.open_since = now;
      gpu_.push(process.context, step.stream,
                {0, [this, p, s = step.stream](Time when) { processes[p].streams[s].mark_start = when; }});
    }
    process.launched += estimated;
    ++process.learned[step.key].launched;
    process.progress = std::max(process.progress, moment) + estimated * scale;
    stream.unmarked += estimated;
    stream.guessed = stream.guessed || process.learned[step.key].ns <= 0;
    ++stream.queued;
    ++process.queued;
    auto began = std::make_shared<Time>(0);
    gpu_.push(process.context, step.stream, {0, [began](Time when) { *began = when; }});
    gpu_.push(
        process.context, step.stream,
        {static_cast<double>(step.ns), [this, p, s = step.stream, key = step.key, ns = step.ns, began](Time when) {
           Process& mine = processes[p];
           auto& learned = mine.learned[key];
           const double wall = static_cast<double>(when - *began);
           const bool solo = daemon_alive && tenants[mine.tenant].admitted_since + kMs < *began &&
                             *began < tenants[mine.tenant].own_until;
           if (learned.seen < 8 || learned.seen % 32 == 0 || ns > 2 * kMs) {
             const bool stale = learned.solo_at + kSecond < when && tenants[mine.tenant].grant.scale > 1.1;
             if (solo || learned.ns <= 0 || wall < learned.ns || (daemon_alive && stale)) {
               // Down fast, up slowly: interruptions only ever make a kernel look longer.
               const double sample = learned.ns <= 0 ? wall : std::min(wall, 2 * learned.ns + 10e3);
               const double gain = learned.ns <= 0 ? 1 : sample < learned.ns ? 0.3 : 0.1;
               learned.ns += gain * (sample - learned.ns);
               if (solo) learned.solo_at = when;
             }
           }
           ++learned.seen;
           mine.kernels_ns += static_cast<double>(ns);
           --mine.streams[s].queued;
           if (--mine.queued == 0 && mine.syncing) {
             mine.syncing = false;
             const std::uint64_t epoch = mine.epoch;
             at(p, when + 15 * kUs, [this, p, epoch] {
               Process& synced = processes[p];
               if (synced.epoch != epoch) return;
               poll(synced);
               if (synced.step_began != 0) synced.steps.push_back(now - synced.step_began);
               synced.step_began = 0;
               next(p);
             });
           }
         }});
    if (stream.unmarked > 400e3) mark(p, step.stream);
    const std::uint64_t epoch = process.epoch;
    at(p, now + 2 * kUs, [this, p, epoch] {
      if (processes[p].epoch == epoch) next(p);
    });
  }

  ShareRules rules_;
  Hardware hardware_;
  Gpu gpu_;
  bool limited_;
  bool started_ = false;
  bool bell_pending_ = false;
  std::uint64_t deadline_turn_ = 0;
  std::mt19937_64 random_{7};
  Schedule schedule_;
};

}  // namespace tensor_fusion::pool::model
