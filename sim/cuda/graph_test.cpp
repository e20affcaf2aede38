#include <vector>

#include "sim/cuda/test_graph.h"

namespace tensor_fusion::sim::cuda {

TEST_F(Graphs, built_by_hand_run_in_their_order_again_and_again) {
  CUgraph graph = nullptr;
  ASSERT_OK(cuGraphCreate(&graph, 0));
  std::uint32_t five = 5, three = 3;
  CUgraphNode fill = nullptr, first = nullptr, second = nullptr, copy = nullptr;
  const CUDA_MEMSET_NODE_PARAMS zero{word, 4, 0, 4, 1, 1};
  ASSERT_OK(cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &zero, context));
  const auto p5 = kernel(add, five);
  ASSERT_OK(cuGraphAddKernelNode_v2(&first, graph, &fill, 1, &p5));
  const auto p3 = kernel(add, three);
  ASSERT_OK(cuGraphAddKernelNode_v2(&second, graph, &first, 1, &p3));
  std::uint32_t out = 0;
  CUDA_MEMCPY3D to_host{};
  to_host.srcMemoryType = CU_MEMORYTYPE_DEVICE, to_host.srcDevice = word;
  to_host.dstMemoryType = CU_MEMORYTYPE_HOST, to_host.dstHost = &out;
  to_host.WidthInBytes = 4, to_host.Height = to_host.Depth = 1;
  ASSERT_OK(cuGraphAddMemcpyNode(&copy, graph, &second, 1, &to_host, context));
  int calls = 0;
  const CUDA_HOST_NODE_PARAMS host{[](void* data) { ++*static_cast<int*>(data); }, &calls};
  CUgraphNode called = nullptr;
  ASSERT_OK(cuGraphAddHostNode(&called, graph, &copy, 1, &host));
  CUgraphExec exec = nullptr;
  ASSERT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 1; i <= 3; ++i) {
    out = 0;
    EXPECT_OK(cuGraphLaunch(exec, nullptr));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQ(out, 8U);
    EXPECT_EQ(calls, i);
  }
  std::uint32_t ten = 10;
  const auto p10 = kernel(add, ten);
  EXPECT_OK(cuGraphExecKernelNodeSetParams_v2(exec, first, &p10));
  EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(out, 13U);
  EXPECT_OK(cuGraphNodeSetEnabled(exec, second, 0));
  EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(out, 10U);
  CUgraph clone = nullptr;
  CUgraphNode twin = nullptr;
  EXPECT_OK(cuGraphClone(&clone, graph));
  EXPECT_OK(cuGraphNodeFindInClone(&twin, first, clone));
  EXPECT_NE(twin, first);
  EXPECT_OK(cuGraphDestroy(clone));
  EXPECT_OK(cuGraphExecDestroy(exec));
  EXPECT_OK(cuGraphDestroy(graph));
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Graphs, with_a_cycle_are_refused) {
  CUgraph graph = nullptr;
  ASSERT_OK(cuGraphCreate(&graph, 0));
  std::uint32_t one = 1;
  const auto p = kernel(add, one);
  CUgraphNode a = nullptr, b = nullptr;
  ASSERT_OK(cuGraphAddKernelNode_v2(&a, graph, nullptr, 0, &p));
  ASSERT_OK(cuGraphAddKernelNode_v2(&b, graph, &a, 1, &p));
  EXPECT_OK(cuGraphAddDependencies(graph, &b, &a, 1));
  CUgraphExec exec = nullptr;
  EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuGraphDestroy(graph));
}

