// Every other way to launch, to record and to change a graph: what launch_all_paths leaves out. One JSON line each:
// what the call answered, how often the kernel ran as counted by itself, how often it should have. Exit 0: all counts
// right; 1: not so.
#include <functional>
#include <utility>
#include <vector>

#include "driver.h"

using namespace tensor_fusion::programs;

namespace {

struct Target {
  CUfunction function = nullptr;
  std::uint64_t counter = 0;
  CUstream stream = nullptr;
  void* list[1] = {&counter};
};

CUDA_KERNEL_NODE_PARAMS kernel(Target& t, unsigned blocks) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = t.function;
  params.gridDimX = blocks;
  params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = t.list;
  return params;
}

// A graph of one kernel of so many blocks, and the node.
CUresult one_kernel(Driver& d, Target& t, unsigned blocks, CUgraph& graph, CUgraphNode& node) {
  const CUDA_KERNEL_NODE_PARAMS params = kernel(t, blocks);
  if (const CUresult r = d.cuGraphCreate(&graph, 0); r != CUDA_SUCCESS) return r;
  return d.cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params);
}

CUresult run_once(Driver& d, CUgraphExec exec, CUstream stream) {
  if (const CUresult r = d.cuGraphLaunch(exec, stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = d.cuCtxSynchronize(); r != CUDA_SUCCESS) return r;
  return d.cuGraphExecDestroy(exec);
}

using Instantiate = std::function<CUresult(CUgraphExec*, CUgraph)>;
CUresult instantiated(Driver& d, Target& t, const Instantiate& instantiate) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUresult result = one_kernel(d, t, 1, graph, node);
  if (result == CUDA_SUCCESS) result = instantiate(&exec, graph);
  if (result == CUDA_SUCCESS) result = run_once(d, exec, t.stream);
  d.cuGraphDestroy(graph);
  return result;
}

// Instantiated with one block, then changed to three.
using Change = std::function<CUresult(CUgraphExec, CUgraphNode)>;
CUresult changed(Driver& d, Target& t, const Change& change) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUresult result = one_kernel(d, t, 1, graph, node);
  if (result == CUDA_SUCCESS) result = d.cuGraphInstantiateWithFlags(&exec, graph, 0);
  if (result == CUDA_SUCCESS) result = change(exec, node);
  if (result == CUDA_SUCCESS) result = run_once(d, exec, t.stream);
  d.cuGraphDestroy(graph);
  return result;
}

CUresult updated(Driver& d, Target& t, const std::function<CUresult(CUgraphExec, CUgraph)>& update) {
  return changed(d, t, [&](CUgraphExec exec, CUgraphNode) {
    CUgraph other = nullptr;
    CUgraphNode node = nullptr;
    CUresult result = one_kernel(d, t, 3, other, node);
    if (result == CUDA_SUCCESS) result = update(exec, other);
    d.cuGraphDestroy(other);
    return result;
  });
}

CUresult child_changed(Driver& d, const Library& l, Target& t) {
  CUgraph inner = nullptr;
  CUgraph outer = nullptr;
  CUgraph other = nullptr;
  CUgraphNode node = nullptr;
  CUgraphNode child = nullptr;
  CUgraphExec exec = nullptr;
  CUresult result = one_kernel(d, t, 1, inner, node);
  if (result == CUDA_SUCCESS) result = d.cuGraphCreate(&outer, 0);
  if (result == CUDA_SUCCESS) result = d.cuGraphAddChildGraphNode(&child, outer, nullptr, 0, inner);
  if (result == CUDA_SUCCESS) result = d.cuGraphInstantiateWithFlags(&exec, outer, 0);
  if (result == CUDA_SUCCESS) result = one_kernel(d, t, 3, other, node);
  if (result == CUDA_SUCCESS)
    result = l.find<CUgraphExec, CUgraphNode, CUgraph>("cuGraphExecChildGraphNodeSetParams")(exec, child, other);
  if (result == CUDA_SUCCESS) result = run_once(d, exec, t.stream);
  for (const CUgraph graph : {inner, outer, other})
    if (graph != nullptr) d.cuGraphDestroy(graph);
  return result;
}

// Recorded from a stream, run as a graph. `begin` and `end` are the variant under test.
using Begin = std::function<CUresult(CUstream)>;
using End = std::function<CUresult(CUstream, CUgraph*)>;
CUresult recorded(Driver& d, Target& t, const Begin& begin, const End& end) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUresult result = begin(t.stream);
  if (result != CUDA_SUCCESS) return result;
  result = d.cuLaunchKernel(t.function, 1, 1, 1, 1, 1, 1, 0, t.stream, t.list, nullptr);
  if (const CUresult ended = end(t.stream, &graph); result == CUDA_SUCCESS) result = ended;
  if (result == CUDA_SUCCESS) result = d.cuGraphInstantiateWithFlags(&exec, graph, 0);
  if (result == CUDA_SUCCESS) result = run_once(d, exec, t.stream);
  if (graph != nullptr) d.cuGraphDestroy(graph);
  return result;
}

