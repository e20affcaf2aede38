#include "tests/bench/share/worker.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "contract/cuda.h"
#include "tests/bench/share/hostile.h"
#include "tests/bench/share/report.h"

namespace tensor_fusion::bench::share {
namespace {

using namespace tensor_fusion::cuda;

constexpr const char* kModule =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry tensor_fusion_busy(.param .u64 ns) { ret; }\n";

std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

void rest(std::uint64_t ns) {
  timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  ::nanosleep(&time, nullptr);
}

struct Api {
#define TF_ENTRY_POINTS(ROW)                                                                                        \
  ROW(cuInit, (unsigned))                                                                                           \
  ROW(cuDeviceGet, (CUdevice*, int))                                                                                \
  ROW(cuCtxCreate_v2, (CUcontext*, unsigned, CUdevice))                                                             \
  ROW(cuModuleLoadData, (CUmodule*, const void*))                                                                   \
  ROW(cuModuleGetFunction, (CUfunction*, CUmodule, const char*))                                                    \
  ROW(cuLaunchKernel,                                                                                               \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**)) \
  ROW(cuStreamCreate, (CUstream*, unsigned))                                                                        \
  ROW(cuCtxSynchronize, ())                                                                                         \
  ROW(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode))                                                     \
  ROW(cuStreamEndCapture, (CUstream, CUgraph*))                                                                     \
  ROW(cuGraphInstantiateWithFlags, (CUgraphExec*, CUgraph, unsigned long long))                                     \
  ROW(cuGraphLaunch, (CUgraphExec, CUstream))
// Names, which no parentheses may enclose. NOLINTBEGIN(bugprone-macro-parentheses)
#define ROW(name, parameters) CUresult(*name) parameters = nullptr;
  TF_ENTRY_POINTS(ROW)
#undef ROW
  const char* missing = nullptr;
  Api() {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
      missing = ::dlerror();
      return;
    }
#define ROW(entry, parameters)                                         \
  entry = reinterpret_cast<decltype(entry)>(::dlsym(library, #entry)); \
  if (entry == nullptr) missing = #entry;
    TF_ENTRY_POINTS(ROW)
#undef ROW
    // NOLINTEND(bugprone-macro-parentheses)
  }
};

// The idea of limiters that count blocks and look at the driver's utilisation now and then: tokens for blocks, refilled
// by an amount that follows the difference to the limit.
class FeedbackLimiter {
 public:
  explicit FeedbackLimiter(Report& report) : report_(report) {
    if (report.feedback.load() != 0) thread_ = std::thread([this] { watch(); });
  }
  ~FeedbackLimiter() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void launch(std::int64_t blocks) {
    if (report_.feedback.load(std::memory_order_relaxed) == 0) return;
    while (tokens_.load() < 0) rest(10'000'000);
    tokens_ -= blocks;
  }

 private:
  static constexpr std::int64_t kTotal = 132 * 2048;
  void watch() {
    std::int64_t share = 0;
    while (!stopping_) {
      rest(120'000'000);
      const int limit = static_cast<int>(report_.feedback.load());
      const int seen = static_cast<int>(report_.utilisation.load());
      const std::int64_t step = kTotal / 2560 * std::max(std::abs(limit - seen), 5);
      share = std::clamp<std::int64_t>(seen < limit ? share + step : share - step, 0, kTotal);
      tokens_ = std::min(kTotal, tokens_.load() + share);
    }
  }
  Report& report_;
  std::atomic<std::int64_t> tokens_{kTotal};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

class Worker {
 public:
  Worker(Api& api, Report& report) : api_(api), report_(report), feedback_(report) {}

