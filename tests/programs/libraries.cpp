// Libraries are put into a context only by what first uses them there: whichever call that is, it has room or it fails,
// and what it failed to place is no loss to the program. Exit 0: all as it should be.
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "driver.h"

using namespace tensor_fusion::programs;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kVariable = 256 * kMiB;
constexpr std::size_t kLeft = 100 * kMiB;  // less than that, and more than any slack

const std::string kImage = ".version 6.3\n.target sm_70\n.address_size 64\n.visible .global .align 8 .b8 big[" +
                           std::to_string(kVariable) + "];\n.visible .entry nothing()\n{\n  ret;\n}\n";

struct Loaded {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  [[nodiscard]] CUfunction function() const { return reinterpret_cast<CUfunction>(kernel); }
};

class Libraries {
 public:
  explicit Libraries(const Driver& driver) : d(driver), l{driver.library} {}
  CUresult load(Loaded& loaded) const {
    const CUresult result = l.find<CUlibrary*, const void*, CUjit_option*, void**, unsigned, void*, void**, unsigned>(
        "cuLibraryLoadData")(&loaded.library, kImage.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (result != CUDA_SUCCESS) return result;
    unsigned count = 0;
    if (l.find<unsigned*, CUlibrary>("cuLibraryGetKernelCount")(&count, loaded.library) != CUDA_SUCCESS || count != 1)
      return CUDA_ERROR_NOT_FOUND;
    CUkernel other = nullptr;
    l.find<CUkernel*, unsigned, CUlibrary>("cuLibraryEnumerateKernels")(&other, 1, loaded.library);
    const CUresult found =
        l.find<CUkernel*, CUlibrary, const char*>("cuLibraryGetKernel")(&loaded.kernel, loaded.library, "nothing");
    return found == CUDA_SUCCESS && other != loaded.kernel ? CUDA_ERROR_NOT_FOUND : found;
  }
  CUresult unload(const Loaded& loaded) const { return l.find<CUlibrary>("cuLibraryUnload")(loaded.library); }
  CUresult variable(const Loaded& loaded) const {
    CUdeviceptr at = 0;
    std::size_t bytes = 0;
    return l.find<CUdeviceptr*, std::size_t*, CUlibrary, const char*>("cuLibraryGetGlobal")(&at, &bytes, loaded.library,
                                                                                            "big");
  }

  const Driver& d;
  const Library l;
};

using Use = std::function<CUresult(const Libraries&, const Loaded&)>;

CUDA_KERNEL_NODE_PARAMS node_of(const Loaded& loaded) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.kern = loaded.kernel;
  params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  return params;
}

CUresult in_a_graph(const Libraries& all, const std::function<CUresult(CUgraph)>& add) {
  CUgraph graph = nullptr;
  const CUresult made = all.d.cuGraphCreate(&graph, 0);
  if (made != CUDA_SUCCESS) return made;
  const CUresult result = add(graph);
  all.d.cuGraphDestroy(graph);
  return result;
}

