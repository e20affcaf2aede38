// A tenant that takes device memory by every path the driver offers.
//   tenant steps             takes and gives back by each path in turn, one line per state, and waits for a line after
//   each tenant contexts          makes, fills and ends contexts in every way, likewise tenant huge BYTES        asks
//   each path for BYTES at once and prints the code it answers tenant race OPERATIONS THREADS SEED   random operations
//   until done; frees all and prints what it saw tenant churn OPERATIONS THREADS SEED  the same, and waits for a line
//   before it begins and before it ends
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "contract/cuda.h"

using namespace tensor_fusion::cuda;

namespace {

void* g_library = nullptr;

template <class... Arguments>
auto find(const char* name) {
  auto function = reinterpret_cast<CUresult (*)(Arguments...)>(dlsym(g_library, name));
  if (function != nullptr) return function;
  return +[](Arguments...) { return CUDA_ERROR_NOT_FOUND; };
}

CUcontext g_context = nullptr;
constexpr std::size_t kPage = 2 << 20;

// Something held: enough words to give it back.
struct Held {
  std::uint64_t word[4] = {};
};
struct Path {
  const char* name;
  CUresult (*take)(std::size_t bytes, Held& held);
  CUresult (*give)(const Held& held);
};

CUresult free_pointer(const Held& held) { return find<CUdeviceptr>("cuMemFree_v2")(held.word[0]); }

CUresult take_alloc(std::size_t bytes, Held& held) {
  return find<CUdeviceptr*, std::size_t>("cuMemAlloc_v2")(&held.word[0], bytes);
}
CUresult take_pitch(std::size_t bytes, Held& held) {
  std::size_t pitch = 0;
  return find<CUdeviceptr*, std::size_t*, std::size_t, std::size_t, unsigned>("cuMemAllocPitch_v2")(
      &held.word[0], &pitch, 1000, bytes / 1000 + 1, 4);
}
CUresult take_managed(std::size_t bytes, Held& held) {
  return find<CUdeviceptr*, std::size_t, unsigned>("cuMemAllocManaged")(&held.word[0], bytes, CU_MEM_ATTACH_GLOBAL);
}

CUresult take_async(std::size_t bytes, Held& held) {
  return find<CUdeviceptr*, std::size_t, CUstream>("cuMemAllocAsync")(&held.word[0], bytes, nullptr);
}
CUresult take_async_own(std::size_t bytes, Held& held) {
  return find<CUdeviceptr*, std::size_t, CUstream>("cuMemAllocAsync_ptsz")(&held.word[0], bytes, nullptr);
}
CUresult give_async(const Held& held) {
  const CUresult result = find<CUdeviceptr, CUstream>("cuMemFreeAsync")(held.word[0], nullptr);
  find<CUstream>("cuStreamSynchronize")(nullptr);
  return result;
}
CUresult give_async_own(const Held& held) {
  const CUresult result = find<CUdeviceptr, CUstream>("cuMemFreeAsync_ptsz")(held.word[0], nullptr);
  find<CUstream>("cuStreamSynchronize_ptsz")(nullptr);
  return result;
}
CUresult take_own_pool(std::size_t bytes, Held& held) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CUresult result = find<CUmemoryPool*, const CUmemPoolProps*>("cuMemPoolCreate")(&pool, &props);
  if (result != CUDA_SUCCESS) return result;
  held.word[1] = reinterpret_cast<std::uint64_t>(pool);
  result = find<CUdeviceptr*, std::size_t, CUmemoryPool, CUstream>("cuMemAllocFromPoolAsync")(&held.word[0], bytes,
                                                                                              pool, nullptr);
  if (result != CUDA_SUCCESS) find<CUmemoryPool>("cuMemPoolDestroy")(pool);
  return result;
}
CUresult give_own_pool(const Held& held) {
  const CUresult result = give_async(held);
  if (result != CUDA_SUCCESS) return result;
  return find<CUmemoryPool>("cuMemPoolDestroy")(reinterpret_cast<CUmemoryPool>(held.word[1]));
}

