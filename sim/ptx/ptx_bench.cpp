// How fast kernels run on one core: thread instructions a second, and host instructions for each of them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "sim/ptx/test_device.h"

namespace tensor_fusion::sim::ptx {
namespace {

double cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Host instructions for each thread instruction of a kernel, counted by callgrind: the difference between a process
// that runs it once and one that runs it three times. Callgrind knows AVX2 but not AVX-512, so this is the AVX2 path's
// figure. NaN without valgrind.
double host_instructions(const std::string& kernel) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  double collected[2] = {0, 0};
  double executed = 0;
  for (const int index : {0, 1}) {
    const std::string command = "valgrind --tool=callgrind --callgrind-out-file=/dev/null '" + self + "' --run " +
                                kernel + (index == 0 ? " 1" : " 3") + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return std::nan("");
    char line[512];
    while (std::fgets(line, sizeof line, pipe) != nullptr) {
      if (const char* at = std::strstr(line, "Collected : ")) collected[index] = std::strtod(at + 12, nullptr);
      if (const char* at = std::strstr(line, "executed "))
        executed = std::strtod(at + 9, nullptr) - (index == 1 ? executed : 0);
    }
    if (pclose(pipe) != 0) return std::nan("");
  }
  return collected[1] > collected[0] && executed > 0 ? (collected[1] - collected[0]) / executed : std::nan("");
}

struct Figures {
  double cpu = 0;
  double thread_instructions = 0;
  double host = 0;  // instructions of this machine for each
};

// Runs `body` once to warm up and then for about half a second of CPU; the best of three such rounds counts.
template <class Body>
Figures measure(const Body& body, double seconds) {
  static_cast<void>(body());
  Figures best;
  for (int round = 0; round < 3; ++round) {
    Figures one;
    const double begin = cpu_s();
    do {
      const Outcome outcome = body();
      if (outcome.status != Status::ok) {
        std::fprintf(stderr, "failed: %s at line %d\n", std::string(status_name(outcome.status)).c_str(), outcome.line);
        std::exit(1);
      }
      one.thread_instructions += static_cast<double>(outcome.thread_instructions);
      one.cpu = cpu_s() - begin;
    } while (one.cpu < seconds);
    if (round == 0 || one.thread_instructions / one.cpu > best.thread_instructions / best.cpu) best = one;
  }
  return best;
}

Figures row(const char* name, const char* key, Figures f) {
  f.host = host_instructions(key);
  std::printf("%-18s %6.2f G thread instructions/s   %5.3f host instructions for each (callgrind, AVX2)\n", name,
              f.thread_instructions / f.cpu * 1e-9, f.host);
  std::fflush(stdout);
  return f;
}

Outcome& operator+=(Outcome& sum, const Outcome& part) {
  if (sum.status == Status::ok) {
    sum.status = part.status;
    sum.line = part.line;
  }
  sum.thread_instructions += part.thread_instructions;
  return sum;
}

class Perceptron {
 public:
  static constexpr int kRows = 128;
  static constexpr int kInputs = 64;
  static constexpr int kHidden = 128;
  static constexpr int kClasses = 10;

  Perceptron() : device_(TestDevice::file("mlp.ptx")) {
    const auto random = [&](std::size_t n, float scale) {
      std::vector<float> values(n);
      for (float& value : values)
        value = scale * (static_cast<float>((seed_ = seed_ * 1664525U + 1013904223U) >> 8) / 8388608.0F - 1.0F);
      return device_.upload(values);
    };
    x_ = random(std::size_t{kRows} * kInputs, 1.0F);
    std::vector<int> labels(kRows);
    const auto x = device_.download<float>(x_, std::size_t{kRows} * kInputs);
    for (std::size_t i = 0; i < kRows; ++i) labels[i] = (x[i * kInputs] > 0 ? 1 : 0) + (x[i * kInputs + 1] > 0 ? 2 : 0);
    labels_ = device_.upload(labels);
    for (const auto& [n, scale] :
         {std::pair{kInputs * kHidden, 0.125F}, {kHidden, 0.0F}, {kHidden * kClasses, 0.09F}, {kClasses, 0.0F}}) {
      const auto count = static_cast<std::size_t>(n);
      weights_.push_back({n, random(count, scale), random(count, 0), random(count, 0), random(count, 0)});
    }
    hidden_ = random(std::size_t{kRows} * kHidden, 0);
    d_hidden_ = random(std::size_t{kRows} * kHidden, 0);
    y_ = random(std::size_t{kRows} * kClasses, 0);
    dy_ = random(std::size_t{kRows} * kClasses, 0);
    loss_ = random(kRows, 0);
  }

  Outcome step() {
    Outcome sum;
    const auto go = [&](const char* kernel, int threads, auto... args) {
      sum += device_.launch(kernel, {static_cast<std::uint32_t>((threads + 255) / 256), 1, 1}, {256, 1, 1}, args...);
    };
    go("dense", kRows * kHidden, hidden_, x_, weights_[0].value, weights_[1].value, kRows, kInputs, kHidden, 1);
    go("dense", kRows * kClasses, y_, hidden_, weights_[2].value, weights_[3].value, kRows, kHidden, kClasses, 0);
    go("softmax_loss", kRows, loss_, dy_, y_, labels_, kRows, kClasses);
    go("weight_gradient", kHidden * kClasses, weights_[2].gradient, hidden_, dy_, kRows, kHidden, kClasses);
    go("bias_gradient", kClasses, weights_[3].gradient, dy_, kRows, kClasses);
    go("input_gradient", kRows * kHidden, d_hidden_, dy_, weights_[2].value, hidden_, kRows, kHidden, kClasses);
    go("weight_gradient", kInputs * kHidden, weights_[0].gradient, x_, d_hidden_, kRows, kInputs, kHidden);
    go("bias_gradient", kHidden, weights_[1].gradient, d_hidden_, kRows, kHidden);
    for (const Weight& w : weights_) go("adam", w.count, w.value, w.first, w.second, w.gradient, w.count, 0.002F);
    return sum;
  }