std::vector<std::pair<const char*, Use>> uses() {
  std::vector<std::pair<const char*, Use>> list;
  const auto use = [&](const char* name, Use how) { list.emplace_back(name, std::move(how)); };
  use("cuLibraryGetGlobal", [](const Libraries& all, const Loaded& it) { return all.variable(it); });
  use("cuLibraryGetGlobal of what is not there", [](const Libraries& all, const Loaded& it) {
    CUdeviceptr at = 0;
    const CUresult result = all.l.find<CUdeviceptr*, std::size_t*, CUlibrary, const char*>("cuLibraryGetGlobal")(
        &at, nullptr, it.library, "none");
    return result == CUDA_ERROR_NOT_FOUND ? CUDA_SUCCESS : result;
  });
  use("cuLibraryGetModule", [](const Libraries& all, const Loaded& it) {
    CUmodule module = nullptr;
    return all.l.find<CUmodule*, CUlibrary>("cuLibraryGetModule")(&module, it.library);
  });
  use("cuKernelGetFunction", [](const Libraries& all, const Loaded& it) {
    CUfunction function = nullptr;
    return all.l.find<CUfunction*, CUkernel>("cuKernelGetFunction")(&function, it.kernel);
  });
  use("cuKernelGetAttribute", [](const Libraries& all, const Loaded& it) {
    int value = 0;
    return all.l.find<int*, int, CUkernel, CUdevice>("cuKernelGetAttribute")(&value, 0, it.kernel, 0);
  });
  use("cuKernelSetAttribute", [](const Libraries& all, const Loaded& it) {
    return all.l.find<int, int, CUkernel, CUdevice>("cuKernelSetAttribute")(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, it.kernel, 0);
  });
  use("cuKernelSetCacheConfig", [](const Libraries& all, const Loaded& it) {
    return all.l.find<CUkernel, int, CUdevice>("cuKernelSetCacheConfig")(it.kernel, 0, 0);
  });
  use("cuFuncGetAttribute", [](const Libraries& all, const Loaded& it) {
    int value = 0;
    return all.l.find<int*, int, CUfunction>("cuFuncGetAttribute")(&value, 0, it.function());
  });
  use("cuFuncSetAttribute", [](const Libraries& all, const Loaded& it) {
    return all.l.find<CUfunction, int, int>("cuFuncSetAttribute")(
        it.function(), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024);
  });
  for (const char* name : {"cuFuncSetCacheConfig", "cuFuncSetSharedMemConfig"})
    use(name,
        [name](const Libraries& all, const Loaded& it) { return all.l.find<CUfunction, int>(name)(it.function(), 0); });
  use("cuFuncGetModule", [](const Libraries& all, const Loaded& it) {
    CUmodule module = nullptr;
    return all.l.find<CUmodule*, CUfunction>("cuFuncGetModule")(&module, it.function());
  });
  use("cuFuncLoad",
      [](const Libraries& all, const Loaded& it) { return all.l.find<CUfunction>("cuFuncLoad")(it.function()); });
  use("cuOccupancyMaxActiveBlocksPerMultiprocessor", [](const Libraries& all, const Loaded& it) {
    int value = 0;
    return all.l.find<int*, CUfunction, int, std::size_t>("cuOccupancyMaxActiveBlocksPerMultiprocessor")(
        &value, it.function(), 32, 0);
  });
  use("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", [](const Libraries& all, const Loaded& it) {
    int value = 0;
    return all.l.find<int*, CUfunction, int, std::size_t, unsigned>(
        "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags")(&value, it.function(), 32, 0, 0);
  });
  use("cuOccupancyMaxPotentialBlockSize", [](const Libraries& all, const Loaded& it) {
    int grid = 0, block = 0;
    return all.l.find<int*, int*, CUfunction, CUoccupancyB2DSize, std::size_t, int>("cuOccupancyMaxPotentialBlockSize")(
        &grid, &block, it.function(), nullptr, 0, 0);
  });
  use("cuOccupancyMaxPotentialBlockSizeWithFlags", [](const Libraries& all, const Loaded& it) {
    int grid = 0, block = 0;
    return all.l.find<int*, int*, CUfunction, CUoccupancyB2DSize, std::size_t, int, unsigned>(
        "cuOccupancyMaxPotentialBlockSizeWithFlags")(&grid, &block, it.function(), nullptr, 0, 0, 0);
  });
  use("cuOccupancyAvailableDynamicSMemPerBlock", [](const Libraries& all, const Loaded& it) {
    std::size_t bytes = 0;
    return all.l.find<std::size_t*, CUfunction, int, int>("cuOccupancyAvailableDynamicSMemPerBlock")(
        &bytes, it.function(), 1, 32);
  });
  for (const char* name : {"cuOccupancyMaxPotentialClusterSize", "cuOccupancyMaxActiveClusters"})
    use(name, [name](const Libraries& all, const Loaded& it) {
      CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, 0};
      int value = 0;
      return all.l.find<int*, CUfunction, const CUlaunchConfig*>(name)(&value, it.function(), &config);
    });
  use("cuFuncIsLoaded", [](const Libraries& all, const Loaded& it) {
    int loaded = 0;
    return all.l.find<int*, CUfunction>("cuFuncIsLoaded")(&loaded, it.function());
  });
  use("cuFuncGetName", [](const Libraries& all, const Loaded& it) {
    const char* name = nullptr;
    return all.l.find<const char**, CUfunction>("cuFuncGetName")(&name, it.function());
  });
  use("cuFuncGetParamInfo", [](const Libraries& all, const Loaded& it) {
    std::size_t offset = 0;
    const CUresult result = all.l.find<CUfunction, std::size_t, std::size_t*, std::size_t*>("cuFuncGetParamInfo")(
        it.function(), 0, &offset, nullptr);
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;  // it has none
  });
  use("cuLaunchKernel", [](const Libraries& all, const Loaded& it) {
    return all.d.cuLaunchKernel(it.function(), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  });
  use("cuLaunchKernel on a stream", [](const Libraries& all, const Loaded& it) {
    CUstream stream = nullptr;
    if (const CUresult made = all.d.cuStreamCreate(&stream, 1); made != CUDA_SUCCESS) return made;
    const CUresult result = all.d.cuLaunchKernel(it.function(), 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
    all.d.cuStreamDestroy_v2(stream);
    return result;
  });
  use("cuLaunchKernelEx", [](const Libraries& all, const Loaded& it) {
    CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, 0};
    return all.l.find<const CUlaunchConfig*, CUfunction, void**, void**>("cuLaunchKernelEx")(&config, it.function(),
                                                                                             nullptr, nullptr);
  });
  use("cuLaunchCooperativeKernel", [](const Libraries& all, const Loaded& it) {
    return all.l
        .find<CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**>(
            "cuLaunchCooperativeKernel")(it.function(), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr);
  });
  use("cuGraphAddKernelNode", [](const Libraries& all, const Loaded& it) {
    return in_a_graph(all, [&](CUgraph graph) {
      const CUDA_KERNEL_NODE_PARAMS_v1 params{it.function(), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr};
      CUgraphNode node = nullptr;
      return all.l.find<CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CUDA_KERNEL_NODE_PARAMS_v1*>(
          "cuGraphAddKernelNode")(&node, graph, nullptr, 0, &params);
    });
  });
  use("cuGraphAddKernelNode_v2", [](const Libraries& all, const Loaded& it) {
    return in_a_graph(all, [&](CUgraph graph) {
      const auto params = node_of(it);
      CUgraphNode node = nullptr;
      return all.d.cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params);
    });
  });
  use("cuGraphAddNode", [](const Libraries& all, const Loaded& it) {
    return in_a_graph(all, [&](CUgraph graph) {
      CUgraphNodeParams params{};
      params.type = CU_GRAPH_NODE_TYPE_KERNEL;
      params.kernel = node_of(it);
      CUgraphNode node = nullptr;
      return all.l.find<CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraphNodeParams*>("cuGraphAddNode")(
          &node, graph, nullptr, 0, &params);
    });
  });
  use("cuGraphAddNode_v2", [](const Libraries& all, const Loaded& it) {
    return in_a_graph(all, [&](CUgraph graph) {
      CUgraphNodeParams params{};
      params.type = CU_GRAPH_NODE_TYPE_KERNEL;
      params.kernel = node_of(it);
      CUgraphNode node = nullptr;
      return all.l
          .find<CUgraphNode*, CUgraph, const CUgraphNode*, const CUgraphEdgeData*, std::size_t, CUgraphNodeParams*>(
              "cuGraphAddNode_v2")(&node, graph, nullptr, nullptr, 0, &params);
    });
  });
  return list;
}

