// What the limiter adds to a start: of a program that never uses a GPU (alternating pairs, medians), and of many GPU
// programs that start at once (99th percentile of the time from loading the driver to a current context).
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
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

// The 99th percentile of init_ns over several rounds of 64 processes at once.
double init_p99_ms(const BenchDriver& driver, const TestSlice* slice, int rounds) {
  std::vector<double> all;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::thread> threads;
    std::vector<double> times(64);
    for (std::size_t i = 0; i < times.size(); ++i)
      threads.emplace_back([&, i] {
        const Outcome outcome = run(load(driver, slice, {"init"}));
        times[i] = outcome.status == 0 ? static_cast<double>(outcome.number("init_ns")) / 1e6 : 1e9;
      });
    for (auto& thread : threads) thread.join();
    all.insert(all.end(), times.begin(), times.end());
  }
  std::sort(all.begin(), all.end());
  return all[all.size() * 99 / 100];
}

bool holds(const char* bar, double figure, double most) {
  if (figure <= most) return true;
  std::fprintf(stderr, "missed: %s is %.3f, may be %.2f\n", bar, figure, most);
  return false;
}

}  // namespace

int main(int count, char** arguments) {
  const int pairs = count > 1 ? std::atoi(arguments[1]) : 2000;
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

  const BenchDriver driver;
  TestSlice slice({{driver.uuid(), 60ull << 30, 64 << 20, true, 10000}});
  slice.start_hypervisor();
  init_p99_ms(driver, nullptr, 1);
  const double without = init_p99_ms(driver, nullptr, 5);
  const double with = init_p99_ms(driver, &slice, 5);
  std::printf("64 processes at once (%s): p99 of init %.1f ms plain, %.1f ms with the limiter\n",
              driver.simulated() ? "simulated GPU" : "stub driver", without, with);
  std::printf("bench start: true_ratio=%.3f init64_p99_ratio=%.2f\n", preloaded_us / plain_us, with / without);
  const bool true_held = holds("true_ratio", preloaded_us / plain_us, 1.15);
  return holds("init64_p99_ratio", with / without, 2) && true_held ? 0 : 1;
}