CUresult take_physical(std::size_t bytes, Held& held) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return find<CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*, std::uint64_t>("cuMemCreate")(
      &held.word[0], (bytes + kPage - 1) / kPage * kPage, &prop, 0);
}
CUresult give_physical(const Held& held) { return find<CUmemGenericAllocationHandle>("cuMemRelease")(held.word[0]); }
// Mapped, and the handle given back first: the mapping alone keeps the memory.
CUresult take_mapped(std::size_t bytes, Held& held) {
  const std::size_t size = (bytes + kPage - 1) / kPage * kPage;
  CUresult result = take_physical(bytes, held);
  if (result != CUDA_SUCCESS) return result;
  held.word[2] = size;
  result = find<CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, std::uint64_t>("cuMemAddressReserve")(
      &held.word[1], size, 0, 0, 0);
  if (result == CUDA_SUCCESS)
    result = find<CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, std::uint64_t>("cuMemMap")(
        held.word[1], size, 0, held.word[0], 0);
  give_physical(held);
  return result;
}
CUresult give_mapped(const Held& held) {
  const CUresult result = find<CUdeviceptr, std::size_t>("cuMemUnmap")(held.word[1], held.word[2]);
  find<CUdeviceptr, std::size_t>("cuMemAddressFree")(held.word[1], held.word[2]);
  return result;
}

CUresult take_array(std::size_t bytes, Held& held) {
  CUDA_ARRAY_DESCRIPTOR shape{1024, bytes / 4096 + 1, CU_AD_FORMAT_FLOAT, 1};
  if (shape.Height > 65536) shape = {65536, bytes / 65536 / 16 + 1, CU_AD_FORMAT_FLOAT, 4};
  return find<CUarray*, const CUDA_ARRAY_DESCRIPTOR*>("cuArrayCreate_v2")(reinterpret_cast<CUarray*>(&held.word[0]),
                                                                          &shape);
}
CUresult take_line(std::size_t bytes, Held& held) {  // one dimension: height and depth are 0
  CUDA_ARRAY3D_DESCRIPTOR shape{bytes / 4 % 60000 + 1, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  if (bytes > 1 << 20) shape = {4096, bytes / 65536 / 4096 + 1, 4096, CU_AD_FORMAT_HALF, 4, 0};
  return find<CUarray*, const CUDA_ARRAY3D_DESCRIPTOR*>("cuArray3DCreate_v2")(reinterpret_cast<CUarray*>(&held.word[0]),
                                                                              &shape);
}
CUresult give_array(const Held& held) {
  return find<CUarray>("cuArrayDestroy")(reinterpret_cast<CUarray>(held.word[0]));
}
CUresult take_mipmap(std::size_t bytes, Held& held) {
  CUDA_ARRAY3D_DESCRIPTOR shape{512, bytes / 2048 + 2, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  if (shape.Height > 65536) shape = {65536, bytes / 65536 / 16 + 1, 0, CU_AD_FORMAT_FLOAT, 4, 0};
  return find<CUmipmappedArray*, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned>("cuMipmappedArrayCreate")(
      reinterpret_cast<CUmipmappedArray*>(&held.word[0]), &shape, 4);
}
CUresult give_mipmap(const Held& held) {
  return find<CUmipmappedArray>("cuMipmappedArrayDestroy")(reinterpret_cast<CUmipmappedArray>(held.word[0]));
}

// A graph that allocates: the memory comes when it first runs.
CUresult take_graph(std::size_t bytes, Held& held) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  params.bytesize = bytes;
  CUresult result = find<CUgraph*, unsigned>("cuGraphCreate")(&graph, 0);
  if (result == CUDA_SUCCESS)
    result = find<CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUDA_MEM_ALLOC_NODE_PARAMS*>(
        "cuGraphAddMemAllocNode")(&node, graph, nullptr, 0, &params);
  CUgraphNode free_node = nullptr;
  if (result == CUDA_SUCCESS)
    result = find<CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUdeviceptr>("cuGraphAddMemFreeNode")(
        &free_node, graph, &node, 1, params.dptr);
  if (result == CUDA_SUCCESS)
    result = find<CUgraphExec*, CUgraph, unsigned long long>("cuGraphInstantiateWithFlags")(&exec, graph, 0);
  if (result == CUDA_SUCCESS) {
    result = find<CUgraphExec, CUstream>("cuGraphLaunch")(exec, nullptr);
    find<CUstream>("cuStreamSynchronize")(nullptr);
    if (result != CUDA_SUCCESS) find<CUgraphExec>("cuGraphExecDestroy")(exec);
  }
  if (result != CUDA_SUCCESS && graph != nullptr) find<CUgraph>("cuGraphDestroy")(graph);
  held.word[0] = reinterpret_cast<std::uint64_t>(exec);
  held.word[1] = reinterpret_cast<std::uint64_t>(graph);
  return result;
}
CUresult give_graph(const Held& held) {
  const CUresult result = find<CUgraphExec>("cuGraphExecDestroy")(reinterpret_cast<CUgraphExec>(held.word[0]));
  find<CUgraph>("cuGraphDestroy")(reinterpret_cast<CUgraph>(held.word[1]));
  find<CUdevice>("cuDeviceGraphMemTrim")(0);
  return result;
}

// The same, recorded from a stream: nothing is taken while it is recorded.
CUresult take_captured(std::size_t bytes, Held& held) {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr pointer = 0;
  CUresult result = find<CUstream*, unsigned>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS)
    result = find<CUstream, CUstreamCaptureMode>("cuStreamBeginCapture_v2")(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result == CUDA_SUCCESS) {
    result = find<CUdeviceptr*, std::size_t, CUstream>("cuMemAllocAsync")(&pointer, bytes, stream);
    if (result == CUDA_SUCCESS) result = find<CUdeviceptr, CUstream>("cuMemFreeAsync")(pointer, stream);
    const CUresult ended = find<CUstream, CUgraph*>("cuStreamEndCapture")(stream, &graph);
    if (result == CUDA_SUCCESS) result = ended;
  }
  if (result == CUDA_SUCCESS)
    result = find<CUgraphExec*, CUgraph, unsigned long long>("cuGraphInstantiateWithFlags")(&exec, graph, 0);
  if (result == CUDA_SUCCESS) {
    result = find<CUgraphExec, CUstream>("cuGraphLaunch")(exec, stream);
    find<CUstream>("cuStreamSynchronize")(stream);
    if (result != CUDA_SUCCESS) find<CUgraphExec>("cuGraphExecDestroy")(exec);
  }
  if (stream != nullptr) find<CUstream>("cuStreamDestroy_v2")(stream);
  if (result != CUDA_SUCCESS && graph != nullptr) find<CUgraph>("cuGraphDestroy")(graph);
  held.word[0] = reinterpret_cast<std::uint64_t>(exec);
  held.word[1] = reinterpret_cast<std::uint64_t>(graph);
  return result;
}