// What a call that cannot place its kernel answers; a graph takes it for a wrong parameter.
bool is_refused(const char* name, CUresult result) {
  return result == CUDA_ERROR_OUT_OF_MEMORY ||
         (std::strncmp(name, "cuGraph", 7) == 0 && result == CUDA_ERROR_INVALID_VALUE);
}

int without_room(const Libraries& all, const char* name, const Use& use, std::size_t empty) {
  const Driver& d = all.d;
  Loaded it, again;
  CUdeviceptr rest = 0;
  MUST(all.load(it));
  if (!comes_back(d, empty)) return std::fprintf(stderr, "before %s: not all of the memory is back\n", name), 1;
  MUST(d.cuMemAlloc_v2(&rest, empty - kLeft));
  const CUresult refused = use(all, it);
  if (!is_refused(name, refused))
    return std::fprintf(stderr, "%s without room: %s\n", name, d.name_of(refused).c_str()), 1;
  if (!comes_back(d, kLeft)) return std::fprintf(stderr, "%s without room left some of it\n", name), 1;
  MUST(all.load(again));  // beside the one that has no room
  MUST(d.cuMemFree_v2(rest));
  MUST(all.unload(it));
  MUST(all.unload(again));
  return 0;
}

// Once, whatever uses it.
int with_room(const Libraries& all, std::size_t empty) {
  const Driver& d = all.d;
  Loaded it;
  MUST(all.load(it));
  for (const auto& [name, use] : uses()) MUST(use(all, it));
  MUST(d.cuCtxSynchronize());
  if (!comes_back(d, empty - kVariable)) return std::fprintf(stderr, "a library was placed never, or twice\n"), 1;
  MUST(all.unload(it));
  if (!comes_back(d, empty)) return std::fprintf(stderr, "an unloaded library stayed\n"), 1;
  return 0;
}