TEST_F(Graphs, can_be_captured_across_streams_forked_and_joined_by_events) {
  CUstream a = nullptr, b = nullptr;
  ASSERT_OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  ASSERT_OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  CUevent fork = nullptr, join = nullptr;
  ASSERT_OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  ASSERT_OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  ASSERT_OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_OK(launch(add, 1, a));
  EXPECT_OK(cuEventRecord(fork, a));
  EXPECT_OK(cuStreamWaitEvent(b, fork, 0));
  CUstreamCaptureStatus status{};
  EXPECT_OK(cuStreamIsCapturing(b, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_OK(launch(add, 10, b));
  EXPECT_OK(cuEventRecord(join, b));
  EXPECT_OK(launch(add, 100, a));
  EXPECT_OK(cuStreamWaitEvent(a, join, 0));
  EXPECT_OK(launch(add, 1000, a));
  CUgraph graph = nullptr;
  ASSERT_OK(cuStreamEndCapture(a, &graph));
  EXPECT_OK(cuStreamIsCapturing(b, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  std::size_t nodes = 0;
  EXPECT_OK(cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 4U);
  EXPECT_EQ(read_word(), 0U);  // nothing has run yet
  CUgraphExec exec = nullptr;
  ASSERT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT_OK(cuGraphLaunch(exec, a));
  EXPECT_OK(cuGraphLaunch(exec, a));
  EXPECT_OK(cuStreamSynchronize(a));
  EXPECT_EQ(read_word(), 2222U);
}

TEST_F(Graphs, captures_say_what_is_wrong_with_them) {
  CUstream a = nullptr, b = nullptr;
  ASSERT_OK(cuStreamCreate(&a, CU_STREAM_DEFAULT));
  ASSERT_OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  CUevent fork = nullptr;
  ASSERT_OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_ILLEGAL_STATE);

  ASSERT_OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(cuStreamSynchronize(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(launch(add, 1, a), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  ASSERT_OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(launch(add, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  ASSERT_OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAlloc_v2(&p, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  ASSERT_OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(cuMemAlloc_v2(&p, 4));
  EXPECT_OK(cuEventRecord(fork, a));
  EXPECT_EQ(cuEventQuery(fork), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  ASSERT_OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(launch(add, 1, a));
  EXPECT_OK(cuEventRecord(fork, a));
  EXPECT_OK(cuStreamWaitEvent(b, fork, 0));
  EXPECT_OK(launch(add, 1, b));
  EXPECT_EQ(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(read_word(), 0U);
}

TEST_F(Graphs, take_over_the_parameters_of_a_graph_of_the_same_shape) {
  const auto make = [&](std::uint32_t value, int kernels, CUgraph& graph) {
    ASSERT_OK(cuGraphCreate(&graph, 0));
    CUgraphNode before = nullptr;
    for (int i = 0; i < kernels; ++i) {
      const auto p = kernel(add, value);
      ASSERT_OK(cuGraphAddKernelNode_v2(&before, graph, i != 0 ? &before : nullptr, i != 0, &p));
    }
  };
  CUgraph one = nullptr, ten = nullptr, longer = nullptr;
  make(1, 2, one);
  make(10, 2, ten);
  make(10, 3, longer);
  CUgraphExec exec = nullptr;
  ASSERT_OK(cuGraphInstantiateWithFlags(&exec, one, 0));
  CUgraphExecUpdateResultInfo info{};
  EXPECT_OK(cuGraphExecUpdate_v2(exec, ten, &info));
  EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(read_word(), 20U);
  EXPECT_EQ(cuGraphExecUpdate_v2(exec, longer, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

TEST_F(Graphs, hold_memory_of_their_own_from_their_first_run_until_trimmed) {
  EXPECT_OK(cuDeviceGraphMemTrim(0));
  const std::size_t before = free_bytes();
  CUgraph graph = nullptr;
  ASSERT_OK(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  params.bytesize = 1 << 20;
  CUgraphNode taken = nullptr, filled = nullptr, given = nullptr;
  ASSERT_OK(cuGraphAddMemAllocNode(&taken, graph, nullptr, 0, &params));
  EXPECT_NE(params.dptr, 0U);
  EXPECT_EQ(free_bytes(), before);
  std::uint32_t seven = 7;
  const CUdeviceptr at = params.dptr;
  auto p = kernel(store, seven);
  CUdeviceptr target = at;
  params_[0] = &target;
  ASSERT_OK(cuGraphAddKernelNode_v2(&filled, graph, &taken, 1, &p));
  ASSERT_OK(cuGraphAddMemFreeNode(&given, graph, &filled, 1, at));
  CUgraphExec exec = nullptr;
  ASSERT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(before - free_bytes(), std::size_t{2} << 20);
  std::uint64_t reserved = 0;
  EXPECT_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
  EXPECT_EQ(reserved, std::uint64_t{2} << 20);
  EXPECT_OK(cuDeviceGraphMemTrim(0));
  EXPECT_EQ(free_bytes(), before);
  EXPECT_OK(cuGraphExecDestroy(exec));
  EXPECT_OK(cuGraphDestroy(graph));
}

}  // namespace tensor_fusion::sim::cuda