  bool set_up(int ordinal) {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    if (!good(api_.cuInit(0), "cuInit") || !good(api_.cuDeviceGet(&device, ordinal), "cuDeviceGet") ||
        !good(api_.cuCtxCreate_v2(&context, 0, device), "cuCtxCreate_v2") ||
        !good(api_.cuModuleLoadData(&module, kModule), "cuModuleLoadData") ||
        !good(api_.cuModuleGetFunction(&busy_, module, "tensor_fusion_busy"), "cuModuleGetFunction"))
      return false;
    for (CUstream& stream : streams_) {
      if (!good(api_.cuStreamCreate(&stream, 1), "cuStreamCreate")) return false;
    }
    report_.pid = static_cast<std::uint32_t>(::getpid());
    report_.ready = 1;
    return true;
  }

  // `key` makes kernels that are told apart, by their grid. `width`: the part of the device one fills.
  void launch(std::uint64_t ns, unsigned key, unsigned stream = 0, double width = 1) {
    launch_grid(busy_, ns, static_cast<unsigned>(132 * 8 * width) - key, stream);
  }
  void launch_grid(CUfunction function, std::uint64_t ns, unsigned blocks, unsigned stream) {
    void* arguments[] = {&ns};
    feedback_.launch(blocks);
    good(api_.cuLaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, streams_[stream], arguments, nullptr),
         "cuLaunchKernel");
    ++pending_;
    pending_ns_ += ns;
  }
  void sync() {
    good(api_.cuCtxSynchronize(), "cuCtxSynchronize");
    done();
  }
  void done() {
    report_.kernels += pending_;
    report_.kernel_ns += pending_ns_;
    pending_ = pending_ns_ = 0;
  }
  void begin_step() { step_began_ = now_ns(); }
  void end_step() {
    const std::uint64_t n = report_.steps.load();
    report_.step_ns[n % Report::kSteps] =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(now_ns() - step_began_, UINT32_MAX));
    report_.steps = n + 1;
  }