  [[nodiscard]] float loss() const {
    float sum = 0;
    for (const float part : device_.download<float>(loss_, kRows)) sum += part;
    return sum;
  }

 private:
  struct Weight {
    int count;
    std::uint64_t value, gradient, first, second;
  };
  TestDevice device_;
  std::uint32_t seed_ = 7;
  std::uint64_t x_ = 0, labels_ = 0, hidden_ = 0, d_hidden_ = 0, y_ = 0, dy_ = 0, loss_ = 0;
  std::vector<Weight> weights_;
};

// The kernels that are measured, each over matrices of `n` by `n`.
class Workload {
 public:
  explicit Workload(std::uint32_t n) : n_(n), device_(TestDevice::file("kernels.ptx")) {
    const std::vector<float> values(std::size_t{n} * n, 0.5F);
    a_ = device_.upload(values);
    b_ = device_.upload(values);
    out_ = device_.upload(values);
  }

  Outcome run(const std::string& kernel) {
    const auto count = static_cast<int>(n_ * n_);
    if (kernel == "vector_add") return device_.launch(kernel, {n_ * n_ / 256, 1, 1}, {256, 1, 1}, out_, a_, b_, count);
    if (kernel == "elementwise")
      return device_.launch(kernel, {n_ * n_ / 1024, 1, 1}, {256, 1, 1}, out_, a_, b_, count);
    if (kernel == "reduce") return device_.launch(kernel, {64, 1, 1}, {256, 1, 1}, out_, a_, count);
    if (kernel == "softmax") return device_.launch(kernel, {n_ / 2, 1, 1}, {256, 1, 1}, out_, a_, static_cast<int>(n_));
    const std::uint32_t blocks = kernel == "matmul_tiled" ? n_ / 16 : n_ / 64;
    return device_.launch(kernel, {blocks, blocks, 1}, {16, 16, 1}, out_, a_, b_, n_);
  }

 private:
  std::uint32_t n_;
  TestDevice device_;
  std::uint64_t a_ = 0, b_ = 0, out_ = 0;
};

int run_counted(const std::string& kernel, int times) {
  double executed = 0;
  if (kernel == "perceptron") {
    Perceptron network;
    for (int i = 0; i < times; ++i) executed += static_cast<double>(network.step().thread_instructions);
  } else {
    Workload workload(128);
    for (int i = 0; i < times; ++i) executed += static_cast<double>(workload.run(kernel).thread_instructions);
  }
  std::printf("executed %.0f\n", executed);
  return 0;
}

int benchmark(double seconds) {
  Workload large(512);
  Workload small(256);
  std::vector<Figures> counted;
  row("vector add", "vector_add", measure([&] { return large.run("vector_add"); }, seconds));
  counted.push_back(row("elementwise", "elementwise", measure([&] { return large.run("elementwise"); }, seconds)));
  row("reduce", "reduce", measure([&] { return large.run("reduce"); }, seconds));
  row("softmax", "softmax", measure([&] { return large.run("softmax"); }, seconds));
  counted.push_back(row("matmul, shared", "matmul_tiled", measure([&] { return small.run("matmul_tiled"); }, seconds)));
  counted.push_back(
      row("matmul, registers", "matmul_registers", measure([&] { return small.run("matmul_registers"); }, seconds)));

  Perceptron network;
  const float loss_begin = (static_cast<void>(network.step()), network.loss());
  Figures mlp;
  for (int round = 0; round < 3; ++round) {
    Figures one;
    const double begin = cpu_s();
    for (int i = 0; i < 100; ++i) one.thread_instructions += static_cast<double>(network.step().thread_instructions);
    one.cpu = cpu_s() - begin;
    if (round == 0 || one.cpu < mlp.cpu) mlp = one;
  }
  mlp = row("perceptron", "perceptron", mlp);
  std::printf("perceptron: own kernels of the demo's kind, %.1f M thread instructions a step, loss %.3f -> %.3f\n",
              mlp.thread_instructions * 1e-8, static_cast<double>(loss_begin), static_cast<double>(network.loss()));
  // Mean over the matmul and elementwise kernels, each with the same weight.
  double rate = 0;
  double host = 0;
  for (const Figures& f : counted) {
    rate += f.thread_instructions / f.cpu / static_cast<double>(counted.size());
    host += f.host / static_cast<double>(counted.size());
  }
  std::printf("bench ptx: thread_instructions_per_s=%.3g host_per_thread_instruction=%.3f mlp100_cpu_s=%.3f\n", rate,
              host, mlp.cpu);
  return 0;
}

}  // namespace
}  // namespace tensor_fusion::sim::ptx

int main(int argc, char** argv) {
  using namespace tensor_fusion::sim::ptx;
  if (argc == 4 && std::string_view(argv[1]) == "--run") return run_counted(argv[2], std::atoi(argv[3]));
  return benchmark(0.3);
}
