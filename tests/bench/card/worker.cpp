#include "tests/bench/card/worker.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <thread>
#include <vector>

#include "system/clock.h"
#include "tests/bench/card/player.h"
#include "tests/programs/driver.h"

namespace tensor_fusion::bench::card {
namespace {

using namespace programs;

constexpr std::uint64_t kSecondNs = 1'000'000'000, kKernelNs = 1'000'000;
constexpr std::size_t kQueued = 4;
constexpr std::size_t kPieceBytes = 8u << 20;

// `spin` depends on its own result in each round, so that no compiler leaves a round out; what it stores never happens.
constexpr const char* kSpin = R"(
.version 6.3
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 rounds, .param .u64 out)
{
  .reg .pred %p<2>;
  .reg .b32 %x;
  .reg .b64 %n, %o;
  ld.param.u64 %n, [rounds];
  ld.param.u64 %o, [out];
  mov.u32 %x, %tid.x;
again:
  mad.lo.u32 %x, %x, 1664525, 1013904223;
  sub.u64 %n, %n, 1;
  setp.ne.u64 %p0, %n, 0;
  @%p0 bra again;
  setp.eq.u32 %p1, %x, 1;
  setp.eq.and.u64 %p1, %o, 1, %p1;
  @%p1 st.global.u32 [%o], %x;
  ret;
}
)";

std::uint64_t thread_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kSecondNs + static_cast<std::uint64_t>(now.tv_nsec);
}

