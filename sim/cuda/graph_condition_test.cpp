// Graphs with nodes that choose what runs.
#include <cstdint>
#include <string>
#include <vector>

#include "sim/cuda/test_graph.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr const char* kChoosing = R"(
.version 8.3
.target sm_80
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
// Writes down the value for a condition.
.visible .entry choose(.param .u64 handle, .param .u32 value)
{
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  .param .b64 p0;
  .param .b32 p1;
  ld.param.u64 %rd1, [handle];
  ld.param.u32 %r1, [value];
  st.param.b64 [p0], %rd1;
  st.param.b32 [p1], %r1;
  call.uni cudaGraphSetConditional, (p0, p1);
  ret;
}
// Takes one from a word, and asks to be run again while it is not 0.
.visible .entry count_down(.param .u64 word, .param .u64 handle)
{
  .reg .b64 %rd<4>;
  .reg .b32 %r<3>;
  .param .b64 p0;
  .param .b32 p1;
  ld.param.u64 %rd1, [word];
  ld.param.u64 %rd2, [handle];
  cvta.to.global.u64 %rd3, %rd1;
  ld.global.u32 %r1, [%rd3];
  sub.u32 %r2, %r1, 1;
  st.global.u32 [%rd3], %r2;
  st.param.b64 [p0], %rd2;
  st.param.b32 [p1], %r2;
  call.uni cudaGraphSetConditional, (p0, p1);
  ret;
}
)";

}  // namespace

