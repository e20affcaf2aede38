// Work for the benchmarks of the limiter: launches, allocations, start-up. Reaches the driver by dlsym, as most do.
//   load launches COUNT THREADS     prints cpu_ns and wall_ns per launch
//   load allocs COUNT               cuMemAlloc + cuMemFree pairs
//   load init                       prints init_ns: from dlopen to a current context
//   load uuid                       prints the UUID of device 0
#include <dlfcn.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "contract/cuda.h"

using namespace tensor_fusion::cuda;

namespace {

void* g_library = nullptr;

template <class... Arguments>
auto find(const char* name) {
  return reinterpret_cast<CUresult (*)(Arguments...)>(dlsym(g_library, name));
}

std::uint64_t now_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::printf("failed=%s code=%d\n", what, result);
  std::exit(1);
}

// Assembled from public documentation of the instruction set: does nothing.
constexpr const char* kEmptyKernel =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty()\n{\n  ret;\n}\n";

CUcontext start() {
  g_library = dlopen("libcuda.so.1", RTLD_NOW);
  if (g_library == nullptr) {
    std::printf("failed=dlopen\n");
    std::exit(1);
  }
  check(find<unsigned>("cuInit")(0), "cuInit");
  CUcontext context = nullptr;
  check(find<CUcontext*, CUdevice>("cuDevicePrimaryCtxRetain")(&context, 0), "cuDevicePrimaryCtxRetain");
  check(find<CUcontext>("cuCtxSetCurrent")(context), "cuCtxSetCurrent");
  return context;
}

void launches(CUcontext context, std::size_t count, std::size_t thread_count) {
  const auto load = find<CUmodule*, const void*>("cuModuleLoadData");
  const auto get = find<CUfunction*, CUmodule, const char*>("cuModuleGetFunction");
  const auto launch =
      find<CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**>(
          "cuLaunchKernel");
  const auto set = find<CUcontext>("cuCtxSetCurrent");
  const auto make = find<CUstream*, unsigned>("cuStreamCreate");
  const auto wait = find<>("cuCtxSynchronize");
  auto function = reinterpret_cast<CUfunction>(64);
  if (load != nullptr) {
    CUmodule module = nullptr;
    check(load(&module, kEmptyKernel), "cuModuleLoadData");
    check(get(&function, module, "empty"), "cuModuleGetFunction");
  }
  const std::uint64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
  const std::uint64_t wall = now_ns(CLOCK_MONOTONIC);
  std::vector<std::thread> threads;
  const auto work = [&] {
    set(context);
    CUstream stream = nullptr;
    if (make != nullptr) check(make(&stream, 1), "cuStreamCreate");
    for (std::size_t i = 0; i < count / thread_count; ++i)
      check(launch(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr), "cuLaunchKernel");
  };
  for (std::size_t i = 1; i < thread_count; ++i) threads.emplace_back(work);
  work();
  for (auto& thread : threads) thread.join();
  const double cpu_ns = static_cast<double>(now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu);
  const double wall_ns = static_cast<double>(now_ns(CLOCK_MONOTONIC) - wall);
  std::printf("cpu_ns=%.1f wall_ns=%.1f\n", cpu_ns / static_cast<double>(count), wall_ns / static_cast<double>(count));
  if (wait != nullptr) check(wait(), "cuCtxSynchronize");
}

void allocs(std::size_t count) {
  const auto allocate = find<CUdeviceptr*, std::size_t>("cuMemAlloc_v2");
  const auto release = find<CUdeviceptr>("cuMemFree_v2");
  const std::uint64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
  for (std::size_t i = 0; i < count; ++i) {
    CUdeviceptr pointer = 0;
    check(allocate(&pointer, 4096), "cuMemAlloc");
    check(release(pointer), "cuMemFree");
  }
  std::printf("cpu_ns=%.1f\n",
              static_cast<double>(now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / static_cast<double>(count));
}

void show_uuid() {
  CUuuid uuid{};
  check(find<CUuuid*, CUdevice>("cuDeviceGetUuid_v2")(&uuid, 0), "cuDeviceGetUuid");
  std::printf("uuid=GPU-");
  for (int i = 0; i < 16; ++i) std::printf(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid.bytes[i]);
  std::printf("\n");
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 2;
  const std::string command = arguments[1];
  const std::uint64_t begin = now_ns(CLOCK_MONOTONIC);
  CUcontext context = start();
  std::printf("init_ns=%llu\n", static_cast<unsigned long long>(now_ns(CLOCK_MONOTONIC) - begin));
  const std::size_t number = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 0;
  if (command == "launches") {
    launches(context, number, count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 1);
  } else if (command == "allocs") {
    allocs(number);
  } else if (command == "uuid") {
    show_uuid();
  } else if (command != "init") {
    return 2;
  }
  return 0;
}
