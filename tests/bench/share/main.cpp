// share_bench: does the compute a tenant gets equal what it was given? Real limiter, real share loop, real processes, a
// simulated GPU; the device's own account is the judge. Prints a row per mix and one line of results.
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/bench/share/scene.h"
#include "tests/bench/share/worker.h"

namespace tensor_fusion::bench::share {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
const char* kMachine = "2xh100";
const char* kSlowMachine = "2xh100;switch_us=100";

double percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(part * static_cast<double>(values.size())))];
}
double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// How far a share lies from where it should: a tenant that waits for its launches reaches between limit x alone (what
// phases with the device to itself give) and its limit.
double outside(const Part& part, double share) {
  const double most = part.most < 0 ? part.target : part.most;
  return share < part.target ? part.target - share : share > most ? share - most : 0;
}

struct Mix {
  std::string name;
  std::vector<Part> parts;
  const char* exception = nullptr;  // an honest bar of its own, printed with the row
};

struct Row {
  bool ran = false;
  std::vector<double> shares;  // mean per part
  double mean_error = 0, p95_error = 0, busy = 0, cpu = 0;
  std::vector<double> errors;  // of every window
  double strict = 0;           // mean distance from the lower target alone
};

struct Bench {
  Paths paths;
  unsigned windows = 4;
  std::string only;
  bool wanted(const std::string& name) const { return only.empty() || name.find(only) != std::string::npos; }

  Row run(const Mix& mix, const char* machine, Limiter limiter, bool print = true) {
    Row row;
    Scene scene(paths, machine, mix.parts, limiter);
    if (!scene.start()) {
      std::printf("  %-28s did not run\n", mix.name.c_str());
      return row;
    }
    const unsigned settle = limiter == Limiter::feedback ? 4 : 2;
    for (unsigned i = 0; i < settle * 10; ++i) wait_ns(kSecond / 10), scene.sample();
    scene.busy_percent(mix.parts[0].device);
    std::vector<std::vector<double>> seen(mix.parts.size());
    for (unsigned window = 0; window < windows; ++window) {
      std::vector<double> sum(mix.parts.size(), 0);
      // Sampled ten times a window, so that the feedback limiter has its readings; a window is their mean.
      const std::uint64_t began = sim::device::now_ns();
      double passed = 0;
      for (unsigned i = 0; i < 10; ++i) {
        const std::uint64_t before = sim::device::now_ns();
        const std::uint64_t until = began + kSecond * (i + 1) / 10;
        if (until > before) wait_ns(until - before);
        const std::uint64_t at = last_sample_ == 0 ? before : last_sample_;
        const auto shares = scene.sample();
        last_sample_ = sim::device::now_ns();
        const double span = static_cast<double>(last_sample_ - at);
        for (std::size_t p = 0; p < shares.size(); ++p) sum[p] += shares[p] * span;
        passed += span;
      }
      for (std::size_t p = 0; p < sum.size(); ++p) seen[p].push_back(sum[p] / passed);
    }
    last_sample_ = 0;
    row.busy = scene.busy_percent(mix.parts[0].device);
    row.cpu = scene.daemon_cpu_percent();
    row.ran = true;
    unsigned judged = 0;
    for (std::size_t p = 0; p < mix.parts.size(); ++p) {
      row.shares.push_back(mean(seen[p]));
      const double target = mix.parts[p].target;
      if (target < 0) continue;
      ++judged;
      row.mean_error += outside(mix.parts[p], row.shares.back());
      row.strict += std::abs(row.shares.back() - target);
      for (const double share : seen[p]) row.errors.push_back(outside(mix.parts[p], share));
    }
    row.mean_error /= std::max(1u, judged);
    row.strict /= std::max(1u, judged);
    row.p95_error = percentile(row.errors, 0.95);
    if (print) show(mix, row);
    return row;
  }

