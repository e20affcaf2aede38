// card_bench: what slices do to programs on this machine's own first card, real or simulated, as a user has them: by
// `tensor-fusion run`. A share is what a program gets done in a second against what it gets done alone. Exit 0 only if
// everything ran and every bar held.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "guest/limiter/testing/build_folder.h"
#include "tests/bench/card/scene.h"
#include "tests/bench/card/worker.h"
#include "tests/bench/share/figures.h"

namespace tensor_fusion::bench::card {
namespace {

struct Results {
  std::vector<double> errors;  // points, of each program and second
  double lent = -1, throughput = -1;
  std::int64_t overshoot = -1;  // bytes
  Calls plain, slice;
  bool good = true;

  void hold(const char* what, double value, const char* bar, bool held) {
    std::printf("  %-44s %10.2f   %s%s\n", what, value, bar, held ? "" : "   MISSED");
    good = good && held;
  }
  bool absent(const char* what) {
    std::printf("  %-44s did not run\n", what);
    return good = false;
  }
};

// -1: did not run.
double mean(const std::vector<double>& values) { return values.empty() ? -1 : share::mean(values); }
double p95(const std::vector<double>& values) { return values.empty() ? -1 : share::percentile(values, 0.95); }

// Between two measurements of what a program gets done alone, so that a card that slows down as it warms is seen.
bool measure_shares(Scene& scene, unsigned seconds, Results& results) {
  const auto before = scene.rate_alone({}, seconds);
  if (!before) return results.absent("a program alone on the card");
  const auto whole = scene.rate_alone(Slice{}, seconds);
  const auto lent = scene.rate_alone(Slice{.request = 30}, seconds);
  const std::vector<std::vector<int>> mixes = {{30, 70}, {10, 90}, {25}};
  std::vector<std::optional<std::vector<std::vector<double>>>> got;
  for (const auto& mix : mixes) {
    std::vector<Slice> slices;
    for (const int limit : mix) slices.push_back({.request = limit, .limit = limit});
    got.push_back(scene.rates(slices, seconds));
  }
  const auto after = scene.rate_alone({}, seconds);
  if (!after) return results.absent("a program alone on the card, again");
  const double alone = (*before + *after) / 2;
  std::printf("  alone %.0f kernels a second, afterwards %.0f", *before, *after);
  std::printf(std::abs(*after - *before) > 0.03 * alone
                  ? ": this card changes its speed, and shares cannot be told closer than that\n"
                  : "\n");
  for (std::size_t i = 0; i < mixes.size(); ++i) {
    if (!got[i]) {
      results.absent("a mix of limits");
      continue;
    }
    std::printf("  together, limit: got, percent of alone ");
    for (std::size_t part = 0; part < mixes[i].size(); ++part) {
      for (const double rate : (*got[i])[part]) results.errors.push_back(std::abs(100 * rate / alone - mixes[i][part]));
      std::printf("   %d: %.2f", mixes[i][part], 100 * mean((*got[i])[part]) / alone);
    }
    std::printf("\n");
  }
  if (!whole || !lent) return results.absent("a program alone in a slice");
  results.throughput = 100 * *whole / alone;
  results.lent = 100 * *lent / alone;
  std::printf("  %-44s %10s   %s\n", "measured, unit", "got", "promised");
  results.hold("caps, mean error, points", mean(results.errors), "at most 1.5", mean(results.errors) <= 1.5);
  results.hold("caps, p95, points", p95(results.errors), "at most 3", p95(results.errors) <= 3);
  results.hold("of the card lent to a request of 30, percent", results.lent, "at least 97", results.lent >= 97);
  results.hold("throughput in a slice, percent", results.throughput, "at least 97", results.throughput >= 97);
  return results.good;
}

void measure_memory(Scene& scene, Results& results) {
  const auto filled = scene.filled({.vram = "25%"});
  if (!filled) {
    results.absent("four processes that fill their slice");
    return;
  }
  results.overshoot = std::max<std::int64_t>(0, filled->held_bytes - filled->limit_bytes);
  const double part = 100.0 * static_cast<double>(filled->held_bytes) / static_cast<double>(filled->limit_bytes);
  results.hold("bytes beyond a limit of a quarter of the card", static_cast<double>(results.overshoot), "0",
               results.overshoot == 0);
  results.hold("of that quarter filled, percent", part, "at least 90", part >= 90);
}

void measure_calls(Scene& scene, Results& results) {
  const auto plain = scene.calls({}), slice = scene.calls(Slice{}),
             half = scene.calls(Slice{.request = 50, .limit = 50});
  if (!plain || !slice || !half) {
    results.absent("calls");
    return;
  }
  results.plain = *plain;
  results.slice = *half;
  std::printf("  %-44s %10s %10s %10s\n", "one call, unit (promised: `bench limiter`)", "no slice", "no limits",
              "50 %");
  const auto row = [&](const char* what, double Calls::* figure) {
    std::printf("  %-44s %10.1f %10.1f %10.1f\n", what, (*plain).*figure, (*slice).*figure, (*half).*figure);
  };
  row("launch, ns", &Calls::launch_ns);
  row("allocate and free, ns", &Calls::alloc_ns);
  row("driver and context started, ms", &Calls::start_ms);
}

int run(Scene& scene, unsigned seconds) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (!scene.prepare()) return 1;
  std::printf("card: %s, by tensor-fusion run; seconds from the third on, %u of each mix\n", scene.card().c_str(),
              seconds);
  Results results;
  measure_calls(scene, results);
  measure_shares(scene, seconds, results);
  measure_memory(scene, results);
  std::printf(
      "bench card: caps_mean=%.2f caps_p95=%.2f lent_percent=%.2f throughput_percent=%.2f overshoot_bytes=%lld "
      "launch_plain_ns=%.0f launch_slice_ns=%.0f alloc_plain_ns=%.0f alloc_slice_ns=%.0f\n",
      mean(results.errors), p95(results.errors), results.lent, results.throughput,
      static_cast<long long>(results.overshoot), results.plain.launch_ns, results.slice.launch_ns,
      results.plain.alloc_ns, results.slice.alloc_ns);
  return results.good ? 0 : 1;
}

}  // namespace
}  // namespace tensor_fusion::bench::card

int main(int count, char** arguments) {
  using namespace tensor_fusion;
  using namespace tensor_fusion::bench::card;
  ::signal(SIGPIPE, SIG_IGN);
  const std::string folder = guest::limiter::testing::build_folder(), self = folder + "/bench/card_bench";
  unsigned seconds = 4;
  if (count == 2 && std::strcmp(arguments[1], "--worker") == 0) return work();
  if (count == 3 && std::strcmp(arguments[1], "--workers") == 0) return work_together(self, std::atoi(arguments[2]));
  if (count == 3 && std::strcmp(arguments[1], "--seconds") == 0)
    seconds = static_cast<unsigned>(std::max(1, std::atoi(arguments[2])));
  else if (count != 1) {
    std::fprintf(stderr, "card_bench [--seconds N]\n");
    return 2;
  }
  Scene scene(self, folder);
  return run(scene, seconds);
}