constexpr Path kPaths[] = {
    {"alloc", take_alloc, free_pointer},
    {"pitch", take_pitch, free_pointer},
    {"managed", take_managed, free_pointer},
    {"async", take_async, give_async},
    {"async_own", take_async_own, give_async_own},
    {"own_pool", take_own_pool, give_own_pool},
    {"physical", take_physical, give_physical},
    {"mapped", take_mapped, give_mapped},
    {"array", take_array, give_array},
    {"line", take_line, give_array},
    {"mipmap", take_mipmap, give_mipmap},
    {"graph", take_graph, give_graph},
    {"captured", take_captured, give_graph},
};

CUresult start() {
  g_library = dlopen("libcuda.so.1", RTLD_NOW);
  if (g_library == nullptr) return CUDA_ERROR_NO_DEVICE;
  CUresult result = find<unsigned>("cuInit")(0);
  if (result == CUDA_SUCCESS) result = find<CUcontext*, CUdevice>("cuDevicePrimaryCtxRetain")(&g_context, 0);
  if (result == CUDA_SUCCESS) result = find<CUcontext>("cuCtxSetCurrent")(g_context);
  return result;
}

void pause_here() {
  std::fflush(stdout);
  for (int letter; (letter = std::getchar()) != EOF && letter != '\n';) {
  }
}

void steps() {
  std::printf("state=start code=0\n");
  pause_here();
  for (const Path& path : kPaths) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{100'000}, std::size_t{5'000'001}}) {
      Held held;
      const CUresult taken = path.take(bytes, held);
      std::printf("state=%s_taken code=%d\n", path.name, taken);
      pause_here();
      const CUresult given = taken == CUDA_SUCCESS ? path.give(held) : taken;
      std::printf("state=%s_given code=%d\n", path.name, given);
      pause_here();
    }
  }
}

