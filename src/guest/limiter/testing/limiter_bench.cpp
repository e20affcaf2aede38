// What the limiter adds to a call: instructions counted by callgrind (two lengths of the same run, so that start-up
// cancels out, with and without the limiter), nanoseconds of CPU beside them, and what eight threads cost each other.
// Exit 1 when a bar is missed, which is named.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "guest/limiter/testing/bench.h"

using namespace tensor_fusion::guest::limiter::testing;

namespace {

constexpr int kShort = 20'000;
constexpr int kLong = 120'000;

// Instructions of one run under callgrind, which reports them on standard error.
double instructions(Job job) {
  std::string line = "exec 2>&1; exec valgrind --tool=callgrind --callgrind-out-file=/dev/null";
  for (const std::string& part : job.command) line += " '" + part + "'";
  job.command = {"/bin/sh", "-c", line};
  job.environment.push_back("PATH=/usr/local/bin:/usr/bin:/bin");
  const Outcome outcome = run(job);
  const std::size_t at = outcome.out.find("Collected : ");
  if (outcome.status != 0 || at == std::string::npos) {
    std::fprintf(stderr, "callgrind failed:\n%s\n", outcome.out.c_str());
    std::exit(1);
  }
  return std::strtod(outcome.out.c_str() + at + 12, nullptr);
}

double per_call(const BenchDriver& driver, const TestSlice* slice, const char* what) {
  const double brief = instructions(load(driver, slice, {what, std::to_string(kShort)}));
  const double full = instructions(load(driver, slice, {what, std::to_string(kLong)}));
  return (full - brief) / (kLong - kShort);
}

double cpu_ns(const BenchDriver& driver, const TestSlice* slice, const char* what, const char* count,
              const char* threads) {
  const Outcome outcome = run(load(driver, slice, {what, count, threads}));
  return std::strtod(outcome.value("cpu_ns").c_str(), nullptr);
}

// The least of several runs is what the work costs; the rest is the machine's.
double least_cpu_ns(const BenchDriver& driver, const TestSlice* slice, const char* what, const char* count) {
  double best = cpu_ns(driver, slice, what, count, "1");
  for (int attempt = 1; attempt < 5; ++attempt) best = std::min(best, cpu_ns(driver, slice, what, count, "1"));
  return best;
}

struct OneAndEight {
  double one, eight;
};

// In turns, so that a change of the clock's speed meets both.
OneAndEight least_of_both(const BenchDriver& driver, const TestSlice* slice) {
  OneAndEight best{1e9, 1e9};
  for (int attempt = 0; attempt < 7; ++attempt) {
    best.one = std::min(best.one, cpu_ns(driver, slice, "launches", "400000", "1"));
    best.eight = std::min(best.eight, cpu_ns(driver, slice, "launches", "400000", "8"));
  }
  return best;
}

bool holds(const char* bar, double figure, double most) {
  if (figure <= most) return true;
  std::fprintf(stderr, "missed: %s is %.2f, may be %.2f\n", bar, figure, most);
  return false;
}

}  // namespace

int main() {
  const BenchDriver driver;
  std::printf("driver: %s\n", driver.simulated() ? "simulated GPU" : "stub (the simulated GPU is not built)");
  TestSlice free_slice({{driver.uuid(), 60ull << 30, 0, true, 10000}});
  TestSlice limited_slice({{driver.uuid(), 60ull << 30, 0, false, 10000}});
  free_slice.start_hypervisor();
  limited_slice.start_hypervisor();

  const double plain = per_call(driver, nullptr, "launches");
  const double unlimited = per_call(driver, &free_slice, "launches");
  // Each a mean over 100,000 launches. Markers are read by the clock, and callgrind slows the program but not the
  // clock: a busy machine makes it read more of them per launch, so the runs differ.
  std::array<double, 3> runs{};
  for (double& mean : runs) mean = driver.simulated() ? per_call(driver, &limited_slice, "launches") : 0;
  std::ranges::sort(runs);
  const double limited = runs[runs.size() / 2];
  // The simulated card's memory is more than valgrind can map; what the limiter adds does not depend on the driver.
  const BenchDriver stub(BenchDriver::Which::stub);
  TestSlice stub_slice({{stub.uuid(), 60ull << 30, 0, true, 10000}});
  stub_slice.start_hypervisor();
  const double plain_alloc = per_call(stub, nullptr, "allocs");
  const double alloc = per_call(stub, &stub_slice, "allocs");
  std::printf("instructions per launch: %.0f plain, %.0f unlimited, %.0f limited (the median of %.0f, %.0f and %.0f)\n",
              plain, unlimited, limited, runs[0], runs[1], runs[2]);
  std::printf("instructions per alloc+free (stub driver): %.0f plain, %.0f with the limiter\n", plain_alloc, alloc);

  const TestSlice* gated = driver.simulated() ? &limited_slice : &free_slice;
  const OneAndEight plain_cpu = least_of_both(driver, nullptr);
  const OneAndEight gated_cpu = least_of_both(driver, gated);
  const double free_one = least_cpu_ns(driver, &free_slice, "launches", "400000");
  std::printf("CPU ns per launch: %.0f plain, %.0f unlimited, %.0f limited; eight threads: %.0f plain, %.0f limited\n",
              plain_cpu.one, free_one, gated_cpu.one, plain_cpu.eight, gated_cpu.eight);
  std::printf("CPU ns per alloc+free: %.0f plain, %.0f with the limiter\n",
              least_cpu_ns(driver, nullptr, "allocs", "200000"), least_cpu_ns(driver, &free_slice, "allocs", "200000"));
  // Each run takes a slot of the page; none taken means that no limiter stood between.
  for (TestSlice* slice : {&free_slice, &limited_slice, &stub_slice}) {
    if (slice->claim().process_high.load() != 0) continue;
    std::fprintf(stderr, "the limiter was not in the measured programs\n");
    return 1;
  }
  std::printf(
      "bench limiter: launch_unlimited_instructions=%.0f launch_limited_instructions=%.0f alloc_free_instructions=%.0f "
      "threads8_ratio=%.2f\n",
      unlimited - plain, limited - plain, alloc - plain_alloc, gated_cpu.eight / gated_cpu.one);
  const bool held[] = {
      holds("launch_unlimited_instructions", unlimited - plain, 120),
      holds("launch_limited_instructions", limited - plain, 400),
      holds("alloc_free_instructions", alloc - plain_alloc, 1500),
      holds("threads8_ratio", gated_cpu.eight / gated_cpu.one, 1.2),
  };
  return std::all_of(std::begin(held), std::end(held), [](bool one) { return one; }) ? 0 : 1;
}
