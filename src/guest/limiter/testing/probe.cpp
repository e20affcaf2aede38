// A CUDA program of a few commands for the tests of the limiter, reaching the driver by the door its first argument
// names: `link`, `dlsym` or `proc` (cuGetProcAddress). Prints key=value lines. Exit code 0 when it could do its work,
// whatever the driver answered.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "contract/cuda.h"
#include "contract/cuda_symbols.h"

using namespace tensor_fusion::cuda;

extern "C" {
CUresult cuInit(unsigned);
CUresult cuDeviceGetCount(int*);
CUresult cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuMemAlloc_v2(CUdeviceptr*, std::size_t);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemGetInfo_v2(std::size_t*, std::size_t*);
CUresult cuDeviceTotalMem_v2(std::size_t*, CUdevice);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                        void**, void**);
}

namespace {

std::string g_door;
void* g_library = nullptr;
using ProcAddress = CUresult (*)(const char*, void**, int, std::uint64_t, CUdriverProcAddressQueryResult*);

void* by_proc(const char* exported, std::uint64_t flags) {
  static const auto ask = reinterpret_cast<ProcAddress>(dlsym(g_library, "cuGetProcAddress_v2"));
  if (ask == nullptr) return nullptr;
  for (const CudaSymbol& symbol : kCudaSymbols) {
    if (std::strcmp(symbol.exported, exported) != 0) continue;
    void* found = nullptr;
    CUdriverProcAddressQueryResult status{};
    ask(symbol.base, &found, symbol.version, flags, &status);
    return found;
  }
  return nullptr;
}

template <class Function>
Function* find(const char* exported, Function* linked) {
  if (g_door == "link") return linked;
  void* found = g_door == "dlsym" ? dlsym(g_library, exported) : by_proc(exported, CU_GET_PROC_ADDRESS_DEFAULT);
  if (found == nullptr) {
    std::printf("missing=%s\n", exported);
    std::exit(3);
  }
  return reinterpret_cast<Function*>(found);
}
#define FIND(symbol) find(#symbol, &symbol)

std::string home_of(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "none";
  return std::string(info.dli_fname).find("libtensor_fusion_limiter") != std::string::npos ? "limiter" : "driver";
}

CUcontext start(int device) {
  const CUresult init = FIND(cuInit)(0);
  std::printf("init=%d\n", init);
  int count = 0;
  FIND(cuDeviceGetCount)(&count);
  std::printf("devices=%d\n", count);
  CUcontext context = nullptr;
  const CUresult retain = FIND(cuDevicePrimaryCtxRetain)(&context, device);
  std::printf("retain=%d\n", retain);
  if (retain == CUDA_SUCCESS) FIND(cuCtxSetCurrent)(context);
  return context;
}

void show_info() {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  const CUresult result = FIND(cuMemGetInfo_v2)(&free_bytes, &total_bytes);
  std::size_t device_total = 0;
  FIND(cuDeviceTotalMem_v2)(&device_total, 0);
  std::printf("info=%d free=%zu total=%zu device_total=%zu\n", result, free_bytes, total_bytes, device_total);
}

// Allocates until refused, then frees all.
void fill(std::size_t bytes) {
  std::vector<CUdeviceptr> held;
  CUdeviceptr pointer = 0;
  CUresult result;
  while ((result = FIND(cuMemAlloc_v2)(&pointer, bytes)) == CUDA_SUCCESS && held.size() < 1'000'000)
    held.push_back(pointer);
  std::printf("count=%zu refused=%d\n", held.size(), result);
  show_info();
  for (const CUdeviceptr one : held) FIND(cuMemFree_v2)(one);
  result = FIND(cuMemAlloc_v2)(&pointer, bytes);
  std::printf("again=%d\n", result);
  if (result == CUDA_SUCCESS) FIND(cuMemFree_v2)(pointer);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  g_door = arguments[1];
  const std::string command = arguments[2];
  const auto argument = [&](int index, std::size_t fallback) {
    return index < count ? std::strtoull(arguments[index], nullptr, 0) : fallback;
  };
  const char* space = std::getenv("PROBE_NAMESPACE");
  const int mode = RTLD_NOW | (std::getenv("PROBE_DEEPBIND") != nullptr ? RTLD_DEEPBIND : 0);
  g_library = space != nullptr ? dlmopen(std::atoi(space), "libcuda.so.1", mode) : dlopen("libcuda.so.1", mode);
  if (g_library == nullptr) return 4;

  if (command == "homes") {
    std::printf(
        "link=%s dlsym=%s dlvsym=%s proc=%s own=%s lookup=%s default=%s curl=%s\n",
        home_of(reinterpret_cast<void*>(&cuMemAlloc_v2)).c_str(), home_of(dlsym(g_library, "cuMemAlloc_v2")).c_str(),
        home_of(dlvsym(g_library, "cuMemAlloc_v2", "NONE")).c_str(), home_of(by_proc("cuMemAlloc_v2", 0)).c_str(),
        home_of(by_proc("cuLaunchKernel", CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)).c_str(),
        home_of(dlsym(RTLD_DEFAULT, "dlsym")).c_str(), home_of(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")).c_str(),
        home_of(dlsym(g_library, "curl_easy_init")).c_str());
    return 0;
  }
  if (command == "early") {
    // Calls that come before cuInit are the driver's to refuse, and must not spoil what follows.
    CUdeviceptr pointer = 0;
    std::size_t bytes = 0;
    std::printf("early_alloc=%d early_free=%d early_info=%d\n", FIND(cuMemAlloc_v2)(&pointer, 512),
                FIND(cuMemFree_v2)(512), FIND(cuMemGetInfo_v2)(&bytes, &bytes));
    start(0);
    fill(argument(3, 1 << 20));
  } else if (command == "fill") {
    start(static_cast<int>(argument(4, 0)));
    show_info();
    fill(argument(3, 1 << 20));
  } else if (command == "info") {
    start(static_cast<int>(argument(3, 0)));
    show_info();
  } else if (command == "launch") {
    start(0);
    const auto launch = FIND(cuLaunchKernel);
    CUresult result = CUDA_SUCCESS;
    for (std::size_t i = 0; i < argument(3, 1); ++i)
      result = launch(reinterpret_cast<CUfunction>(8), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    const auto launches = reinterpret_cast<std::uint64_t (*)(int)>(dlsym(g_library, "stub_launches"));
    std::printf("launch=%d plain=%llu own=%llu\n", result,
                launches ? static_cast<unsigned long long>(launches(0)) : 0ull,
                launches ? static_cast<unsigned long long>(launches(1)) : 0ull);
  } else if (command == "fork") {
    // The child is a process of its own: it holds nothing yet, and what it takes is its own.
    start(0);
    CUdeviceptr pointer = 0;
    FIND(cuMemAlloc_v2)(&pointer, argument(3, 1 << 20));
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      CUdeviceptr mine = 0;
      const CUresult result = FIND(cuMemAlloc_v2)(&mine, argument(3, 1 << 20));
      std::printf("child_alloc=%d\n", result);
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    show_info();
    FIND(cuMemFree_v2)(pointer);
  } else if (command == "hold") {
    // Allocates, says so, and waits for standard input to close.
    start(0);
    CUdeviceptr pointer = 0;
    const CUresult result = FIND(cuMemAlloc_v2)(&pointer, argument(3, 1 << 20));
    std::printf("held=%d\n", result);
    std::fflush(stdout);
    char letter;
    while (read(0, &letter, 1) > 0) {
    }
  } else if (command == "churn") {
    start(0);
    std::vector<std::thread> threads;
    std::atomic<std::uint64_t> refused{0};
    std::atomic<std::uint64_t> wrong{0};
    CUcontext context = nullptr;
    FIND(cuDevicePrimaryCtxRetain)(&context, 0);
    for (std::size_t t = 0; t < argument(4, 4); ++t)
      threads.emplace_back([&, t] {
        FIND(cuCtxSetCurrent)(context);
        std::uint64_t seed = t * 977 + static_cast<std::uint64_t>(getpid());
        std::vector<CUdeviceptr> held;
        for (std::size_t i = 0; i < argument(3, 1000); ++i) {
          seed = seed * 6364136223846793005 + 1442695040888963407;
          if ((seed >> 33) % 2 == 0 || held.empty()) {
            CUdeviceptr pointer = 0;
            const CUresult result = FIND(cuMemAlloc_v2)(&pointer, (seed >> 40) % (8 << 20) + 1);
            if (result == CUDA_SUCCESS)
              held.push_back(pointer);
            else if (result == CUDA_ERROR_OUT_OF_MEMORY)
              refused.fetch_add(1);
            else
              wrong.fetch_add(1);
          } else {
            if (FIND(cuMemFree_v2)(held.back()) != CUDA_SUCCESS) wrong.fetch_add(1);
            held.pop_back();
          }
        }
        for (const CUdeviceptr one : held) FIND(cuMemFree_v2)(one);
      });
    for (auto& thread : threads) thread.join();
    std::printf("refused=%llu wrong=%llu\n", static_cast<unsigned long long>(refused.load()),
                static_cast<unsigned long long>(wrong.load()));
    show_info();
  } else {
    return 2;
  }
  const auto used = reinterpret_cast<std::uint64_t (*)(int)>(dlsym(g_library, "stub_used"));
  const auto peak = reinterpret_cast<std::uint64_t (*)(int)>(dlsym(g_library, "stub_peak"));
  if (used != nullptr)
    std::printf("real_used=%llu real_peak=%llu\n", static_cast<unsigned long long>(used(0)),
                static_cast<unsigned long long>(peak(0)));
  return 0;
}