class Conditions : public Graphs {
 protected:
  void SetUp() override {
    Graphs::SetUp();
    ASSERT_OK(cuModuleLoadData(&choosing, kChoosing));
    ASSERT_OK(cuModuleGetFunction(&choose, choosing, "choose"));
    ASSERT_OK(cuModuleGetFunction(&count_down, choosing, "count_down"));
    ASSERT_OK(cuMemAlloc_v2(&rounds, 4));
  }
  CUgraphConditionalHandle new_condition(CUgraph graph) {
    CUgraphConditionalHandle handle = 0;
    EXPECT_OK(cuGraphConditionalHandleCreate(&handle, graph, context, 0, 0));
    return handle;
  }
  CUgraphConditionalHandle new_condition(CUgraph graph, unsigned initial) {
    CUgraphConditionalHandle handle = 0;
    EXPECT_OK(cuGraphConditionalHandleCreate(&handle, graph, context, initial, CU_GRAPH_COND_ASSIGN_DEFAULT));
    return handle;
  }
  CUresult try_node(CUgraph graph, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type, unsigned size,
                    const std::vector<CUgraphNode>& after, CUgraphNode& node, std::vector<CUgraph>& bodies) const {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = context;
    const CUresult result = cuGraphAddNode(&node, graph, after.data(), after.size(), &params);
    if (result == CUDA_SUCCESS) bodies.assign(params.conditional.phGraph_out, params.conditional.phGraph_out + size);
    return result;
  }
  std::vector<CUgraph> add_node(CUgraph graph, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                                unsigned size = 1, const std::vector<CUgraphNode>& after = {}) const {
    CUgraphNode node = nullptr;
    std::vector<CUgraph> bodies;
    EXPECT_OK(try_node(graph, handle, type, size, after, node, bodies));
    return bodies;
  }
  CUgraphNode add_choice(CUgraph graph, CUgraphConditionalHandle handle, unsigned value) const {
    void* params[] = {&handle, &value};
    return add_single(graph, choose, params, {});
  }
  CUgraphNode add_count_down(CUgraph graph, CUgraphConditionalHandle handle,
                             const std::vector<CUgraphNode>& after = {}) {
    void* params[] = {&rounds, &handle};
    return add_single(graph, count_down, params, after);
  }
  static CUgraphNode add_single(CUgraph graph, CUfunction function, void** params,
                                const std::vector<CUgraphNode>& after) {
    CUDA_KERNEL_NODE_PARAMS p{};
    p.func = function;
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = params;
    CUgraphNode node = nullptr;
    EXPECT_OK(cuGraphAddKernelNode_v2(&node, graph, after.data(), after.size(), &p));
    return node;
  }
  std::uint32_t run(CUgraphExec exec, CUstream stream = nullptr) {
    EXPECT_OK(cuMemsetD32_v2(word, 0, 1));
    EXPECT_OK(cuGraphLaunch(exec, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    return read_word();
  }

  CUmodule choosing = nullptr;
  CUfunction choose = nullptr, count_down = nullptr;
  CUdeviceptr rounds = 0;
};

TEST_F(Conditions, run_a_body_when_they_are_set_and_the_other_one_when_they_are_not) {
  for (const unsigned value : {0U, 1U, 7U}) {
    const CUgraph graph = new_graph();
    const auto condition = new_condition(graph);
    const CUgraphNode chosen = add_choice(graph, condition, value);
    const auto bodies = add_node(graph, condition, CU_GRAPH_COND_TYPE_IF, 2, {chosen});
    ASSERT_EQ(bodies.size(), 2U);
    add_kernel(bodies[0], add, 5);
    add_kernel(bodies[1], add, 3);
    const CUgraphExec exec = instantiate(graph);
    EXPECT_EQ(run(exec), value != 0 ? 5U : 3U);
    EXPECT_EQ(run(exec), value != 0 ? 5U : 3U);
    EXPECT_OK(cuGraphExecDestroy(exec));
    EXPECT_OK(cuGraphDestroy(graph));
  }
}

TEST_F(Conditions, run_a_body_again_and_again_while_they_are_set) {
  const CUgraph graph = new_graph();
  const auto condition = new_condition(graph, 1);
  const auto bodies = add_node(graph, condition, CU_GRAPH_COND_TYPE_WHILE);
  add_count_down(bodies[0], condition, {add_kernel(bodies[0], add, 2)});
  const CUgraphExec exec = instantiate(graph);
  for (const unsigned count : {1U, 10U, 1000U}) {
    ASSERT_OK(cuMemsetD32_v2(rounds, count, 1));
    EXPECT_EQ(run(exec), 2 * count);
  }
}

TEST_F(Conditions, run_the_body_they_name_or_none) {
  const CUgraph graph = new_graph();
  const auto condition = new_condition(graph);
  const CUgraphNode chosen = add_choice(graph, condition, 0);
  const auto bodies = add_node(graph, condition, CU_GRAPH_COND_TYPE_SWITCH, 3, {chosen});
  for (unsigned i = 0; i < 3; ++i) add_kernel(bodies[i], add, 10 + i);
  const CUgraphExec exec = instantiate(graph);
  for (unsigned value = 0; value < 5; ++value) {
    auto handle = condition;
    void* params[] = {&handle, &value};
    CUDA_KERNEL_NODE_PARAMS p{};
    p.func = choose;
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = params;
    EXPECT_OK(cuGraphExecKernelNodeSetParams_v2(exec, chosen, &p));
    EXPECT_EQ(run(exec), value < 3 ? 10 + value : 0) << value;
  }
}

TEST_F(Conditions, have_their_default_value_at_each_launch) {
  const CUgraph graph = new_graph();
  const auto condition = new_condition(graph, 1);
  const auto bodies = add_node(graph, condition, CU_GRAPH_COND_TYPE_IF);
  add_choice(bodies[0], condition, 0);
  add_kernel(bodies[0], add, 4);
  const CUgraphExec exec = instantiate(graph);
  EXPECT_EQ(run(exec), 4U);
  EXPECT_EQ(run(exec), 4U);
}

TEST_F(Conditions, may_lie_inside_of_each_other_and_of_child_graphs) {
  const CUgraph graph = new_graph();
  const auto outer = new_condition(graph, 1);
  const auto inner = new_condition(graph, 1);
  const auto loop = add_node(graph, outer, CU_GRAPH_COND_TYPE_WHILE);
  const CUgraph child = new_graph();
  add_kernel(child, add, 1);
  CUgraphNode part = nullptr;
  ASSERT_OK(cuGraphAddChildGraphNode(&part, loop[0], nullptr, 0, child));
  const auto nested = add_node(loop[0], inner, CU_GRAPH_COND_TYPE_IF, 1, {part});
  add_kernel(nested[0], add, 100);
  add_choice(nested[0], inner, 0);  // only the first time
  add_count_down(loop[0], outer);
  const CUgraphExec exec = instantiate(graph);
  ASSERT_OK(cuMemsetD32_v2(rounds, 6, 1));
  EXPECT_EQ(run(exec), 106U);

  CUgraph whole = new_graph();
  ASSERT_OK(cuGraphAddChildGraphNode(&part, whole, nullptr, 0, graph));
  const CUgraphExec around = instantiate(whole);
  ASSERT_OK(cuMemsetD32_v2(rounds, 3, 1));
  EXPECT_EQ(run(around), 103U);
}

TEST_F(Conditions, take_time_for_each_round) {
  const CUgraph graph = new_graph();
  const auto condition = new_condition(graph, 1);
  const auto bodies = add_node(graph, condition, CU_GRAPH_COND_TYPE_WHILE);
  add_busy(bodies[0], 200, 1024);
  add_count_down(bodies[0], condition);
  const CUgraphExec exec = instantiate(graph);
  CUevent begin = nullptr, end = nullptr;
  ASSERT_OK(cuEventCreate(&begin, 0));
  ASSERT_OK(cuEventCreate(&end, 0));
  ASSERT_OK(cuMemsetD32_v2(rounds, 50, 1));
  EXPECT_OK(launch_busy(50'000));  // so that all is there when the device comes to it
  EXPECT_OK(cuEventRecord(begin, nullptr));
  EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_OK(cuEventRecord(end, nullptr));
  EXPECT_OK(cuEventSynchronize(end));
  float ms = 0;
  EXPECT_OK(cuEventElapsedTime(&ms, begin, end));
  EXPECT_GE(ms, 10.0F);
  EXPECT_LT(ms, 20.0F);
}

TEST_F(Conditions, get_their_bodies_by_capture_too) {
  CUstream stream = nullptr;
  ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUgraph graph = new_graph();
  const auto condition = new_condition(graph, 1);
  const auto bodies = add_node(graph, condition, CU_GRAPH_COND_TYPE_IF);
  ASSERT_OK(cuStreamBeginCaptureToGraph(stream, bodies[0], nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(cuMemsetD32Async(word, 40, 1, stream));
  EXPECT_OK(launch(add, 2, stream));
  CUgraph captured = nullptr;
  ASSERT_OK(cuStreamEndCapture(stream, &captured));
  EXPECT_EQ(captured, bodies[0]);
  EXPECT_EQ(run(instantiate(graph), stream), 42U);
}

TEST_F(Conditions, have_values_of_their_own_in_each_executable_graph) {
  const CUgraph graph = new_graph();
  const auto condition = new_condition(graph);  // keeps its value from launch to launch
  const auto bodies = add_node(graph, condition, CU_GRAPH_COND_TYPE_IF);
  add_kernel(bodies[0], add, 1);
  const CUgraphNode chosen = add_choice(graph, condition, 1);  // behind the look, or beside it
  CUgraphNode node = nullptr;
  std::size_t count = 2;
  CUgraphNode nodes[2] = {};
  ASSERT_OK(cuGraphGetNodes(graph, nodes, &count));
  node = nodes[0] == chosen ? nodes[1] : nodes[0];
  ASSERT_OK(cuGraphAddDependencies(graph, &node, &chosen, 1));
  const CUgraphExec first = instantiate(graph), second = instantiate(graph);
  EXPECT_EQ(run(first), 0U);
  EXPECT_EQ(run(first), 1U);
  EXPECT_EQ(run(second), 0U);
}

TEST_F(Conditions, are_taken_over_by_an_update) {
  const auto make = [&](unsigned size, std::uint32_t amount) {
    const CUgraph graph = new_graph();
    const auto condition = new_condition(graph, 1);
    const auto bodies = add_node(graph, condition, CU_GRAPH_COND_TYPE_IF, size);
    add_kernel(bodies[0], add, amount);
    add_choice(bodies[0], condition, 0);
    return graph;
  };
  const CUgraphExec exec = instantiate(make(1, 1));
  CUgraphExecUpdateResultInfo info{};
  EXPECT_OK(cuGraphExecUpdate_v2(exec, make(1, 9), &info));
  EXPECT_EQ(run(exec), 9U);
  EXPECT_EQ(run(exec), 9U);
  EXPECT_EQ(cuGraphExecUpdate_v2(exec, make(2, 9), &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
}

TEST_F(Conditions, are_refused_where_they_cannot_work) {
  const CUgraph graph = new_graph(), other = new_graph();
  CUgraphConditionalHandle condition = 0;
  EXPECT_EQ(cuGraphConditionalHandleCreate(nullptr, graph, context, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphConditionalHandleCreate(&condition, nullptr, context, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphConditionalHandleCreate(&condition, graph, context, 0, 2), CUDA_ERROR_INVALID_VALUE);
  condition = new_condition(graph, 1);
  CUgraphNode node = nullptr;
  std::vector<CUgraph> bodies;
  EXPECT_EQ(try_node(graph, 12345, CU_GRAPH_COND_TYPE_IF, 1, {}, node, bodies), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(try_node(graph, condition, CU_GRAPH_COND_TYPE_WHILE, 2, {}, node, bodies), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(try_node(graph, condition, CU_GRAPH_COND_TYPE_IF, 3, {}, node, bodies), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(try_node(graph, condition, CU_GRAPH_COND_TYPE_SWITCH, 0, {}, node, bodies), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(try_node(other, condition, CU_GRAPH_COND_TYPE_IF, 1, {}, node, bodies), CUDA_ERROR_INVALID_VALUE);

  CUgraphExec exec = nullptr;  // a condition without a node
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  EXPECT_EQ(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(params.result_out, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);

  EXPECT_OK(try_node(graph, condition, CU_GRAPH_COND_TYPE_IF, 1, {}, node, bodies));
  CUgraphNodeType type{};
  EXPECT_OK(cuGraphNodeGetType(node, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_CONDITIONAL);
  EXPECT_EQ(cuGraphDestroy(bodies[0]), CUDA_ERROR_INVALID_VALUE);
  CUgraphNode again = nullptr;
  std::vector<CUgraph> more;
  EXPECT_EQ(try_node(graph, condition, CU_GRAPH_COND_TYPE_IF, 1, {}, again, more), CUDA_ERROR_INVALID_VALUE);

  const CUDA_HOST_NODE_PARAMS host{[](void*) {}, nullptr};  // a body is the device's alone
  ASSERT_OK(cuGraphAddHostNode(&again, bodies[0], nullptr, 0, &host));
  EXPECT_EQ(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(params.result_out, CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED);
  EXPECT_EQ(params.hErrNode_out, node);

  EXPECT_OK(cuGraphDestroy(graph));
  std::size_t count = 0;
  EXPECT_EQ(cuGraphGetNodes(bodies[0], nullptr, &count), CUDA_ERROR_INVALID_VALUE);  // a body goes with its node
}

TEST_F(Conditions, that_stay_set_for_ever_end_with_their_context) {
  CUcontext other = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&other, 0, 0));
  const CUgraph graph = new_graph();
  CUgraphConditionalHandle condition = 0;
  ASSERT_OK(cuGraphConditionalHandleCreate(&condition, graph, other, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  const auto bodies = add_node(graph, condition, CU_GRAPH_COND_TYPE_WHILE);
  CUmodule module_of_other = nullptr;
  CUfunction function = nullptr;
  ASSERT_OK(cuModuleLoadData(&module_of_other, kTestKernels));
  ASSERT_OK(cuModuleGetFunction(&function, module_of_other, "nothing"));
  add_single(bodies[0], function, nullptr, {});
  EXPECT_OK(cuGraphLaunch(instantiate(graph), nullptr));
  EXPECT_OK(cuCtxDestroy_v2(other));
  EXPECT_OK(cuCtxSetCurrent(context));
  EXPECT_OK(launch(add, 1));
  EXPECT_EQ(read_word(), 1U);
}

TEST_F(Graphs, take_their_child_graphs_along) {
  const CUgraph graph = new_graph(), child = new_graph();
  add_kernel(child, add, 1);
  CUgraphNode node = nullptr;
  ASSERT_OK(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
  CUgraph inner = nullptr;
  ASSERT_OK(cuGraphChildGraphNodeGetGraph(node, &inner));
  const CUgraphExec exec = instantiate(graph);
  EXPECT_OK(cuGraphDestroy(graph));
  std::size_t count = 0;
  EXPECT_EQ(cuGraphGetNodes(inner, nullptr, &count), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(read_word(), 1U);
}

}  // namespace tensor_fusion::sim::cuda