template <class Value>
Value median(std::vector<Value> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

class Worker {
 public:
  int start() {
    const std::uint64_t begin_ns = system::monotonic_ns();
    if (d.library == nullptr) {
      std::fprintf(stderr, "card: there is no CUDA driver (libcuda.so.1)\n");
      return 1;
    }
    MUST(d.cuInit(0));
    CUdevice device = 0;
    MUST(d.cuDeviceGet(&device, 0));
    MUST(d.cuCtxCreate_v2(&context_, 0, device));
    const std::uint64_t took_ns = system::monotonic_ns() - begin_ns;
    char name[96] = {};
    MUST(d.cuDeviceGetName(name, sizeof name, device));
    CUmodule kernels = nullptr, spin = nullptr;
    MUST(d.cuModuleLoadData(&kernels, kKernels));
    MUST(d.cuModuleLoadData(&spin, kSpin));
    MUST(d.cuModuleGetFunction(&nothing_, kernels, "nothing"));
    MUST(d.cuModuleGetFunction(&kinds_[kBusy], kernels, "tensor_fusion_busy"));
    MUST(d.cuModuleGetFunction(&kinds_[kSpinning], spin, "spin"));
    MUST(d.cuStreamCreate(&stream_, 1));  // beside the default stream
    std::cout << "ready " << static_cast<double>(took_ns) / 1e6 << " " << name << std::endl;
    return 0;
  }

  int obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "kernel") return kernel();
    if (verb == "spin") return spin(words);
    if (verb == "calls") return calls();
    if (verb == "memory") return memory();
    return verb == "fill" ? fill() : 2;
  }

 private:
  enum Kind : std::size_t { kBusy, kSpinning };

  CUresult launch(std::size_t kind, std::uint64_t count) {
    std::uint64_t out = 0;
    void* parameters[] = {&count, &out};
    return d.cuLaunchKernel(kinds_[kind], 1, 1, 1, 32, 1, 1, 0, stream_, parameters, nullptr);
  }

  int timed(std::size_t kind, std::uint64_t count, std::uint64_t& ns) {
    const std::uint64_t begin_ns = system::monotonic_ns();
    MUST(launch(kind, count));
    MUST(d.cuStreamSynchronize(stream_));
    ns = system::monotonic_ns() - begin_ns;
    return 0;
  }

  // A simulated card has a kernel that takes as long as it is told; on another that one does nothing.
  int kernel() {
    std::uint64_t ns = 0;
    if (timed(kBusy, 5 * kKernelNs, ns) != 0) return 1;
    if (ns >= 5 * kKernelNs) {
      std::cout << kBusy << " " << kKernelNs << std::endl;
      return 0;
    }
    std::uint64_t rounds = 1024;
    for (ns = 0; ns < 10 * kKernelNs;) {
      rounds *= 2;
      if (timed(kSpinning, rounds, ns) != 0) return 1;
    }
    std::cout << kSpinning << " " << std::max<std::uint64_t>(1, rounds * kKernelNs / ns) << std::endl;
    return 0;
  }

  int spin(std::istringstream& words) {
    std::size_t kind = 0, seconds = 0;
    std::uint64_t count = 0, at_ns = 0;
    words >> kind >> count >> at_ns >> seconds;
    if (kind >= kinds_.size()) return 2;
    std::array<CUevent, kQueued> ends{};
    for (CUevent& end : ends) MUST(d.cuEventCreate(&end, 2));  // without a time
    std::vector<unsigned> ended(seconds);
    for (std::size_t number = 0;; ++number) {
      CUevent& end = ends[number % kQueued];
      if (number >= kQueued) {
        MUST(d.cuEventSynchronize(end));
        const std::uint64_t now_ns = system::monotonic_ns();
        if (now_ns >= at_ns + seconds * kSecondNs) break;
        if (now_ns >= at_ns) ++ended[(now_ns - at_ns) / kSecondNs];
      }
      MUST(launch(kind, count));
      MUST(d.cuEventRecord(end, stream_));
    }
    MUST(d.cuStreamSynchronize(stream_));
    for (CUevent& end : ends) MUST(d.cuEventDestroy_v2(end));
    for (const unsigned one : ended) std::cout << one << " ";
    std::cout << std::endl;
    return 0;
  }

  // The thread's own time, so that what waits for the card's share is not part of it. Medians of batches.
  int calls() {
    constexpr int kBatches = 200, kBatch = 256;
    std::vector<double> launches, allocations;
    for (int batch = 0; batch < kBatches; ++batch) {
      std::uint64_t begin_ns = thread_ns();
      for (int i = 0; i < kBatch; ++i) MUST(d.cuLaunchKernel(nothing_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr));
      launches.push_back(static_cast<double>(thread_ns() - begin_ns) / kBatch);
      MUST(d.cuStreamSynchronize(stream_));
      begin_ns = thread_ns();
      for (int i = 0; i < 8; ++i) {
        CUdeviceptr memory = 0;
        MUST(d.cuMemAlloc_v2(&memory, 1u << 20));
        MUST(d.cuMemFree_v2(memory));
      }
      allocations.push_back(static_cast<double>(thread_ns() - begin_ns) / 8);
    }
    std::cout << median(launches) << " " << median(allocations) << std::endl;
    return 0;
  }

  int memory() {
    std::size_t free = 0, total = 0;
    MUST(d.cuMemGetInfo_v2(&free, &total));
    std::cout << free << " " << total << std::endl;
    return 0;
  }

  int fill() {
    std::atomic<std::uint64_t> bytes = 0;
    const auto take = [&] {
      static_cast<void>(d.cuCtxSetCurrent(context_));
      CUdeviceptr memory = 0;
      while (d.cuMemAlloc_v2(&memory, kPieceBytes) == CUDA_SUCCESS) bytes += kPieceBytes;
    };
    std::thread other(take);
    take();
    other.join();
    std::cout << bytes << std::endl;
    return 0;
  }

  Driver d;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUfunction nothing_ = nullptr;
  std::array<CUfunction, 2> kinds_{};
};

}  // namespace

int work() {
  Worker worker;
  int result = worker.start();
  for (std::string line; result == 0 && std::getline(std::cin, line);) result = worker.obey(line);
  return result;
}

int work_together(const std::string& self, int count) {
  std::vector<Player> players;
  for (int i = 0; i < count; ++i) players.emplace_back(std::vector<std::string>{self, "--worker"});
  const auto answer = [&] {
    std::string all;
    for (Player& player : players) all += player.hear().value_or("nothing") + " ";
    std::cout << all << std::endl;
  };
  answer();
  for (std::string line; std::getline(std::cin, line); answer())
    for (const Player& player : players) player.tell(line);
  return 0;
}

}  // namespace tensor_fusion::bench::card
