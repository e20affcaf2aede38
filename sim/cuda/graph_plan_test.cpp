#include "sim/cuda/graph_plan.h"

#include <thread>

#include "sim/cuda/test_graph.h"

namespace tensor_fusion::sim::cuda {

using GraphTime = Graphs;

namespace {
GraphEntry empty_after(std::vector<std::size_t> after) {
  return {std::make_shared<const EmptyCommand>(), std::move(after)};
}
}  // namespace

TEST(GraphPlan, lays_a_chain_on_one_rail_and_branches_side_by_side) {
  EXPECT_EQ(GraphPlan({}).rails(), 0U);
  EXPECT_EQ(GraphPlan({empty_after({}), empty_after({0}), empty_after({1})}).rails(), 1U);
  EXPECT_EQ(GraphPlan({empty_after({}), empty_after({0}), empty_after({0}), empty_after({1, 2})}).rails(), 2U);
  std::vector<GraphEntry> many{empty_after({})};
  for (int i = 0; i < 100; ++i) many.push_back(empty_after({0}));
  EXPECT_EQ(GraphPlan(many).rails(), GraphPlan::kMaxRails);
}

TEST(GraphPlan, uses_a_rail_again_once_it_was_waited_for) {
  std::vector<GraphEntry> diamonds{empty_after({})};
  for (std::size_t at = 0; at < 30; at += 3) {
    diamonds.push_back(empty_after({at}));
    diamonds.push_back(empty_after({at}));
    diamonds.push_back(empty_after({at + 1, at + 2}));
  }
  EXPECT_EQ(GraphPlan(diamonds).rails(), 2U);
}

TEST_F(GraphTime, of_branches_that_fit_together_is_that_of_the_longest) {
  const CUgraph graph = new_graph();
  const CUgraphNode root = add_busy(graph, 1000, 1);
  std::vector<CUgraphNode> ends;
  for (const std::uint64_t us : {2000U, 4000U, 3000U, 1000U}) ends.push_back(add_busy(graph, us, 1, {root}));
  add_busy(graph, 1000, 1, ends);
  EXPECT_NEAR(time_ms(instantiate(graph)), 6.0F, 0.3F);
}

TEST_F(GraphTime, of_branches_that_each_fill_the_card_is_their_sum) {
  const CUgraph graph = new_graph();
  for (int i = 0; i < 4; ++i) add_busy(graph, 1000, 1024);
  EXPECT_NEAR(time_ms(instantiate(graph)), 4.0F, 0.3F);
}

TEST_F(GraphTime, of_branches_inside_a_child_graph_counts_the_longest_too) {
  const CUgraph child = new_graph();
  add_busy(child, 3000, 1);
  add_busy(child, 2000, 1);
  const CUgraph graph = new_graph();
  const CUgraphNode root = add_busy(graph, 1000, 1);
  CUgraphNode inner = nullptr;
  ASSERT_OK(cuGraphAddChildGraphNode(&inner, graph, &root, 1, child));
  add_busy(graph, 1000, 1, {inner});
  EXPECT_NEAR(time_ms(instantiate(graph)), 5.0F, 0.3F);
}

TEST_F(GraphTime, comes_after_the_stream_s_work_and_before_its_next) {
  const CUgraph graph = new_graph();
  for (int i = 0; i < 3; ++i) add_busy(graph, 2000, 1);
  const CUgraphExec exec = instantiate(graph);
  CUevent begin = nullptr, end = nullptr;
  ASSERT_OK(cuEventCreate(&begin, 0));
  ASSERT_OK(cuEventCreate(&end, 0));
  Held held(nullptr);
  EXPECT_OK(cuEventRecord(begin, nullptr));
  EXPECT_OK(launch_busy(1000, nullptr, 1));
  EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_OK(launch_busy(1000, nullptr, 1));
  EXPECT_OK(cuEventRecord(end, nullptr));
  held.let_go();
  EXPECT_OK(cuEventSynchronize(end));
  float ms = 0;
  EXPECT_OK(cuEventElapsedTime(&ms, begin, end));
  EXPECT_NEAR(ms, 6.0F, 0.3F);
}

TEST_F(Graphs, whose_branches_meet_see_what_each_has_written) {
  const CUgraph graph = new_graph();
  const CUgraphNode zero = add_kernel(graph, store, 0);
  std::vector<CUgraphNode> branches;
  for (std::uint32_t i = 0; i < 20; ++i) branches.push_back(add_kernel(graph, add, 1 + i, {zero}));
  std::uint32_t seen = 0;
  CUDA_MEMCPY3D to_host{};
  to_host.srcMemoryType = CU_MEMORYTYPE_DEVICE, to_host.srcDevice = word;
  to_host.dstMemoryType = CU_MEMORYTYPE_HOST, to_host.dstHost = &seen;
  to_host.WidthInBytes = 4, to_host.Height = to_host.Depth = 1;
  CUgraphNode copy = nullptr;
  ASSERT_OK(cuGraphAddMemcpyNode(&copy, graph, branches.data(), branches.size(), &to_host, context));
  const CUgraphExec exec = instantiate(graph);
  for (int round = 0; round < 20; ++round) {
    seen = 0;
    EXPECT_OK(cuGraphLaunch(exec, nullptr));
    EXPECT_OK(cuStreamSynchronize(nullptr));
    ASSERT_EQ(seen, 210U);
  }
}

TEST_F(Graphs, with_branches_can_be_launched_by_many_threads_at_once) {
  const CUgraph graph = new_graph();
  for (int i = 0; i < 6; ++i) add_kernel(graph, add, 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      EXPECT_OK(cuCtxSetCurrent(context));
      CUstream mine = nullptr;
      EXPECT_OK(cuStreamCreate(&mine, CU_STREAM_NON_BLOCKING));
      const CUgraphExec exec = instantiate(graph);
      for (int round = 0; round < 50; ++round) EXPECT_OK(cuGraphLaunch(exec, mine));
      EXPECT_OK(cuStreamSynchronize(mine));
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(read_word(), 4U * 50U * 6U);
}

}  // namespace tensor_fusion::sim::cuda
