// Edges by which a kernel may start while the one in front of it still runs. They order here as all edges do, but are
// kept, checked and told.
#include "sim/cuda/test_graph.h"

namespace tensor_fusion::sim::cuda {

class GraphEdges : public Graphs {
 protected:
  static CUgraphEdgeData edge(unsigned char from_port, unsigned char type) {
    CUgraphEdgeData data{};
    data.from_port = from_port;
    data.type = type;
    return data;
  }
  const CUgraphEdgeData programmatic =
      edge(CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
};

TEST_F(GraphEdges, between_kernels_keep_their_kind_in_the_graph_and_its_clone) {
  const CUgraph graph = new_graph();
  const CUgraphNode first = add_kernel(graph, add, 1), second = add_kernel(graph, add, 2);
  ASSERT_OK(cuGraphAddDependencies_v2(graph, &first, &second, &programmatic, 1));
  CUgraph clone = nullptr;
  ASSERT_OK(cuGraphClone(&clone, graph));
  for (const CUgraph each : {graph, clone}) {
    CUgraphNode from = nullptr, to = nullptr;
    CUgraphEdgeData data{};
    std::size_t count = 1;
    EXPECT_OK(cuGraphGetEdges_v2(each, &from, &to, &data, &count));
    EXPECT_EQ(count, 1U);
    EXPECT_EQ(data.from_port, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
    EXPECT_EQ(data.type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
    EXPECT_EQ(cuGraphGetEdges(each, &from, &to, &count), CUDA_ERROR_LOSSY_QUERY);  // cannot tell the kind
    EXPECT_EQ(cuGraphNodeGetDependencies(to, &from, &count), CUDA_ERROR_LOSSY_QUERY);
    data = {};
    EXPECT_OK(cuGraphNodeGetDependencies_v2(to, &from, &data, &count));
    EXPECT_EQ(data.type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
  }
  const CUgraphExec exec = instantiate(graph);
  EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(read_word(), 3U);
  EXPECT_EQ(cuGraphRemoveDependencies(graph, &first, &second, 1), CUDA_ERROR_INVALID_VALUE);  // a plain one
  EXPECT_OK(cuGraphRemoveDependencies_v2(graph, &first, &second, &programmatic, 1));
}

TEST_F(GraphEdges, of_wrong_kinds_are_refused) {
  const CUgraph graph = new_graph();
  const CUgraphNode first = add_kernel(graph, add, 1), second = add_kernel(graph, add, 2);
  CUgraphNode empty = nullptr;
  ASSERT_OK(cuGraphAddEmptyNode(&empty, graph, nullptr, 0));
  const auto connect = [&](CUgraphNode from, CUgraphNode to, const CUgraphEdgeData& data) {
    return cuGraphAddDependencies_v2(graph, &from, &to, &data, 1);
  };
  EXPECT_EQ(connect(first, empty, programmatic), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(connect(empty, first, programmatic), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(connect(first, second, edge(0, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(connect(first, second, edge(CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, 0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(connect(first, second, edge(3, 0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(connect(first, empty, edge(CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER, 0)));
  EXPECT_OK(
      connect(first, second, edge(CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)));

  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_EMPTY;
  CUgraphNode node = nullptr;
  EXPECT_EQ(cuGraphAddNode_v2(&node, graph, &first, &programmatic, 1, &params), CUDA_ERROR_INVALID_VALUE);
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  std::uint32_t value = 4;
  params.kernel = kernel(add, value);
  EXPECT_OK(cuGraphAddNode_v2(&node, graph, &first, &programmatic, 1, &params));
}

TEST_F(GraphEdges, come_from_launches_that_were_captured_with_the_wish_for_them) {
  CUstream stream = nullptr;
  ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_OK(launch(add, 1, stream));
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, stream, &attribute, 1};
  std::uint32_t value = 2;
  void* params[] = {&word, &value};
  EXPECT_OK(cuLaunchKernelEx(&config, add, params, nullptr));
  EXPECT_OK(launch(add, 4, stream));
  CUgraph graph = nullptr;
  ASSERT_OK(cuStreamEndCapture(stream, &graph));
  CUgraphNode from[2] = {}, to[2] = {};
  CUgraphEdgeData data[2] = {};
  std::size_t count = 2;
  EXPECT_OK(cuGraphGetEdges_v2(graph, from, to, data, &count));
  ASSERT_EQ(count, 2U);
  EXPECT_EQ(data[0].type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
  EXPECT_EQ(data[1].type, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
  EXPECT_OK(cuGraphLaunch(instantiate(graph), stream));
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_word(), 7U);
}

}  // namespace tensor_fusion::sim::cuda
