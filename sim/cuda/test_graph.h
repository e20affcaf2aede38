#pragma once
// For this room's tests of graphs: a graph built by hand, node by node.
#include <initializer_list>
#include <vector>

#include "sim/cuda/test_context.h"

namespace tensor_fusion::sim::cuda {

class Graphs : public Cuda {
 protected:
  // What a node that runs `function` on the test's word is made of; valid until the next call.
  CUDA_KERNEL_NODE_PARAMS kernel(CUfunction function, std::uint32_t& value) {
    params_[0] = &word;
    params_[1] = &value;
    CUDA_KERNEL_NODE_PARAMS p{};
    p.func = function;
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = params_;
    return p;
  }
  CUgraph new_graph() {
    CUgraph graph = nullptr;
    EXPECT_OK(cuGraphCreate(&graph, 0));
    return graph;
  }
  CUgraphNode add_kernel(CUgraph graph, CUfunction function, std::uint32_t value,
                         const std::vector<CUgraphNode>& after = {}) {
    CUgraphNode node = nullptr;
    const auto p = kernel(function, value);
    EXPECT_OK(cuGraphAddKernelNode_v2(&node, graph, after.data(), after.size(), &p));
    return node;
  }
  // A kernel that takes `us` and fills `blocks` multiprocessors.
  CUgraphNode add_busy(CUgraph graph, std::uint64_t us, unsigned blocks, const std::vector<CUgraphNode>& after = {}) {
    CUgraphNode node = nullptr;
    std::uint64_t ns = us * 1000;
    void* params[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS p{};
    p.func = busy;
    p.gridDimX = blocks;
    p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = params;
    EXPECT_OK(cuGraphAddKernelNode_v2(&node, graph, after.data(), after.size(), &p));
    return node;
  }
  CUgraphExec instantiate(CUgraph graph, unsigned long long flags = 0) {
    CUgraphExec exec = nullptr;
    EXPECT_OK(cuGraphInstantiateWithFlags(&exec, graph, flags));
    return exec;
  }
  // Device time of a launch, the least of three.
  float time_ms(CUgraphExec exec, CUstream stream = nullptr) {
    CUevent begin = nullptr, end = nullptr;
    float least = -1;
    EXPECT_OK(cuEventCreate(&begin, 0));
    EXPECT_OK(cuEventCreate(&end, 0));
    for (int run = 0; run < 3; ++run) {
      float ms = -1;
      Held held(stream);
      EXPECT_OK(cuEventRecord(begin, stream));
      EXPECT_OK(cuGraphLaunch(exec, stream));
      EXPECT_OK(cuEventRecord(end, stream));
      held.let_go();
      EXPECT_OK(cuEventSynchronize(end));
      EXPECT_OK(cuEventElapsedTime(&ms, begin, end));
      if (run == 0 || ms < least) least = ms;
    }
    EXPECT_OK(cuEventDestroy_v2(begin));
    EXPECT_OK(cuEventDestroy_v2(end));
    return least;
  }
  void* params_[2] = {};
};

}  // namespace tensor_fusion::sim::cuda
