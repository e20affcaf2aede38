// What the limiter adds to a start: of a program that never uses a GPU (alternating pairs, medians), and of many GPU
// programs that start at once (99th percentile of the time from loading the driver to a current context).
//   start_bench [--card] [PAIRS]     --card: the GPU programs use this machine's own card, real or simulated
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "guest/limiter/core/os.h"
#include "guest/limiter/testing/bench.h"

using namespace tensor_fusion::guest::limiter;
using namespace tensor_fusion::guest::limiter::testing;

namespace {

double start_true_us(char* const* environment) {
  char path[] = "/bin/true";
  char* const arguments[] = {path, nullptr};
  const std::uint64_t begin = os::monotonic_ns();
  pid_t child = 0;
  if (posix_spawn(&child, path, nullptr, nullptr, arguments, environment) != 0) std::exit(1);
  int status = 0;
  waitpid(child, &status, 0);
  return static_cast<double>(os::monotonic_ns() - begin) / 1000;
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// What 64 processes at once say of their init_ns, in ms.
class Starts {
 public:
  void add_round(const BenchDriver& driver, const TestSlice* slice) {
    std::vector<std::thread> threads;
    std::vector<double> times(64);
    for (std::size_t i = 0; i < times.size(); ++i)
      threads.emplace_back([&, i] {
        const Outcome outcome = run(load(driver, slice, {"init"}));
        times[i] = outcome.status == 0 ? static_cast<double>(outcome.number("init_ns")) / 1e6 : kNeverMs;
      });
    for (auto& thread : threads) thread.join();
    all_.insert(all_.end(), times.begin(), times.end());
    std::sort(all_.begin(), all_.end());
  }
  double p99_ms() const { return all_[all_.size() * 99 / 100]; }
  bool one_failed() const { return all_.back() >= kNeverMs; }

 private:
  static constexpr double kNeverMs = 1e9;
  std::vector<double> all_;
};

bool holds(const char* bar, double figure, double most) {
  if (figure <= most) return true;
  std::fprintf(stderr, "missed: %s is %.3f, may be %.2f\n", bar, figure, most);
  return false;
}

}  // namespace

int main(int count, char** arguments) {
  const bool card = count > 1 && std::strcmp(arguments[1], "--card") == 0;
  const int pairs = count > 1 + card ? std::atoi(arguments[1 + card]) : 2000;
  std::string preload = "LD_PRELOAD=" + kLibrary;
  char* const plain_environment[] = {nullptr};
  char* const preloaded_environment[] = {preload.data(), nullptr};
  std::vector<double> plain;
  std::vector<double> preloaded;
  for (int i = 0; i < 50; ++i) {  // warm
    start_true_us(plain_environment);
    start_true_us(preloaded_environment);
  }
  for (int i = 0; i < pairs; ++i) {
    plain.push_back(start_true_us(plain_environment));
    preloaded.push_back(start_true_us(preloaded_environment));
  }
  const double plain_us = median(plain);
  const double preloaded_us = median(preloaded);
  std::printf("/bin/true: %.0f us plain, %.0f us preloaded (medians of %d alternating pairs)\n", plain_us, preloaded_us,
              pairs);

  const double true_ratio = preloaded_us / plain_us;
  const bool true_held = holds("true_ratio", true_ratio, 1.15);
  const auto skip = [&](const char* why) {
    std::printf("bench start: true_ratio=%.3f; not measured how 64 start at once: %s\n", true_ratio, why);
    return true_held ? kCannotRun : 1;
  };

  const BenchDriver driver(card ? BenchDriver::Which::card : BenchDriver::Which::best);
  if (driver.uuid().empty()) return skip("no driver here shows a card");
  // A real card's contexts are of a size that the slice is not told.
  const std::uint64_t limit = card ? 1ull << 40 : 60ull << 30;
  TestSlice slice({{driver.uuid(), limit, 64 << 20, true, 10000}});
  slice.start_hypervisor();
  Starts warm, without, with;
  warm.add_round(driver, nullptr);
  if (warm.one_failed())
    return skip("without the limiter one of them fails already, as on a card too small for 64 contexts");
  const int rounds = card ? 3 : 5;  // of seconds on a real one
  for (int round = 0; round < rounds; ++round) {
    without.add_round(driver, nullptr);
    with.add_round(driver, &slice);
  }
  std::printf("64 processes at once (%s): p99 of init %.1f ms plain, %.1f ms with the limiter\n",
              card                 ? "this machine's card"
              : driver.simulated() ? "simulated GPU"
                                   : "stub driver",
              without.p99_ms(), with.p99_ms());
  if (slice.claim().process_high.load() == 0) {
    std::fprintf(stderr, "the limiter was not in the measured programs\n");
    return 1;
  }
  if (without.one_failed() || with.one_failed()) {
    std::fprintf(stderr, "%s the limiter one of them failed\n", with.one_failed() ? "with" : "without");
    return 1;
  }
  const double init_ratio = with.p99_ms() / without.p99_ms();
  std::printf("bench start: true_ratio=%.3f init64_p99_ratio=%.2f\n", true_ratio, init_ratio);
  return holds("init64_p99_ratio", init_ratio, 2) && true_held ? 0 : 1;
}