  [[noreturn]] void training(unsigned depth, unsigned streams, double width) {
    for (;;) {
      for (unsigned i = 0; i < depth; ++i) {
        const unsigned key = i % 16;
        const double mean = 50e3 * std::pow(40.0, key / 15.0);
        launch(static_cast<std::uint64_t>(mean * noise(0.05)), key, i % streams, width);
      }
      sync();
      rest(300'000);
    }
  }
  // Sequences of another length every time: functions as in training, whose grids and durations follow the length. Of
  // `lengths`, one for each step; 0: any, another for every launch.
  [[noreturn]] void varying(unsigned lengths) {
    constexpr unsigned kShortest = 1024, kLongest = 4096, kFunctions = 16;
    CUfunction functions[kFunctions] = {};
    for (CUfunction& function : functions) {
      CUmodule module = nullptr;
      good(api_.cuModuleLoadData(&module, kModule), "cuModuleLoadData");
      good(api_.cuModuleGetFunction(&function, module, "tensor_fusion_busy"), "cuModuleGetFunction");
    }
    for (;;) {
      const unsigned step = lengths == 0 ? 0 : kShortest + any(lengths) * (kLongest - kShortest) / lengths;
      for (unsigned i = 0; i < 200; ++i) {
        const unsigned length = lengths == 0 ? kShortest + any(kLongest - kShortest) : step;
        const double longest = 200e3 * std::pow(10.0, (i % kFunctions) / (kFunctions - 1.0));
        launch_grid(functions[i % kFunctions], static_cast<std::uint64_t>(longest * noise(0.05) * length / kLongest),
                    length, 0);
      }
      sync();
      rest(300'000);
    }
  }
  [[noreturn]] void decode(unsigned kernels, std::uint64_t think) {
    for (;;) {
      begin_step();
      for (unsigned i = 0; i < kernels; ++i) launch(5'000 + 30'000 * (i % 8) / 7, i % 8);
      sync();
      end_step();
      rest(think);
    }
  }
  [[noreturn]] void batch() {
    for (unsigned i = 0;; ++i) {
      launch(5'000'000 + 5'000'000 * (i % 4), i % 4);
      if (i % 16 == 15) sync();
    }
  }
  // One launch is `ns` of work in `kernels`; waited for after so many.
  [[noreturn]] void graphs(std::uint64_t ns, unsigned kernels, unsigned wait_every) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    good(api_.cuStreamBeginCapture_v2(streams_[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture_v2");
    for (unsigned i = 0; i < kernels; ++i) launch(ns / kernels, i % 8);
    good(api_.cuStreamEndCapture(streams_[0], &graph), "cuStreamEndCapture");
    good(api_.cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    pending_ = pending_ns_ = 0;
    for (unsigned i = 1;; ++i) {
      feedback_.launch(1);
      good(api_.cuGraphLaunch(exec, streams_[0]), "cuGraphLaunch");
      pending_ += kernels;
      pending_ns_ += ns;
      if (i % wait_every == 0) sync();
    }
  }
  [[noreturn]] void sync_each() {
    for (;;) {
      launch(1'000'000, 0);
      sync();
      rest(20'000);
    }
  }
  // Sleeps long, then wants the device at once.
  [[noreturn]] void owner() {
    for (;;) {
      rest(300'000'000);
      begin_step();
      launch(100'000, 0);
      sync();
      end_step();
      for (unsigned i = 0; i < 20; ++i) launch(1'000'000, 1);
      sync();
    }
  }
  [[noreturn]] void run(std::string_view program) {
    report_.ready = 2;
    if (program == "training") training(200, 1, 1);
    if (program == "streams4") training(200, 4, 0.5);
    if (program == "varying") varying(0);
    if (program == "lengths") varying(256);
    if (program == "decode") decode(60, 150'000);
    if (program == "chat") decode(60, 1'000'000);
    if (program == "batch") batch();
    if (program == "graphs") graphs(8'000'000, 300, 20);
    if (program == "longgraphs") graphs(kLongGraphNs, 32, 10);
    if (program == "sync") sync_each();
    if (program == "owner") owner();
    if (program == "scribbler") scribble();
    if (program == "denier") {
      std::thread(deny).detach();
      training(200, 1, 1);
    }
    if (program == "claimer") claim_a_queue();
    if (program == "idle")
      for (;;) ::pause();
    std::fprintf(stderr, "no program '%.*s'\n", static_cast<int>(program.size()), program.data());
    std::_Exit(2);
  }

 private:
  bool good(CUresult result, const char* call) {
    if (result == CUDA_SUCCESS) return true;
    report_.failed = static_cast<std::uint32_t>(result);
    std::fprintf(stderr, "worker: %s answered %d\n", call, static_cast<int>(result));
    std::_Exit(3);
  }
  unsigned any(unsigned below) { return static_cast<unsigned>(random_() % below); }
  double noise(double part) { return 1 + part * (static_cast<double>(random_() % 2001) / 1000 - 1); }

  Api& api_;
  Report& report_;
  FeedbackLimiter feedback_;
  CUfunction busy_ = nullptr;
  CUstream streams_[4] = {};
  std::uint64_t pending_ = 0, pending_ns_ = 0, step_began_ = 0;
  std::mt19937_64 random_{static_cast<std::uint64_t>(::getpid())};
};

}  // namespace

int work(const char* program, int device, const char* path) {
  if (std::strcmp(program, "stopped") == 0) {
    const pid_t child = ::fork();
    if (child < 0) return 4;
    if (child > 0) keep_stopping(child);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    program = "training";
  }
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  void* page = file < 0 ? MAP_FAILED : ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) return 4;
  auto& report = *static_cast<Report*>(page);
  static Api api;
  if (api.missing != nullptr) {
    std::fprintf(stderr, "worker: the driver lacks %s\n", api.missing);
    report.failed = 1;
    return 5;
  }
  static Worker worker(api, report);
  if (!worker.set_up(device)) return 6;
  worker.run(program);
}

int work_together(const char* program, int device, const char* report, int copies) {
  for (int copy = 0; copy < copies; ++copy) {
    const pid_t child = ::fork();
    if (child < 0) return 4;
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::_Exit(work(program, device, (report + std::to_string(copy)).c_str()));
    }
  }
  ::wait(nullptr);
  return 7;
}

}  // namespace tensor_fusion::bench::share