// In place in one context, it needs as much again in another, and stays in the first when there is no room for that.
int in_a_second_context(const Libraries& all, CUcontext first) {
  const Driver& d = all.d;
  Loaded it;
  CUcontext second = nullptr;
  CUdeviceptr rest = 0;
  MUST(all.load(it));
  MUST(all.variable(it));
  MUST(d.cuCtxCreate_v2(&second, 0, 0));
  ::usleep(1);
  for (std::size_t before = 0; before != free_bytes(d); ::usleep(100'000)) before = free_bytes(d);
  MUST(d.cuMemAlloc_v2(&rest, free_bytes(d) - kLeft));
  const CUresult refused = d.cuLaunchKernel(it.function(), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  if (refused != CUDA_ERROR_OUT_OF_MEMORY)
    return std::fprintf(stderr, "a second context: %s\n", d.name_of(refused).c_str()), 1;
  MUST(d.cuCtxSetCurrent(first));
  MUST(all.variable(it));
  MUST(d.cuLaunchKernel(it.function(), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  MUST(d.cuCtxSetCurrent(second));
  MUST(d.cuMemFree_v2(rest));
  MUST(d.cuLaunchKernel(it.function(), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  MUST(d.cuCtxSynchronize());
  MUST(all.unload(it));
  return 0;
}

}  // namespace

int main() {
  Driver d;
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS) return std::fprintf(stderr, "no CUDA device here\n"), 77;
  CUcontext context = nullptr;
  MUST(d.cuCtxCreate_v2(&context, 0, 0));
  const Libraries all(d);
  if (Loaded it; all.load(it) == CUDA_ERROR_NOT_FOUND)
    return std::fprintf(stderr, "this driver has no libraries\n"), 77;
  else
    MUST(all.unload(it));
  const std::size_t empty = free_bytes(d);
  int failed = 0;
  for (const auto& [name, use] : uses()) {
    const int bad = without_room(all, name, use, empty);
    Line(name, bad == 0 ? "ok" : "wrong").number("failed", bad);
    failed += bad;
    if (bad != 0) break;
  }
  if (failed == 0) failed = with_room(all, empty);
  if (failed == 0) failed = in_a_second_context(all, context);
  Line("libraries", failed == 0 ? "ok" : "wrong").number("failed", failed);
  return failed == 0 ? 0 : 1;
}
