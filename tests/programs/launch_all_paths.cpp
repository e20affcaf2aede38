// Launches one kernel by every path a program has, one JSON line each: what the call answered, how often the kernel ran
// as counted by the kernel itself, how often it should have.
//   launch_all_paths [--path NAME] [--repeat N] [--busy-us N] [--list]
// With --busy-us each launch is the simulated device's busy kernel of that length and nothing is counted.
// Exit 0: all counts right; 1: not so.
#include <functional>
#include <utility>
#include <vector>

#include "driver.h"

using namespace tensor_fusion::programs;

namespace {

struct Target {
  CUfunction function = nullptr;
  CUkernel kernel = nullptr;
  std::uint64_t parameter = 0;  // address of the counter, or nanoseconds
  CUstream stream = nullptr;
};
using Launch = std::function<CUresult(Target&)>;

void** pointers(Target& t) {
  static void* list[1];
  list[0] = &t.parameter;
  return list;
}

CUresult captured(Driver& d, Target& t, const std::function<CUresult(CUgraphExec)>& run) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUresult result = d.cuStreamBeginCapture_v2(t.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result == CUDA_SUCCESS)
    result = d.cuLaunchKernel(t.function, 1, 1, 1, 1, 1, 1, 0, t.stream, pointers(t), nullptr);
  if (const CUresult end = d.cuStreamEndCapture(t.stream, &graph); result == CUDA_SUCCESS) result = end;
  if (result == CUDA_SUCCESS) result = d.cuGraphInstantiateWithFlags(&exec, graph, 0);
  if (result == CUDA_SUCCESS) result = run(exec);
  if (exec != nullptr) d.cuGraphExecDestroy(exec);
  if (graph != nullptr) d.cuGraphDestroy(graph);
  return result;
}

CUresult built(Driver& d, Target& t, CUstream stream) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = t.function;
  params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = pointers(t);
  CUresult result = d.cuGraphCreate(&graph, 0);
  if (result == CUDA_SUCCESS) result = d.cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params);
  if (result == CUDA_SUCCESS) result = d.cuGraphInstantiate_v2(&exec, graph, nullptr, nullptr, 0);
  if (result == CUDA_SUCCESS) result = d.cuGraphUpload(exec, stream);
  if (result == CUDA_SUCCESS) result = d.cuGraphLaunch(exec, stream);
  if (exec != nullptr) d.cuGraphExecDestroy(exec);
  if (graph != nullptr) d.cuGraphDestroy(graph);
  return result;
}

CUresult extended(Target& t, CUresult (*call)(const CUlaunchConfig*, CUfunction, void**, void**), bool cooperative) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = t.stream;
  config.attrs = cooperative ? &attribute : nullptr;
  config.numAttrs = cooperative ? 1 : 0;
  return call(&config, t.function, pointers(t), nullptr);
}

CUresult prepared(Driver& d, Target& t) {
  if (const CUresult r = d.cuFuncSetBlockShape(t.function, 1, 1, 1); r != CUDA_SUCCESS) return r;
  if (const CUresult r = d.cuParamSetv(t.function, 0, &t.parameter, sizeof t.parameter); r != CUDA_SUCCESS) return r;
  return d.cuParamSetSize(t.function, sizeof t.parameter);
}

