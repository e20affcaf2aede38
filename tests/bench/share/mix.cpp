#include "tests/bench/share/mix.h"

#include <algorithm>

namespace tensor_fusion::bench::share {
namespace {

Mix unequal_fives() {
  return {"five unequal",
          {capped("training", 35), capped("graphs", 25), capped("training", 20), capped("training", 12),
           capped("training", 8)}};
}

}  // namespace

Part capped(std::string program, double limit, double alone, unsigned processes) {
  return {std::move(program), limit, limit, processes, 0, false, std::min(limit, limit * alone / 100)};
}

Part weighted(std::string program, double request, double target, unsigned processes) {
  return {std::move(program), request, 100, processes, 0, false, target};
}

std::vector<Mix> caps(double sync_alone, double decode_alone) {
  const Bar longer{5}, streams{7, 3}, launches{9, 2.25};
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
      {"long graphs 30/70",
       {capped("longgraphs", 30), capped("longgraphs", 70)},
       launches,
       "one launch of 90 ms is 9 points of a window, 2.25 of four"},
      {"single 25", {capped("training", 25)}},
      {"decode 30, training 70", {capped("decode", 30, decode_alone), capped("training", 70)}},
      {"sync 30, training 70", {capped("sync", 30, sync_alone), capped("training", 70)}},
      {"sync 60, training 40", {capped("sync", 60, sync_alone), capped("training", 40)}, longer, "sync above 50"},
      {"4 processes 30 against 1", {capped("training", 30, 100, 4), capped("training", 70)}},
      unequal_fives(),
      {"4 streams 30, training 70", {capped("streams4", 30), capped("training", 70)}, streams, "four streams"},
  };
  Mix two{"two GPUs 30/70 and 80/20",
          {capped("training", 30), capped("training", 70), capped("training", 80), capped("training", 20)}};
  two.parts[2].device = two.parts[3].device = 1;
  mixes.push_back(two);
  return mixes;
}

std::vector<Mix> weights() {
  return {
      {"weights 25/75 training", {weighted("training", 25, 25), weighted("training", 75, 75)}},
      {"weights 20/30/50", {weighted("training", 20, 20), weighted("training", 30, 30), weighted("graphs", 50, 50)}},
      {"weights 25/75, 4 processes", {weighted("training", 25, 25, 4), weighted("training", 75, 75)}},
      {"weights 30/70 batch", {weighted("batch", 30, 30), weighted("batch", 70, 70)}},
  };
}

std::vector<Mix> baseline() {
  return {
      {"training 10/90", {capped("training", 10), capped("training", 90)}},
      {"training 30/70", {capped("training", 30), capped("training", 70)}},
      {"graphs 30", {capped("graphs", 30)}},
      {"single 25", {capped("training", 25)}},
      {"4 processes 30 against 1", {capped("training", 30, 100, 4), capped("training", 70)}},
  };
}

std::vector<Mix> confirming() {
  std::vector<Mix> mixes = {{"training 30/70", {capped("training", 30), capped("training", 70)}}, unequal_fives()};
  for (Mix& mix : weights()) mixes.push_back(std::move(mix));
  return mixes;
}

}  // namespace tensor_fusion::bench::share