CUresult on_a_stream_of_its_own(Driver& d, Target& t, const std::function<CUresult(CUstream*)>& create,
                                const std::function<CUresult(CUstream)>& destroy) {
  CUstream stream = nullptr;
  if (const CUresult r = create(&stream); r != CUDA_SUCCESS) return r;
  CUresult result = d.cuLaunchKernel(t.function, 1, 1, 1, 1, 1, 1, 0, stream, t.list, nullptr);
  if (const CUresult r = d.cuStreamSynchronize(stream); result == CUDA_SUCCESS) result = r;
  if (const CUresult r = destroy(stream); result == CUDA_SUCCESS) result = r;
  return result;
}

CUresult green(const Library& l, Target& t, Driver& d) {
  CUgreenCtx context = nullptr;
  // Without a description of the share there is none: the driver's own refusal, whatever it is.
  if (l.find<CUgreenCtx*, void*, CUdevice, unsigned>("cuGreenCtxCreate")(&context, nullptr, 0, 1) == CUDA_SUCCESS)
    return CUDA_ERROR_UNKNOWN;
  CUstream stream = nullptr;
  if (l.find<CUstream*, CUgreenCtx, unsigned, int>("cuGreenCtxStreamCreate")(&stream, nullptr, CU_STREAM_NON_BLOCKING,
                                                                             0) == CUDA_SUCCESS)
    return CUDA_ERROR_UNKNOWN;
  return d.cuLaunchKernel(t.function, 1, 1, 1, 1, 1, 1, 0, t.stream, t.list, nullptr);
}

CUresult on_many(const Library& l, Target& t) {
  CUDA_LAUNCH_PARAMS launch{};
  launch.function = t.function;
  launch.gridDimX = launch.gridDimY = launch.gridDimZ = launch.blockDimX = launch.blockDimY = launch.blockDimZ = 1;
  launch.hStream = t.stream;
  launch.kernelParams = t.list;
  return l.find<CUDA_LAUNCH_PARAMS*, unsigned, unsigned>("cuLaunchCooperativeKernelMultiDevice")(&launch, 1, 0);
}

struct Path {
  const char* name;
  unsigned expected;
  std::function<CUresult()> run;
};