// What a context holds goes with it, whatever it is and however the context ends.
void contexts() {
  const auto say = [](const char* state, CUresult result) {
    std::printf("state=%s code=%d\n", state, result);
    pause_here();
  };
  const auto take_some = [&] {
    Held held;
    CUresult result = take_alloc(10 << 20, held);
    if (result == CUDA_SUCCESS) result = take_managed(3 << 20, held);
    return result;
  };
  say("start", CUDA_SUCCESS);
  CUcontext own = nullptr;
  say("created", find<CUcontext*, unsigned, CUdevice>("cuCtxCreate_v2")(&own, 0, 0));
  say("held", take_some());
  say("destroyed", find<CUcontext>("cuCtxDestroy_v2")(own));
  find<CUcontext>("cuCtxSetCurrent")(g_context);
  say("held", take_some());
  say("reset", find<CUdevice>("cuDevicePrimaryCtxReset_v2")(0));
  say("retained", find<CUcontext*, CUdevice>("cuDevicePrimaryCtxRetain")(&g_context, 0));
  find<CUcontext>("cuCtxSetCurrent")(g_context);
  say("held", take_some());
  say("released", find<CUdevice>("cuDevicePrimaryCtxRelease_v2")(0));
}

void huge(std::size_t bytes) {
  for (const Path& path : kPaths) {
    Held held;
    const CUresult result = path.take(bytes, held);
    std::printf("%s=%d\n", path.name, result);
    if (result == CUDA_SUCCESS) path.give(held);
  }
}

void race(std::size_t operations, std::size_t thread_count, std::size_t seed) {
  std::atomic<std::uint64_t> taken{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint64_t> wrong{0};
  const auto work = [&](std::size_t number) {
    find<CUcontext>("cuCtxSetCurrent")(g_context);
    std::mt19937_64 random(seed * 1000 + number);
    std::vector<std::pair<const Path*, Held>> held;
    const auto give_one = [&](std::size_t at) {
      if (held[at].first->give(held[at].second) != CUDA_SUCCESS) wrong.fetch_add(1);
      held[at] = held.back();
      held.pop_back();
    };
    for (std::size_t i = 0; i < operations; ++i) {
      if (random() % 5 < 3 || held.empty()) {
        const Path& path = kPaths[random() % std::size(kPaths)];
        const std::size_t bytes = std::size_t{1} << (random() % 25);
        Held one;
        const CUresult result = path.take(bytes + random() % bytes, one);
        if (result == CUDA_SUCCESS) {
          held.emplace_back(&path, one);
          taken.fetch_add(1);
        } else if (result == CUDA_ERROR_OUT_OF_MEMORY) {
          refused.fetch_add(1);
          if (!held.empty() && random() % 4 == 0) give_one(random() % held.size());
        } else {
          if (wrong.fetch_add(1) == 0) std::printf("unexpected path=%s code=%d\n", path.name, result);
        }
      } else {
        give_one(random() % held.size());
      }
    }
    while (!held.empty()) give_one(held.size() - 1);
  };
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < thread_count; ++number) threads.emplace_back(work, number);
  for (auto& thread : threads) thread.join();
  find<>("cuCtxSynchronize")();
  find<CUdevice>("cuDeviceGraphMemTrim")(0);
  std::printf("taken=%llu refused=%llu wrong=%llu\n", static_cast<unsigned long long>(taken.load()),
              static_cast<unsigned long long>(refused.load()), static_cast<unsigned long long>(wrong.load()));
}

}  // namespace

int main(int count, char** arguments) {
  const std::string command = count > 1 ? arguments[1] : "";
  const auto number = [&](int index, std::size_t fallback) {
    return index < count ? static_cast<std::size_t>(std::strtoull(arguments[index], nullptr, 0)) : fallback;
  };
  if (const CUresult result = start(); result != CUDA_SUCCESS) {
    std::printf("start=%d\n", result);
    return 1;
  }
  if (command == "steps")
    steps();
  else if (command == "contexts")
    contexts();
  else if (command == "huge")
    huge(number(2, 1 << 30));
  else if (command == "race" || command == "churn") {
    if (command == "churn") {
      std::printf("ready\n");
      pause_here();
    }
    race(number(2, 100), number(3, 4), number(4, 1));
  } else
    return 2;
  if (command == "churn") pause_here();
  return 0;
}
