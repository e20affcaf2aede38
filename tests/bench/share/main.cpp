// share_bench: does the compute a tenant gets equal what it was given? Real limiter, real share loop, real processes, a
// simulated GPU; the device's own account is the judge. Prints a row per mix, what was missed, and one line of results;
// exit 0 only if everything ran and every bar held.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "guest/limiter/testing/scratch.h"
#include "tests/bench/share/comparison.h"
#include "tests/bench/share/trials.h"
#include "tests/bench/share/worker.h"

namespace tensor_fusion::bench::share {
namespace {

// The mixes of one kind together, beside each by itself.
void hold_all(Bench& bench, const std::string& kind, const Total& total, Bar bar) {
  if (!total.empty()) bench.hold(kind + ", all", total.mean_error(), total.errors.empty() ? 0 : total.p95(), bar);
}

bool any_wanted(const Bench& bench, const std::vector<Mix>& mixes) {
  return std::any_of(mixes.begin(), mixes.end(), [&](const Mix& mix) { return bench.wanted(mix.name); });
}

Total run_caps(Bench& bench) {
  if (!any_wanted(bench, caps())) return {};
  std::printf("caps (share of device time / target: the limit, of tenants that wait the part they reach alone)\n");
  const Total total = bench.run_all("caps", caps(), kMachine, Limiter::ours, kCapsBar);
  hold_all(bench, "caps", total, kCapsBar);
  if (!total.empty()) {
    std::printf(
        "  %-28s mean %.2f, p95 %.2f; with anything up to the limit right for those that wait: mean %.2f, p95 "
        "%.2f\n",
        "all", total.mean_error(), total.p95(), mean(total.means_to_limit), percentile(total.errors_to_limit, 0.95));
  }
  return total;
}

Total run_weights(Bench& bench) {
  if (!any_wanted(bench, weights())) return {};
  std::printf("weights between request and limit\n");
  const Total total = bench.run_all("weights", weights(), kMachine, Limiter::ours, kWeightsBar);
  hold_all(bench, "weights", total, kWeightsBar);
  return total;
}

// A machine is what the first scene of its folder made it: another one needs another folder.
template <class Run>
void on_another_machine(Bench& bench, const Run& run) {
  const std::string directory = bench.paths.directory;
  bench.paths.directory += "-other";
  static_cast<void>(!std::system(("mkdir -p '" + bench.paths.directory + "'").c_str()));
  run();
  static_cast<void>(!std::system(("rm -rf '" + bench.paths.directory + "'").c_str()));
  bench.paths.directory = directory;
}

void run_many_devices(Bench& bench) {
  if (!any_wanted(bench, many_devices())) return;
  std::printf("caps on a machine of four\n");
  on_another_machine(bench, [&] { bench.run_all("caps", many_devices(), kManyMachine, Limiter::ours, kCapsBar); });
}

// The same figures from the real hypervisor and `tensor-fusion run`: what is measured in-process must be what a user
// has.
void confirm(Bench& bench) {
  std::printf("the same by `tensor-fusion run` and the hypervisor it starts\n");
  const std::string caps = "by tensor-fusion run, caps", weighted = "by tensor-fusion run, weights";
  const Total capped = bench.run_all(caps, confirming_caps(), kMachine, Limiter::product, kCapsBar);
  hold_all(bench, caps, capped, kCapsBar);
  const Total shared = bench.run_all(weighted, weights(), kMachine, Limiter::product, kWeightsBar);
  hold_all(bench, weighted, shared, kWeightsBar);
  std::printf("  %-28s caps mean %.2f, p95 %.2f; weights mean %.2f, p95 %.2f\n", "all", capped.mean_error(),
              capped.p95(), shared.mean_error(), shared.p95());
}

Column compare(Bench& bench, const char* title, const char* machine, Limiter limiter) {
  std::printf("compared: %s\n", title);
  Column column{title, {}, {}, limiter == Limiter::ours};
  column.caps = bench.run_all("compared", as_often(caps()), machine, limiter, {});
  if (column.knows_weights) {
    column.weights = bench.run_all("compared", as_often(weights()), machine, limiter, {});
  } else {
    std::printf("  (knows no weights: those mixes have nothing to hold it to)\n");
  }
  return column;
}

// The mixes of the tables above, for fewer windows.
void compare_all(Bench& bench, const Total& capped, const Total& shared) {
  constexpr unsigned kWindows = 3;
  const unsigned windows = std::exchange(bench.windows, std::min(bench.windows, kWindows));
  std::vector<Column> columns = {{"ours", capped, shared}};
  on_another_machine(bench, [&] { columns.push_back(compare(bench, "ours, 100 us", kSlowMachine, Limiter::ours)); });
  columns.push_back(compare(bench, "no limiter", kMachine, Limiter::none));
  columns.push_back(compare(bench, "block counts", kMachine, Limiter::feedback));
  bench.windows = windows;
  print_comparison(columns);
}

int run(Bench& bench) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Verdict& verdict = bench.verdict;
  if (bench.only_compared) {
    compare_all(bench, {}, {});
    verdict.print();
    return verdict.good() ? 0 : 1;
  }
  const Total caps = run_caps(bench);
  run_many_devices(bench);
  const Total weights = run_weights(bench);
  if (bench.only.empty() || bench.only == "run") {
    const std::string only = std::exchange(bench.only, "");
    confirm(bench);
    bench.only = only;
  }
  double lent = -1, back = -1, one = -1, four = -1, decode = -1, dead = -1;
  if (bench.wanted("lent")) lent = lent_percent(bench);
  if (lent >= 0) verdict.at_least("lent, percent used", lent, 97);
  if (bench.wanted("return")) back = return_ms(bench);
  if (back >= 0) verdict.at_most("return, ms", back, 30);
  if (bench.wanted("throughput")) {
    one = throughput_percent(bench, "training");
    four = throughput_percent(bench, "streams4");
  }
  if (one >= 0) verdict.at_least("throughput, one stream", one, 97);
  if (four >= 0) verdict.at_least("throughput, four streams", four, 85);
  if (bench.wanted("decode step")) decode = decode_p99_ratio(bench);
  if (decode >= 0) verdict.at_most("decode step, p99 in bars", decode, 1);
  if (bench.wanted("dead")) dead = dead_error(bench);
  if (dead >= 0) verdict.at_most("hypervisor killed, points of any window", dead, 5);
  for (const Meeting& meeting : meetings()) {
    if (!bench.wanted("hostile " + meeting.name)) continue;
    const double kept = kept_percent(bench, meeting);
    if (kept >= 0) verdict.at_least("hostile: " + meeting.name + ", percent kept", kept, 90);
  }
  if (bench.wanted("denier")) {
    const double denied = denied_percent(bench);
    if (denied >= 0) verdict.at_most("denier limited to 20, points it has", denied, 23);
  }
  if (bench.only.empty()) compare_all(bench, caps, weights);
  verdict.print();
  std::printf(
      "bench share: caps_mean=%.2f caps_p95=%.2f weights_mean=%.2f weights_p95=%.2f lent_percent=%.2f return_ms=%.2f "
      "throughput_percent=%.2f throughput4_percent=%.2f decode_p99_ratio=%.2f dead_error=%.2f\n",
      caps.mean_error(), caps.p95(), weights.mean_error(), weights.p95(), lent, back, one, four, decode, dead);
  return verdict.good() ? 0 : 1;
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace
}  // namespace tensor_fusion::bench::share

int main(int count, char** arguments) {
  using namespace tensor_fusion::bench::share;
  if (count == 5 && std::strcmp(arguments[1], "--worker") == 0)
    return work(arguments[2], std::atoi(arguments[3]), arguments[4]);
  if (count == 6 && std::strcmp(arguments[1], "--workers") == 0)
    return work_together(arguments[2], std::atoi(arguments[3]), arguments[4], std::atoi(arguments[5]));
  Bench bench;
  std::string build;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--only") == 0 && i + 1 < count) {
      bench.only = arguments[++i];
    } else if (std::strcmp(arguments[i], "--windows") == 0 && i + 1 < count) {
      bench.windows = static_cast<unsigned>(std::max(1, std::atoi(arguments[++i])));
    } else if (std::strcmp(arguments[i], "--build") == 0 && i + 1 < count) {
      build = arguments[++i];
    } else if (std::strcmp(arguments[i], "--compare") == 0) {
      bench.only_compared = true;
    } else {
      std::fprintf(stderr, "share_bench [--only PART OF A NAME] [--compare] [--windows N] [--build FOLDER]\n");
      return 2;
    }
  }
  char self[4096] = {};
  if (::readlink("/proc/self/exe", self, sizeof self - 1) <= 0) return 1;
  bench.paths.self = self;
  if (build.empty()) build = folder_of(folder_of(self));
  bench.paths.limiter = build + "/lib/libtensor_fusion_limiter.so";
  bench.paths.program = build + "/bin/tensor-fusion";
  bench.paths.driver = build + "/sim";
  std::string directory = tensor_fusion::guest::limiter::testing::scratch_base() + "/share-bench-XXXXXX";
  if (::mkdtemp(directory.data()) == nullptr) return 1;
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