std::vector<std::pair<const char*, Launch>> paths(Driver& d) {
  return {
      {"cuLaunchKernel",
       [&d](Target& t) { return d.cuLaunchKernel(t.function, 1, 1, 1, 1, 1, 1, 0, t.stream, pointers(t), nullptr); }},
      {"cuLaunchKernel_default_stream",
       [&d](Target& t) { return d.cuLaunchKernel(t.function, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers(t), nullptr); }},
      {"cuLaunchKernel_ptsz",
       [&d](Target& t) {
         return d.cuLaunchKernel_ptsz(t.function, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers(t), nullptr);
       }},
      {"cuLaunchKernel_extra",
       [&d](Target& t) {
         std::size_t bytes = sizeof t.parameter;
         void* extra[] = {reinterpret_cast<void*>(kLaunchParamBufferPointer), &t.parameter,
                          reinterpret_cast<void*>(kLaunchParamBufferSize), &bytes,
                          reinterpret_cast<void*>(kLaunchParamEnd)};
         return d.cuLaunchKernel(t.function, 1, 1, 1, 1, 1, 1, 0, t.stream, nullptr, extra);
       }},
      {"cuLaunchKernel_of_library",
       [&d](Target& t) {
         return d.cuLaunchKernel(reinterpret_cast<CUfunction>(t.kernel), 1, 1, 1, 1, 1, 1, 0, t.stream, pointers(t),
                                 nullptr);
       }},
      {"cuLaunchKernelEx", [&d](Target& t) { return extended(t, d.cuLaunchKernelEx, false); }},
      {"cuLaunchKernelEx_cooperative", [&d](Target& t) { return extended(t, d.cuLaunchKernelEx, true); }},
      {"cuLaunchKernelEx_ptsz", [&d](Target& t) { return extended(t, d.cuLaunchKernelEx_ptsz, false); }},
      {"cuLaunchCooperativeKernel",
       [&d](Target& t) { return d.cuLaunchCooperativeKernel(t.function, 1, 1, 1, 1, 1, 1, 0, t.stream, pointers(t)); }},
      {"cuLaunchCooperativeKernel_ptsz",
       [&d](Target& t) {
         return d.cuLaunchCooperativeKernel_ptsz(t.function, 1, 1, 1, 1, 1, 1, 0, t.stream, pointers(t));
       }},
      {"cuLaunch",
       [&d](Target& t) {
         const CUresult r = prepared(d, t);
         return r != CUDA_SUCCESS ? r : d.cuLaunch(t.function);
       }},
      {"cuLaunchGrid",
       [&d](Target& t) {
         const CUresult r = prepared(d, t);
         return r != CUDA_SUCCESS ? r : d.cuLaunchGrid(t.function, 1, 1);
       }},
      {"cuLaunchGridAsync",
       [&d](Target& t) {
         const CUresult r = prepared(d, t);
         return r != CUDA_SUCCESS ? r : d.cuLaunchGridAsync(t.function, 1, 1, t.stream);
       }},
      {"cuGraphLaunch_built", [&d](Target& t) { return built(d, t, t.stream); }},
      {"cuGraphLaunch_captured",
       [&d](Target& t) { return captured(d, t, [&](CUgraphExec exec) { return d.cuGraphLaunch(exec, t.stream); }); }},
      {"cuGraphLaunch_ptsz",
       [&d](Target& t) {
         return captured(d, t, [&](CUgraphExec exec) { return d.cuGraphLaunch_ptsz(exec, nullptr); });
       }},
  };
}

}  // namespace

int main(int argc, char** argv) {
  std::string only;
  unsigned repeat = 3;
  std::uint64_t busy_us = 0;
  bool list = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--path" && i + 1 < argc)
      only = argv[++i];
    else if (word == "--repeat" && i + 1 < argc)
      repeat = static_cast<unsigned>(std::strtoul(argv[++i], nullptr, 10));
    else if (word == "--busy-us" && i + 1 < argc)
      busy_us = std::strtoull(argv[++i], nullptr, 10);
    else if (word == "--list")
      list = true;
    else
      return std::fprintf(stderr, "usage: launch_all_paths [--path NAME] [--repeat N] [--busy-us N] [--list]\n"), 2;
  }
  Driver d;
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS) return std::fprintf(stderr, "no CUDA device here\n"), 77;
  CUcontext context = nullptr;
  if (d.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || d.cuCtxSetCurrent(context) != CUDA_SUCCESS) return 1;
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  Target target;
  const char* entry = busy_us != 0 ? "tensor_fusion_busy" : "count";
  CUdeviceptr counter = 0;
  if (d.cuModuleLoadData(&module, kKernels) != CUDA_SUCCESS ||
      d.cuModuleGetFunction(&target.function, module, entry) != CUDA_SUCCESS ||
      d.cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0) != CUDA_SUCCESS ||
      d.cuLibraryGetKernel(&target.kernel, library, entry) != CUDA_SUCCESS ||
      d.cuMemAlloc_v2(&counter, 4) != CUDA_SUCCESS ||
      d.cuStreamCreate(&target.stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
    return std::fprintf(stderr, "cannot set the kernels up\n"), 1;
  target.parameter = busy_us != 0 ? busy_us * 1000 : counter;
  bool good = true;
  for (const auto& [name, launch] : paths(d)) {
    if (list) {
      std::printf("%s\n", name);
      continue;
    }
    if (!only.empty() && only != name) continue;
    if (d.cuMemsetD32_v2(counter, 0, 1) != CUDA_SUCCESS || d.cuCtxSynchronize() != CUDA_SUCCESS) return 1;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < repeat && result == CUDA_SUCCESS; ++i) result = launch(target);
    if (const CUresult sync = d.cuCtxSynchronize(); result == CUDA_SUCCESS) result = sync;
    std::uint32_t ran = 0;
    d.cuMemcpyDtoH_v2(&ran, counter, sizeof ran);
    const unsigned expected = busy_us != 0 ? 0 : repeat;
    Line(name, d.name_of(result)).number("ran", ran).number("expected", expected);
    good = good && result == CUDA_SUCCESS && ran == expected;
  }
  return good ? 0 : 1;
}
