#include <vector>

#include "sim/cuda/test_graph.h"

namespace tensor_fusion::sim::cuda {

class GraphUpdate : public Graphs {
 protected:
  // What cuGraphExecUpdate says of taking over `graph`.
  CUgraphExecUpdateResult refusal(CUgraphExec exec, CUgraph graph, CUgraphNode* at = nullptr,
                                  CUgraphNode* from = nullptr) {
    CUgraphExecUpdateResultInfo info{};
    const CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);
    EXPECT_EQ(result,
              info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    if (at != nullptr) *at = info.errorNode;
    if (from != nullptr) *from = info.errorFromNode;
    return info.result;
  }
  CUgraph of_copy(CUmemorytype to_type, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUgraphNode* node) {
    const CUgraph graph = new_graph();
    const CUDA_MEMCPY3D copy = copying(to_type, to, from, bytes);
    EXPECT_OK(cuGraphAddMemcpyNode(node, graph, nullptr, 0, &copy, context));
    return graph;
  }
  static CUDA_MEMCPY3D copying(CUmemorytype to_type, CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.srcDevice = from;
    copy.dstMemoryType = to_type, copy.dstDevice = to, copy.dstHost = reinterpret_cast<void*>(to);
    copy.WidthInBytes = bytes, copy.Height = copy.Depth = 1;
    return copy;
  }
  CUgraph of_fill(const CUDA_MEMSET_NODE_PARAMS& fill, CUgraphNode* node) {
    const CUgraph graph = new_graph();
    EXPECT_OK(cuGraphAddMemsetNode(node, graph, nullptr, 0, &fill, context));
    return graph;
  }
};

TEST_F(GraphUpdate, of_another_shape_is_refused_and_says_where) {
  const CUgraph old = new_graph();
  const CUgraphNode first = add_kernel(old, add, 1);
  add_kernel(old, add, 1, {first});
  const CUgraphExec exec = instantiate(old);

  const CUgraph unlinked = new_graph();
  add_kernel(unlinked, add, 1);
  const CUgraphNode loose = add_kernel(unlinked, add, 1);
  CUgraphNode at = nullptr, from = nullptr;
  EXPECT_EQ(refusal(exec, unlinked, &at, &from), CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  EXPECT_EQ(at, loose);
  EXPECT_EQ(from, nullptr);

  const CUgraph another_kind = new_graph();
  const CUgraphNode kept = add_kernel(another_kind, add, 1);
  CUgraphNode empty = nullptr;
  ASSERT_OK(cuGraphAddEmptyNode(&empty, another_kind, &kept, 1));
  EXPECT_EQ(refusal(exec, another_kind, &at), CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  EXPECT_EQ(at, empty);

  EXPECT_OK(cuGraphLaunch(exec, nullptr));  // as it was
  EXPECT_EQ(read_word(), 2U);
}

TEST_F(GraphUpdate, with_a_kernel_of_another_context_is_refused) {
  const CUgraph old = new_graph();
  const CUgraphNode node = add_kernel(old, add, 1);
  const CUgraphExec exec = instantiate(old);
  CUcontext other = nullptr;
  CUmodule code = nullptr;
  CUfunction theirs = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&other, 0, 0));
  ASSERT_OK(cuModuleLoadData(&code, kTestKernels));
  ASSERT_OK(cuModuleGetFunction(&theirs, code, "add"));
  const CUgraph changed = new_graph();
  add_kernel(changed, theirs, 1);
  EXPECT_EQ(refusal(exec, changed), CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE);
  std::uint32_t one = 1;
  const auto p = kernel(theirs, one);
  EXPECT_EQ(cuGraphExecKernelNodeSetParams_v2(exec, node, &p), CUDA_ERROR_INVALID_VALUE);
  const CUgraphExec of_theirs = instantiate(changed);
  EXPECT_OK(cuCtxDestroy_v2(other));
  EXPECT_EQ(cuGraphLaunch(of_theirs, nullptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_F(GraphUpdate, takes_copies_between_the_same_kinds_of_memory_only) {
  CUdeviceptr other = 0;
  ASSERT_OK(cuMemAlloc_v2(&other, 64));
  ASSERT_OK(cuMemsetD32_v2(other, 7, 16));
  std::uint32_t host[16] = {};
  const auto on_host = reinterpret_cast<CUdeviceptr>(&host);
  CUgraphNode node = nullptr, ignored = nullptr;
  const CUgraphExec exec = instantiate(of_copy(CU_MEMORYTYPE_HOST, on_host, word, 4, &node));
  EXPECT_EQ(refusal(exec, of_copy(CU_MEMORYTYPE_HOST, on_host, other, 64, &ignored)), CU_GRAPH_EXEC_UPDATE_SUCCESS);
  EXPECT_EQ(refusal(exec, of_copy(CU_MEMORYTYPE_DEVICE, word, other, 4, &ignored)),
            CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
  const CUDA_MEMCPY3D on_card = copying(CU_MEMORYTYPE_DEVICE, word, other, 4);
  EXPECT_EQ(cuGraphExecMemcpyNodeSetParams(exec, node, &on_card, context), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(host[15], 7U);
  const CUDA_MEMCPY3D shorter = copying(CU_MEMORYTYPE_HOST, on_host, word, 4);
  EXPECT_OK(cuGraphExecMemcpyNodeSetParams(exec, node, &shorter, context));  // by the node it was first made of
  EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(host[0], 0U);
  EXPECT_EQ(host[1], 7U);
}

TEST_F(GraphUpdate, takes_fills_of_several_rows_only_in_their_shape) {
  CUdeviceptr area = 0;
  ASSERT_OK(cuMemAlloc_v2(&area, 1024));
  CUgraphNode node = nullptr, ignored = nullptr;
  const CUgraphExec exec = instantiate(of_fill({area, 64, 1, 4, 4, 4}, &node));
  EXPECT_EQ(refusal(exec, of_fill({area + 512, 64, 9, 4, 4, 4}, &ignored)), CU_GRAPH_EXEC_UPDATE_SUCCESS);
  EXPECT_EQ(refusal(exec, of_fill({area, 64, 1, 4, 4, 5}, &ignored)), CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
  const CUDA_MEMSET_NODE_PARAMS wider{area, 64, 1, 4, 8, 4};
  EXPECT_EQ(cuGraphExecMemsetNodeSetParams(exec, node, &wider, context), CUDA_ERROR_INVALID_VALUE);
  const CUgraphExec row = instantiate(of_fill({word, 0, 1, 4, 1, 1}, &node));
  const CUDA_MEMSET_NODE_PARAMS longer{area, 0, 5, 4, 16, 1};
  EXPECT_OK(cuGraphExecMemsetNodeSetParams(row, node, &longer, context));
}

TEST_F(GraphUpdate, reaches_into_child_graphs) {
  const auto of_child = [&](std::uint32_t value, CUgraphNode* node) {
    const CUgraph child = new_graph();
    add_kernel(child, add, value);
    const CUgraph graph = new_graph();
    EXPECT_OK(cuGraphAddChildGraphNode(node, graph, nullptr, 0, child));
    return graph;
  };
  CUgraphNode node = nullptr, ignored = nullptr;
  const CUgraphExec exec = instantiate(of_child(1, &node));
  EXPECT_EQ(refusal(exec, of_child(10, &ignored)), CU_GRAPH_EXEC_UPDATE_SUCCESS);
  EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(read_word(), 10U);
  const CUgraph longer = new_graph();
  add_kernel(longer, add, 5);
  EXPECT_OK(cuGraphExecChildGraphNodeSetParams(exec, node, longer));
  EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(read_word(), 15U);
  add_kernel(longer, add, 5);
  EXPECT_EQ(cuGraphExecChildGraphNodeSetParams(exec, node, longer), CUDA_ERROR_INVALID_VALUE);
  const CUgraph with_two = new_graph();
  ASSERT_OK(cuGraphAddChildGraphNode(&ignored, with_two, nullptr, 0, longer));
  EXPECT_EQ(refusal(exec, with_two), CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

TEST_F(GraphUpdate, of_a_host_function_is_called_from_then_on) {
  int old_calls = 0, new_calls = 0;
  const auto count = [](void* data) { ++*static_cast<int*>(data); };
  const CUgraph graph = new_graph();
  const CUDA_HOST_NODE_PARAMS before{count, &old_calls}, after{count, &new_calls};
  CUgraphNode node = nullptr;
  ASSERT_OK(cuGraphAddHostNode(&node, graph, nullptr, 0, &before));
  const CUgraphExec exec = instantiate(graph);
  EXPECT_OK(cuGraphExecHostNodeSetParams(exec, node, &after));
  EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(old_calls, 0);
  EXPECT_EQ(new_calls, 1);
}

class GraphMemoryNodes : public Graphs {
 protected:
  CUdeviceptr add_alloc(CUgraph graph, std::size_t bytes, CUgraphNode* node) {
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    params.bytesize = bytes;
    EXPECT_OK(cuGraphAddMemAllocNode(node, graph, nullptr, 0, &params));
    return params.dptr;
  }
  std::uint64_t used() {
    std::uint64_t bytes = 0;
    EXPECT_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes));
    return bytes;
  }
};

TEST_F(GraphMemoryNodes, left_allocated_stop_the_next_launch_unless_it_frees_them) {
  const CUgraph graph = new_graph();
  CUgraphNode node = nullptr;
  const CUdeviceptr at = add_alloc(graph, 1 << 20, &node);
  const CUgraphExec strict = instantiate(graph);
  EXPECT_OK(cuGraphLaunch(strict, nullptr));
  EXPECT_EQ(cuGraphLaunch(strict, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemFreeAsync(at, nullptr));
  EXPECT_OK(cuGraphLaunch(strict, nullptr));
  EXPECT_EQ(used(), std::uint64_t{2} << 20);
  EXPECT_OK(cuMemFree_v2(at));
  EXPECT_EQ(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(used(), 0U);
  EXPECT_OK(cuGraphExecDestroy(strict));
  const CUgraphExec loose = instantiate(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  for (int i = 0; i < 3; ++i) EXPECT_OK(cuGraphLaunch(loose, nullptr));
  EXPECT_EQ(used(), std::uint64_t{2} << 20);
  EXPECT_OK(cuMemFreeAsync(at, nullptr));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_OK(cuDeviceGraphMemTrim(0));
}

TEST_F(GraphMemoryNodes, make_a_graph_that_is_executable_once_at_a_time) {
  const CUgraph graph = new_graph();
  CUgraphNode node = nullptr;
  add_alloc(graph, 1 << 20, &node);
  const CUgraphExec first = instantiate(graph);
  CUgraphExec second = nullptr;
  EXPECT_EQ(cuGraphInstantiateWithFlags(&second, graph, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuGraphExecDestroy(first));
  EXPECT_OK(cuGraphInstantiateWithFlags(&second, graph, 0));
  EXPECT_OK(cuGraphExecDestroy(second));
}

TEST_F(GraphMemoryNodes, free_only_what_a_graph_or_a_pool_gave) {
  const CUgraph graph = new_graph();
  CUgraphNode node = nullptr;
  EXPECT_EQ(cuGraphAddMemFreeNode(&node, graph, nullptr, 0, word), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphAddMemFreeNode(&node, graph, nullptr, 0, 4096), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace tensor_fusion::sim::cuda