std::vector<Path> paths(Driver& d, const Library& l, Target& t) {
  const auto with_params = [&](const char* name) {
    return [&d, &l, &t, name] {
      return instantiated(d, t, [&](CUgraphExec* exec, CUgraph graph) {
        CUDA_GRAPH_INSTANTIATE_PARAMS params{};
        return l.find<CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*>(name)(exec, graph, &params);
      });
    };
  };
  const auto capture = [&](const char* begin, const char* end) {
    return [&d, &l, &t, begin, end] {
      return recorded(
          d, t,
          [&](CUstream stream) {
            return l.find<CUstream, CUstreamCaptureMode>(begin)(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
          },
          [&](CUstream stream, CUgraph* graph) { return l.find<CUstream, CUgraph*>(end)(stream, graph); });
    };
  };
  const auto into_graph = [&](const char* begin, const char* end) {
    return [&d, &l, &t, begin, end] {
      CUgraph target = nullptr;
      if (const CUresult r = d.cuGraphCreate(&target, 0); r != CUDA_SUCCESS) return r;
      return recorded(
          d, t,
          [&](CUstream stream) {
            return l
                .find<CUstream, CUgraph, const CUgraphNode*, const CUgraphEdgeData*, std::size_t, CUstreamCaptureMode>(
                    begin)(stream, target, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
          },
          [&](CUstream stream, CUgraph* graph) { return l.find<CUstream, CUgraph*>(end)(stream, graph); });
    };
  };
  return {
      {"cuLaunchCooperativeKernelMultiDevice", 1, [&] { return on_many(l, t); }},
      {"cuGraphInstantiate", 1,
       [&] {
         return instantiated(d, t, [&](CUgraphExec* exec, CUgraph graph) {
           return l.find<CUgraphExec*, CUgraph, CUgraphNode*, char*, std::size_t>("cuGraphInstantiate")(
               exec, graph, nullptr, nullptr, 0);
         });
       }},
      {"cuGraphInstantiateWithParams", 1, with_params("cuGraphInstantiateWithParams")},
      {"cuGraphInstantiateWithParams_ptsz", 1, with_params("cuGraphInstantiateWithParams_ptsz")},
      {"cuGraphUpload_ptsz", 1,
       [&] {
         return instantiated(d, t, [&](CUgraphExec* exec, CUgraph graph) {
           const CUresult r = d.cuGraphInstantiateWithFlags(exec, graph, 0);
           return r != CUDA_SUCCESS ? r : l.find<CUgraphExec, CUstream>("cuGraphUpload_ptsz")(*exec, nullptr);
         });
       }},
      {"cuGraphExecUpdate", 3,
       [&] {
         return updated(d, t, [&](CUgraphExec exec, CUgraph graph) {
           CUgraphNode wrong = nullptr;
           CUgraphExecUpdateResult how{};
           return l.find<CUgraphExec, CUgraph, CUgraphNode*, CUgraphExecUpdateResult*>("cuGraphExecUpdate")(
               exec, graph, &wrong, &how);
         });
       }},
      {"cuGraphExecUpdate_v2", 3,
       [&] {
         return updated(d, t, [&](CUgraphExec exec, CUgraph graph) {
           CUgraphExecUpdateResultInfo info{};
           return d.cuGraphExecUpdate_v2(exec, graph, &info);
         });
       }},
      {"cuGraphExecKernelNodeSetParams", 3,
       [&] {
         return changed(d, t, [&](CUgraphExec exec, CUgraphNode node) {
           CUDA_KERNEL_NODE_PARAMS_v1 params{};
           params.func = t.function;
           params.gridDimX = 3;
           params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
           params.kernelParams = t.list;
           return l.find<CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1*>("cuGraphExecKernelNodeSetParams")(
               exec, node, &params);
         });
       }},
      {"cuGraphExecKernelNodeSetParams_v2", 3,
       [&] {
         return changed(d, t, [&](CUgraphExec exec, CUgraphNode node) {
           const CUDA_KERNEL_NODE_PARAMS params = kernel(t, 3);
           return d.cuGraphExecKernelNodeSetParams_v2(exec, node, &params);
         });
       }},
      {"cuGraphExecNodeSetParams", 3,
       [&] {
         return changed(d, t, [&](CUgraphExec exec, CUgraphNode node) {
           CUgraphNodeParams params{};
           params.type = CU_GRAPH_NODE_TYPE_KERNEL;
           params.kernel = kernel(t, 3);
           return l.find<CUgraphExec, CUgraphNode, CUgraphNodeParams*>("cuGraphExecNodeSetParams")(exec, node, &params);
         });
       }},
      {"cuGraphExecChildGraphNodeSetParams", 3, [&] { return child_changed(d, l, t); }},
      {"cuStreamBeginCapture", 1,
       [&] {
         return recorded(
             d, t, [&](CUstream stream) { return l.find<CUstream>("cuStreamBeginCapture")(stream); },
             [&](CUstream stream, CUgraph* graph) { return d.cuStreamEndCapture(stream, graph); });
       }},
      {"cuStreamBeginCapture_ptsz", 1,
       [&] {
         return recorded(
             d, t, [&](CUstream stream) { return l.find<CUstream>("cuStreamBeginCapture_ptsz")(stream); },
             [&](CUstream stream, CUgraph* graph) {
               return l.find<CUstream, CUgraph*>("cuStreamEndCapture_ptsz")(stream, graph);
             });
       }},
      {"cuStreamBeginCapture_v2_ptsz", 1, capture("cuStreamBeginCapture_v2_ptsz", "cuStreamEndCapture_ptsz")},
      {"cuStreamBeginCaptureToGraph", 1, into_graph("cuStreamBeginCaptureToGraph", "cuStreamEndCapture")},
      {"cuStreamBeginCaptureToGraph_ptsz", 1,
       into_graph("cuStreamBeginCaptureToGraph_ptsz", "cuStreamEndCapture_ptsz")},
      {"cuStreamCreateWithPriority", 1,
       [&] {
         return on_a_stream_of_its_own(
             d, t, [&](CUstream* stream) { return d.cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, 0); },
             [&](CUstream stream) { return l.find<CUstream>("cuStreamDestroy")(stream); });
       }},
      {"cuGreenCtxCreate", 1, [&] { return green(l, t, d); }},
  };
}

}  // namespace

int main() {
  Driver d;
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS) return std::fprintf(stderr, "no CUDA device here\n"), 77;
  const Library l{d.library};
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  Target target;
  CUdeviceptr counter = 0;
  if (d.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || d.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
      d.cuModuleLoadData(&module, kKernels) != CUDA_SUCCESS ||
      d.cuModuleGetFunction(&target.function, module, "count") != CUDA_SUCCESS ||
      d.cuMemAlloc_v2(&counter, 4) != CUDA_SUCCESS ||
      d.cuStreamCreate(&target.stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
    return std::fprintf(stderr, "cannot set the kernel up\n"), 1;
  target.counter = counter;
  bool good = true;
  for (const auto& [name, expected, run] : paths(d, l, target)) {
    if (d.cuMemsetD32_v2(counter, 0, 1) != CUDA_SUCCESS || d.cuCtxSynchronize() != CUDA_SUCCESS) return 1;
    CUresult result = run();
    if (const CUresult sync = d.cuCtxSynchronize(); result == CUDA_SUCCESS) result = sync;
    std::uint32_t ran = 0;
    d.cuMemcpyDtoH_v2(&ran, counter, sizeof ran);
    // Superseded entry points may be refused as such, and then ran nothing.
    const bool refused = result == CUDA_ERROR_NOT_SUPPORTED && ran == 0;
    Line(name, d.name_of(result)).number("ran", ran).number("expected", expected);
    good = good && (refused || (result == CUDA_SUCCESS && ran == expected));
  }
  return good ? 0 : 1;
}
