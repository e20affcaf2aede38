#include "tests/bench/share/trials.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace tensor_fusion::bench::share {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr double kSliceMs = 2;

bool started(Bench& bench, Scene& scene, const char* what) {
  if (scene.start()) return true;
  std::printf("%s: did not run\n", what);
  bench.verdict.did_not_run(what);
  return false;
}

}  // namespace

double lent_percent(Bench& bench) {
  Scene scene(bench.paths, kMachine, {weighted("training", 20, -1), weighted("idle", 80, -1)}, Limiter::ours);
  if (!started(bench, scene, "lent")) return -1;
  wait_ns(2 * kSecond);
  scene.sample();
  wait_ns(4 * kSecond);
  const double lent = scene.sample()[0];
  std::printf("lent: a tenant of request 20 beside an idle one of 80 had %.2f%% of the device\n", lent);
  return lent;
}

double return_ms(Bench& bench) {
  Scene scene(bench.paths, kMachine, {weighted("training", 20, -1), weighted("owner", 80, -1)}, Limiter::ours);
  if (!started(bench, scene, "return")) return -1;
  wait_ns(2 * kSecond);
  scene.forget_steps();
  wait_ns(6 * kSecond);
  const auto steps = scene.steps_ms(1);
  if (steps.empty()) {
    bench.verdict.did_not_run("return");
    return -1;
  }
  const double longest = percentile(steps, 1.0);
  std::printf("return: %zu times, median %.2f ms, longest %.2f ms until its first kernel was through\n", steps.size(),
              percentile(steps, 0.5), longest);
  return longest;
}

// Rate of a program's work beside an idle neighbour, which keeps the gate shut but for admissions.
double throughput_percent(Bench& bench, const char* program) {
  double rate[2] = {0, 0};
  for (const Limiter limiter : {Limiter::none, Limiter::ours}) {
    Scene scene(bench.paths, kMachine, {weighted(program, 50, -1), weighted("idle", 50, -1)}, limiter);
    if (!started(bench, scene, "throughput")) return -1;
    wait_ns(kSecond);
    const std::uint64_t before = scene.work_ns(0), at = sim::device::now_ns();
    wait_ns(4 * kSecond);
    rate[limiter == Limiter::ours] =
        static_cast<double>(scene.work_ns(0) - before) / static_cast<double>(sim::device::now_ns() - at);
  }
  const double percent = rate[0] > 0 ? rate[1] / rate[0] * 100 : -1;
  std::printf("throughput of %s beside an idle neighbour: %.2f%% of no limiter\n", program, percent);
  return percent;
}

double decode_p99_ratio(Bench& bench) {
  double own = 0;
  {
    Scene scene(bench.paths, kMachine, {weighted("chat", 100, -1)}, Limiter::none);
    if (!started(bench, scene, "decode step")) return -1;
    wait_ns(3 * kSecond);
    own = percentile(scene.steps_ms(0), 0.99);
  }
  Scene scene(bench.paths, kMachine,
              {{"chat", 40, 100, 1, 0, true, -1}, weighted("training", 30, -1), weighted("training", 30, -1)},
              Limiter::ours);
  if (!started(bench, scene, "decode step")) return -1;
  wait_ns(2 * kSecond);
  scene.forget_steps();
  wait_ns(6 * kSecond);
  const auto steps = scene.steps_ms(0);
  if (own <= 0 || steps.empty()) {
    bench.verdict.did_not_run("decode step");
    return -1;
  }
  const double p99 = percentile(steps, 0.99), bar = own + 2 * kSliceMs + 1.0;
  std::printf(
      "decode step beside two others: median %.2f ms, p99 %.2f ms; alone p99 %.2f ms; bar own + 2 slices + 1 ms = "
      "%.2f ms\n",
      percentile(steps, 0.5), p99, own, bar);
  return p99 / bar;
}

double dead_error(Bench& bench) {
  Scene scene(bench.paths, kMachine, {capped("training", 30), capped("training", 70)}, Limiter::ours);
  if (!started(bench, scene, "hypervisor killed")) return -1;
  wait_ns(3 * kSecond);
  scene.sample();
  scene.kill_daemon();
  // In the first the tenants find out, and whoever was admitted goes on until then; nobody may hang in it all the same.
  constexpr int kWindows = 5;
  double error = 0;
  unsigned still = 0;
  std::printf("hypervisor killed: of 30 / 70 in the second of the death, and after:");
  std::uint64_t work[2] = {scene.work_ns(0), scene.work_ns(1)};
  for (int window = 0; window < kWindows; ++window) {
    wait_ns(kSecond);
    const auto shares = scene.sample();
    std::printf("  %.1f / %.1f", shares[0], shares[1]);
    for (std::size_t p = 0; p < 2; ++p) {
      if (window > 0) error = std::max(error, std::abs(shares[p] - scene.parts()[p].target));
      still += scene.work_ns(p) == work[p] ? 1 : 0;
      work[p] = scene.work_ns(p);
    }
  }
  std::printf("; %u without progress\n", still);
  bench.verdict.at_most("hypervisor killed, windows of a tenant without progress", still, 0);
  return error;
}

double kept_percent(Bench& bench, const Meeting& meeting) {
  double fair = 100, worst = 100;
  const unsigned windows = std::exchange(bench.windows, std::min(bench.windows, 3u));
  for (const auto* neighbours : {&meeting.fair, &meeting.hostile}) {
    for (const Part& neighbour : *neighbours) {
      const Row row =
          bench.run({meeting.name + ", " + neighbour.program, {meeting.honest, neighbour}}, kMachine, Limiter::ours);
      if (!row.ran) {
        bench.windows = windows;
        return -1;
      }
      double& least = neighbours == &meeting.fair ? fair : worst;
      least = std::min(least, row.shares[0]);
    }
  }
  bench.windows = windows;
  const double kept = fair > 0 ? worst / fair * 100 : -1;
  std::printf("%s: %.1f beside a hostile neighbour, %.1f beside a fair one: kept %.0f%%\n", meeting.name.c_str(), worst,
              fair, kept);
  return kept;
}

double denied_percent(Bench& bench) {
  const unsigned windows = std::exchange(bench.windows, std::max(bench.windows, 8u));
  double most = -1;
  for (const char* neighbour : {"training", "idle"}) {
    const Row row = bench.run({std::string("denier 20, ") + neighbour, {capped("denier", 20), capped(neighbour, 80)}},
                              kMachine, Limiter::product);
    if (row.ran) most = std::max(most, row.shares[0]);
  }
  bench.windows = windows;
  return most;
}

}  // namespace tensor_fusion::bench::share
