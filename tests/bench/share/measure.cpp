#include "tests/bench/share/measure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace tensor_fusion::bench::share {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

// How far a share lies from where it may be, when a tenant that waits for its launches may have anything from limit x
// alone to its limit.
double beyond_limit(const Part& part, double share) {
  const double most = std::max(part.target, part.request < part.limit ? part.target : part.limit);
  return share < part.target ? part.target - share : share > most ? share - most : 0;
}

void show(const Mix& mix, const Row& row) {
  std::printf("  %-28s error %5.2f p95 %5.2f busy %5.1f daemon %4.1f%% |", mix.name.c_str(), row.mean_error,
              row.p95_error, row.busy, row.cpu);
  for (std::size_t p = 0; p < mix.parts.size(); ++p) {
    const Part& part = mix.parts[p];
    std::printf(" %s%s %.1f", part.program.c_str(), part.processes > 1 ? "x4" : "", row.shares[p]);
    if (part.target >= 0) std::printf("/%.1f", part.target);
    if (part.target >= 0 && part.request == part.limit && part.limit > part.target)
      std::printf(" (limit %g)", part.limit);
  }
  if (mix.own)
    std::printf("  (its own bars: %g / %g, exception: %s)", mix.own->mean, mix.own->p95, mix.exception.c_str());
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

// What each had in each window.
std::optional<std::vector<std::vector<double>>> Bench::watch(const Mix& mix, const char* machine, Limiter limiter,
                                                             Row& row) {
  Scene scene(paths, machine, mix.parts, limiter);
  if (!scene.start()) return std::nullopt;
  const unsigned settle = limiter == Limiter::feedback ? 4 : 2;
  for (unsigned i = 0; i < settle * 10; ++i) wait_ns(kSecond / 10), scene.sample();
  scene.busy_percent(mix.parts[0].device);
  std::uint64_t last_sample = 0;
  std::vector<std::vector<double>> seen(mix.parts.size());
  for (unsigned window = 0; window < (mix.windows != 0 ? mix.windows : windows); ++window) {
    std::vector<double> sum(mix.parts.size(), 0);
    // Sampled ten times a window, so that the feedback limiter has its readings; a window is their mean.
    const std::uint64_t began = sim::device::now_ns();
    double passed = 0;
    for (unsigned i = 0; i < 10; ++i) {
      const std::uint64_t before = sim::device::now_ns();
      const std::uint64_t until = began + kSecond * (i + 1) / 10;
      if (until > before) wait_ns(until - before);
      const std::uint64_t at = last_sample == 0 ? before : last_sample;
      const auto shares = scene.sample();
      last_sample = sim::device::now_ns();
      const double span = static_cast<double>(last_sample - at);
      for (std::size_t p = 0; p < shares.size(); ++p) sum[p] += shares[p] * span;
      passed += span;
    }
    for (std::size_t p = 0; p < sum.size(); ++p) seen[p].push_back(sum[p] / passed);
    if (std::getenv("SHARE_BENCH_TRACE") != nullptr)
      for (std::size_t p = 0; p < sum.size(); ++p)
        std::printf("    window %u: %s %.1f\n", window, mix.parts[p].program.c_str(), seen[p].back());
  }
  row.busy = scene.busy_percent(mix.parts[0].device);
  row.cpu = scene.daemon_cpu_percent();
  return seen;
}

// By itself and unlimited: what waiting for every launch leaves of the device.
std::optional<double> Bench::alone_percent(const Part& part, const char* machine) {
  Mix mix{part.program + " alone", {weighted(part.program, 100, -1)}};
  mix.windows = 2;
  Row row;
  const auto seen = watch(mix, machine, Limiter::none, row);
  if (!seen) return std::nullopt;
  return mean(seen->front());
}

Row Bench::run(const Mix& asked, const char* machine, Limiter limiter) {
  Row row;
  Mix mix = asked;
  const auto missing = [&] {
    std::printf("  %-28s did not run\n", mix.name.c_str());
    verdict.did_not_run(mix.name);
    return row;
  };
  const auto waits = std::find_if(mix.parts.begin(), mix.parts.end(), [](const Part& part) { return part.waits; });
  const bool any_waits = waits != mix.parts.end();
  const auto before = any_waits ? alone_percent(*waits, machine) : 100.0;
  const auto watched = watch(mix, machine, limiter, row);
  const auto after = any_waits ? alone_percent(*waits, machine) : 100.0;
  if (!before || !watched || !after) return missing();
  if (any_waits) waits->target = std::min(waits->limit, waits->limit * (*before + *after) / 200);
  const std::vector<std::vector<double>>& seen = *watched;
  row.ran = true;
  unsigned judged = 0;
  for (std::size_t p = 0; p < mix.parts.size(); ++p) {
    row.shares.push_back(mean(seen[p]));
    const double target = mix.parts[p].target;
    if (target < 0) continue;
    ++judged;
    row.mean_error += std::abs(row.shares.back() - target);
    row.mean_to_limit += beyond_limit(mix.parts[p], row.shares.back());
    for (const double share : seen[p]) {
      row.errors.push_back(std::abs(share - target));
      row.errors_to_limit.push_back(beyond_limit(mix.parts[p], share));
    }
  }
  row.mean_error /= std::max(1u, judged);
  row.mean_to_limit /= std::max(1u, judged);
  row.p95_error = percentile(row.errors, 0.95);
  show(mix, row);
  if (any_waits) std::printf("  %-28s %.1f before, %.1f after\n", (waits->program + " alone").c_str(), *before, *after);
  return row;
}

void Bench::hold(const std::string& what, double mean_error, double p95, Bar bar) {
  verdict.at_most(what + ", mean", mean_error, bar.mean);
  verdict.at_most(what + ", p95", p95, bar.p95);
}

Total Bench::run_all(const std::string& kind, const std::vector<Mix>& mixes, const char* machine, Limiter limiter,
                     std::optional<Bar> bar) {
  Total total;
  for (const Mix& mix : mixes) {
    if (!wanted(mix.name)) continue;
    const Row row = run(mix, machine, limiter);
    if (!row.ran) continue;
    total.add(mix.name, row, !mix.own);
    if (bar) hold(kind + ": " + mix.name, row.mean_error, row.p95_error, mix.own.value_or(*bar));
  }
  return total;
}

}  // namespace tensor_fusion::bench::share
