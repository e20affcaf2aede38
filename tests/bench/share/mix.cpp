#include "tests/bench/share/mix.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/bench/share/worker.h"

namespace tensor_fusion::bench::share {
namespace {

Mix unequal_fives() {
  return {"five unequal",
          {capped("training", 35), capped("graphs", 25), capped("training", 20), capped("training", 12),
           capped("training", 8)}};
}

Mix two_gpus() {
  Mix two{"two GPUs 30/70 and 80/20",
          {capped("training", 30), capped("training", 70), capped("training", 80), capped("training", 20)}};
  two.parts[2].device = two.parts[3].device = 1;
  return two;
}

// Launches of `unit_ns`, which nobody can interrupt: one more or one less in a window of a second is that part of it,
// by whatever scheduler. The mean keeps the bar of its kind, over so many windows that one launch is no more than that.
Mix long_launches(Mix mix, double unit_ns) {
  const double of_window = unit_ns / 1e9 * 100;
  mix.windows = static_cast<unsigned>(std::max(4.0, std::ceil(of_window / kCapsBar.mean)));
  char why[128];
  std::snprintf(why, sizeof why, "one launch of %.0f ms is %.2f points of a window, %.2f of %u", unit_ns / 1e6,
                of_window, of_window / mix.windows, mix.windows);
  mix.own = Bar{kCapsBar.mean, std::max(kCapsBar.p95, of_window)};
  mix.exception = why;
  return mix;
}

}  // namespace

Part capped(std::string program, double limit, unsigned processes) {
  return {std::move(program), limit, limit, processes, 0, false, limit};
}

Part waiting(std::string program, double limit) {
  Part part = capped(std::move(program), limit);
  part.waits = true;
  return part;
}

Part weighted(std::string program, double request, double target, unsigned processes) {
  return {std::move(program), request, 100, processes, 0, false, target};
}

std::vector<Mix> caps() {
  const Bar longer{kCapsBar.mean, 5};
  std::vector<Mix> mixes = {
      {"training 10/90", {capped("training", 10), capped("training", 90)}},
      {"training 30/70", {capped("training", 30), capped("training", 70)}},
      {"training 30/30", {capped("training", 30), capped("training", 30)}},
      {"batch 30/70", {capped("batch", 30), capped("batch", 70)}},
      {"batch 10, training 90",
       {capped("batch", 10), capped("training", 90)},
       longer,
       "kernels > 10 ms at a limit of 10"},
      {"graphs 30, training 70", {capped("graphs", 30), capped("training", 70)}},
      {"graphs 30", {capped("graphs", 30)}},
      long_launches({"long graphs 30/70", {capped("longgraphs", 30), capped("longgraphs", 70)}},
                    static_cast<double>(kLongGraphNs)),
      {"single 25", {capped("training", 25)}},
      {"varying shapes 30/70", {capped("varying", 30), capped("training", 70)}},
      {"varying shapes 70/30", {capped("varying", 70), capped("training", 30)}},
      {"256 lengths 30/70", {capped("lengths", 30), capped("training", 70)}},
      {"decode 30, training 70", {waiting("decode", 30), capped("training", 70)}},
      {"sync 30, training 70", {waiting("sync", 30), capped("training", 70)}},
      {"sync 60, training 40", {waiting("sync", 60), capped("training", 40)}, longer, "sync above 50"},
      {"4 processes 30 against 1", {capped("training", 30, 4), capped("training", 70)}},
      unequal_fives(),
      {"4 streams 30, training 70", {capped("streams4", 30), capped("training", 70)}},
  };
  mixes.push_back(two_gpus());
  return mixes;
}

std::vector<Mix> many_devices() {
  Mix four{"four GPUs 30/70", {}};
  for (unsigned device = 0; device < 4; ++device) {
    for (const double limit : {30.0, 70.0}) {
      four.parts.push_back(capped("training", limit));
      four.parts.back().device = device;
    }
  }
  return {four};
}

std::vector<Mix> weights() {
  return {
      {"weights 25/75 training", {weighted("training", 25, 25), weighted("training", 75, 75)}},
      {"weights 20/30/50", {weighted("training", 20, 20), weighted("training", 30, 30), weighted("graphs", 50, 50)}},
      {"weights 25/75, 4 processes", {weighted("training", 25, 25, 4), weighted("training", 75, 75)}},
      {"weights 30/70 batch", {weighted("batch", 30, 30), weighted("batch", 70, 70)}},
  };
}

std::vector<Meeting> meetings() {
  const auto unjudged = [](Part part) {
    part.target = -1;
    return part;
  };
  std::vector<Meeting> all = {{"sync 60", unjudged(capped("sync", 60)), {}, {}},
                              {"sync of half", weighted("sync", 50, -1), {}, {}},
                              {"decode of half", weighted("decode", 50, -1), {}, {}}};
  for (Meeting& meeting : all) {
    const bool limited = meeting.honest.limit < 100;
    const auto neighbour = [&](const char* program) {
      return limited ? unjudged(capped(program, 40)) : weighted(program, 50, -1);
    };
    for (const char* program : {"training", "idle"}) meeting.fair.push_back(neighbour(program));
    for (const char* program : {"scribbler", "claimer", "stopped"}) meeting.hostile.push_back(neighbour(program));
  }
  return all;
}

std::vector<Mix> as_often(std::vector<Mix> mixes) {
  for (Mix& mix : mixes) mix.windows = 0;
  return mixes;
}

std::vector<Mix> confirming_caps() {
  const std::vector<std::string> names = {
      "training 30/70",       "varying shapes 30/70", "graphs 30, training 70",    "decode 30, training 70",
      "sync 30, training 70", "five unequal",         "4 streams 30, training 70", "two GPUs 30/70 and 80/20"};
  std::vector<Mix> mixes = caps();
  std::erase_if(mixes, [&](const Mix& mix) { return std::find(names.begin(), names.end(), mix.name) == names.end(); });
  return mixes;
}

}  // namespace tensor_fusion::bench::share