  static void show(const Mix& mix, const Row& row) {
    std::printf("  %-28s error %5.2f p95 %5.2f busy %5.1f daemon %4.1f%% |", mix.name.c_str(), row.mean_error,
                row.p95_error, row.busy, row.cpu);
    for (std::size_t p = 0; p < mix.parts.size(); ++p) {
      const Part& part = mix.parts[p];
      std::printf(" %s%s %.1f", part.program.c_str(), part.processes > 1 ? "x4" : "", row.shares[p]);
      if (part.target >= 0) std::printf("/%.1f", part.target);
      if (part.most > part.target) std::printf("..%.1f", part.most);
    }
    if (mix.exception != nullptr) std::printf("  (bar: %s)", mix.exception);
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  std::uint64_t last_sample_ = 0;
};

struct Total {
  double error = 0;
  double strict = 0;
  unsigned mixes = 0;
  std::vector<double> errors;  // windows under the common bar
  void add(const Row& row, bool common) {
    if (!row.ran) return;
    error += row.mean_error;
    strict += row.strict;
    ++mixes;
    if (common) errors.insert(errors.end(), row.errors.begin(), row.errors.end());
  }
  double mean_error() const { return mixes == 0 ? -1 : error / mixes; }
  double p95() const { return errors.empty() ? -1 : percentile(errors, 0.95); }
};

Part capped(std::string program, double limit, double alone = 100, unsigned processes = 1) {
  return {std::move(program), limit, limit, processes, 0, false, std::min(limit, limit * alone / 100), limit};
}
Part weighted(std::string program, double request, double target, unsigned processes = 1) {
  return {std::move(program), request, 100, processes, 0, false, target, -1};
}

std::vector<Mix> caps(double sync_alone, double decode_alone) {
  std::vector<Mix> mixes = {
      {"training 10/90", {capped("training", 10), capped("training", 90)}},
      {"training 30/70", {capped("training", 30), capped("training", 70)}},
      {"training 30/30", {capped("training", 30), capped("training", 30)}},
      {"batch 30/70", {capped("batch", 30), capped("batch", 70)}},
      {"batch 10, training 90",
       {capped("batch", 10), capped("training", 90)},
       "p95 5: kernels > 10 ms at a limit of 10"},
      {"graphs 30, training 70", {capped("graphs", 30), capped("training", 70)}},
      {"graphs 30", {capped("graphs", 30)}},
      {"single 25", {capped("training", 25)}},
      {"decode 30, training 70", {capped("decode", 30, decode_alone), capped("training", 70)}},
      {"sync 30, training 70", {capped("sync", 30, sync_alone), capped("training", 70)}},
      {"sync 60, training 40", {capped("sync", 60, sync_alone), capped("training", 40)}, "p95 5: sync above 50"},
      {"4 processes 30 against 1", {capped("training", 30, 100, 4), capped("training", 70)}},
      {"five unequal",
       {capped("training", 35), capped("graphs", 25), capped("training", 20), capped("training", 12),
        capped("training", 8)}},
      {"4 streams 30, training 70", {capped("streams4", 30), capped("training", 70)}, "3 / 7: four streams"},
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

void compare(Bench& bench, const char* title, const char* machine, Limiter limiter, const std::vector<Mix>& mixes) {
  std::printf("%s\n", title);
  Total total;
  for (const Mix& mix : mixes) total.add(bench.run(mix, machine, limiter), true);
  std::printf("  %-28s error %5.2f p95 %5.2f\n", "all", total.mean_error(), total.p95());
}

// Rate of a program's work beside an idle neighbour, which keeps the gate shut but for admissions; in percent of no
// limiter at all.
double throughput(Bench& bench, const char* program) {
  double rate[2] = {0, 0};
  for (const Limiter limiter : {Limiter::none, Limiter::ours}) {
    Scene scene(bench.paths, kMachine, {weighted(program, 50, -1), weighted("idle", 50, -1)}, limiter);
    if (!scene.start()) return -1;
    wait_ns(kSecond);
    const std::uint64_t before = scene.work_ns(0), at = sim::device::now_ns();
    wait_ns(4 * kSecond);
    rate[limiter == Limiter::ours] =
        static_cast<double>(scene.work_ns(0) - before) / static_cast<double>(sim::device::now_ns() - at);
  }
  return rate[0] > 0 ? rate[1] / rate[0] * 100 : -1;
}

int run(Bench& bench) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  // Alone and unlimited: what waiting for every launch costs by itself.
  const Row sync_alone = bench.run({"sync alone", {weighted("sync", 100, -1)}}, kMachine, Limiter::none);
  const Row decode_alone = bench.run({"decode alone", {weighted("decode", 100, -1)}}, kMachine, Limiter::none);
  if (!sync_alone.ran || !decode_alone.ran) return 1;

  std::printf(
      "caps (share of device time / target: the limit, or from limit x alone to the limit for tenants that wait)\n");
  Total cap_total;
  for (const Mix& mix : caps(sync_alone.shares[0], decode_alone.shares[0])) {
    if (bench.wanted(mix.name)) cap_total.add(bench.run(mix, kMachine, Limiter::ours), mix.exception == nullptr);
  }
  std::printf("  strict, against limit x alone for tenants that wait: mean %.2f\n",
              cap_total.mixes == 0 ? -1 : cap_total.strict / cap_total.mixes);
  std::printf("weights between request and limit\n");
  Total weight_total;
  for (const Mix& mix : weights()) {
    if (bench.wanted(mix.name)) weight_total.add(bench.run(mix, kMachine, Limiter::ours), true);
  }

  double lent = -1, give_back = -1, one = -1, four = -1, decode_ratio = -1, dead = -1;
  if (bench.wanted("lent")) {
    Scene scene(bench.paths, kMachine, {weighted("training", 20, -1), weighted("idle", 80, -1)}, Limiter::ours);
    if (scene.start()) {
      wait_ns(2 * kSecond);
      scene.sample();
      wait_ns(4 * kSecond);
      lent = scene.sample()[0];
      std::printf("lent: a tenant of request 20 beside an idle one of 80 had %.2f%% of the device\n", lent);
    }
  }
  if (bench.wanted("return")) {
    Scene scene(bench.paths, kMachine, {weighted("training", 20, -1), weighted("owner", 80, -1)}, Limiter::ours);
    if (scene.start()) {
      wait_ns(2 * kSecond);
      scene.forget_steps();
      wait_ns(6 * kSecond);
      const auto steps = scene.steps_ms(1);
      give_back = percentile(steps, 1.0);
      std::printf("return: %zu times, median %.2f ms, longest %.2f ms until its first kernel was through\n",
                  steps.size(), percentile(steps, 0.5), give_back);
    }
  }
  if (bench.wanted("throughput")) {
    one = throughput(bench, "training");
    four = throughput(bench, "streams4");
    std::printf("throughput beside an idle neighbour: one stream %.2f%%, four streams %.2f%% of no limiter\n", one,
                four);
  }
  if (bench.wanted("decode step")) {
    double own = 0;
    {
      Scene scene(bench.paths, kMachine, {weighted("chat", 100, -1)}, Limiter::none);
      if (scene.start()) {
        wait_ns(3 * kSecond);
        own = percentile(scene.steps_ms(0), 0.99);
      }
    }
    Scene scene(bench.paths, kMachine,
                {{"chat", 40, 100, 1, 0, true, -1, -1}, weighted("training", 30, -1), weighted("training", 30, -1)},
                Limiter::ours);
    if (own > 0 && scene.start()) {
      wait_ns(2 * kSecond);
      scene.forget_steps();
      wait_ns(6 * kSecond);
      const auto steps = scene.steps_ms(0);
      const double p99 = percentile(steps, 0.99), bar = own + 2 * 2.0 + 1.0;
      decode_ratio = p99 / bar;
      std::printf(
          "decode step beside two others: median %.2f ms, p99 %.2f ms; alone p99 %.2f ms; bar own + 2 slices + 1 ms = "
          "%.2f ms\n",
          percentile(steps, 0.5), p99, own, bar);
    }
  }
  if (bench.wanted("dead")) {
    Scene scene(bench.paths, kMachine, {capped("training", 30), capped("training", 70)}, Limiter::ours);
    if (scene.start()) {
      wait_ns(3 * kSecond);
      scene.kill_daemon();
      wait_ns(kSecond);
      scene.sample();
      dead = 0;
      std::vector<double> low = {100, 100}, sum = {0, 0};
      for (int window = 0; window < 4; ++window) {
        wait_ns(kSecond);
        const auto shares = scene.sample();
        for (std::size_t p = 0; p < 2; ++p) {
          low[p] = std::min(low[p], shares[p]);
          sum[p] += shares[p] / 4;
        }
      }
      for (std::size_t p = 0; p < 2; ++p) dead = std::max(dead, std::abs(sum[p] - scene.parts()[p].target));
      std::printf("hypervisor killed: shares %.1f / %.1f of 30 / 70, lowest window %.1f / %.1f\n", sum[0], sum[1],
                  low[0], low[1]);
    }
  }
  if (bench.only.empty()) {
    const unsigned windows = bench.windows;
    bench.windows = 3;
    Bench slow = bench;
    slow.paths.directory += "-slow";
    static_cast<void>(!std::system(("mkdir -p '" + slow.paths.directory + "'").c_str()));
    compare(slow, "a switch of 100 us", kSlowMachine, Limiter::ours, baseline());
    static_cast<void>(!std::system(("rm -rf '" + slow.paths.directory + "'").c_str()));
    compare(bench, "no limiter", kMachine, Limiter::none, baseline());
    compare(bench, "block counts with utilisation feedback", kMachine, Limiter::feedback, baseline());
    bench.windows = windows;
  }
  std::printf(
      "bench share: caps_mean=%.2f caps_p95=%.2f weights_mean=%.2f weights_p95=%.2f lent_percent=%.2f return_ms=%.2f "
      "throughput_percent=%.2f throughput4_percent=%.2f decode_p99_ratio=%.2f dead_error=%.2f\n",
      cap_total.mean_error(), cap_total.p95(), weight_total.mean_error(), weight_total.p95(), lent, give_back, one,
      four, decode_ratio, dead);
  return 0;
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace
}  // namespace tensor_fusion::bench::share

int main(int count, char** arguments) {
  using namespace tensor_fusion::bench::share;
  if (count == 5 && std::strcmp(arguments[1], "--worker") == 0)
    return work(arguments[2], std::atoi(arguments[3]), arguments[4]);
  Bench bench;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--only") == 0 && i + 1 < count) {
      bench.only = arguments[++i];
    } else if (std::strcmp(arguments[i], "--windows") == 0 && i + 1 < count) {
      bench.windows = static_cast<unsigned>(std::max(1, std::atoi(arguments[++i])));
    } else {
      std::fprintf(stderr, "share_bench [--only PART OF A NAME] [--windows N]\n");
      return 2;
    }
  }
  char self[4096] = {};
  if (::readlink("/proc/self/exe", self, sizeof self - 1) <= 0) return 1;
  bench.paths.self = self;
  const std::string build = folder_of(folder_of(self));
  bench.paths.limiter = build + "/lib/libtensor_fusion_limiter.so";
  bench.paths.driver = build + "/sim";
  char directory[] = "/dev/shm/share-bench-XXXXXX";
  if (::mkdtemp(directory) == nullptr) return 1;
  bench.paths.directory = directory;
  // Other work on this host must not enter: where we may, everything here runs ahead of it.
  const sched_param parameters{1};
  const bool ahead = ::sched_setscheduler(0, SCHED_RR, &parameters) == 0;
  std::printf("share: simulated 2 x H100, slices of 2 ms, switch 20 us; windows of 1 s after 2 s; %s\n",
              ahead ? "scheduled ahead of other work" : "scheduled like other work (no right to more)");
  const int result = run(bench);
  static_cast<void>(!std::system((std::string("rm -rf '") + directory + "'").c_str()));
  return result;
}
