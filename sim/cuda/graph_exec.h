#pragma once
// Executable graphs: a copy of a graph that remembers which node each of its steps came from, so that single steps can
// be changed, and can run again and again. Thread-safe under its own lock.
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/command.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/graph_plan.h"
#include "sim/cuda/handle.h"

namespace tensor_fusion::sim::cuda {

struct GraphStep {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Command command;
  std::uint64_t node = 0;  // handle of the node it was made from
  bool enabled = true;
  std::vector<std::size_t> after;
};

// Why a graph cannot be made executable, and the node that is to blame, if it is one.
struct GraphRefusal {
  CUgraphInstantiateResult reason = CUDA_GRAPH_INSTANTIATE_ERROR;
  const GraphNode* node = nullptr;
};

class GraphExec {
 public:
  static constexpr HandleKind kHandleKind = HandleKind::graph_exec;
  // INVALID_VALUE for a cycle, for a condition without a node, and for a graph with memory nodes of which there is an
  // executable one already.
  static CUresult instantiate(const Graph& graph, std::uint64_t flags, std::shared_ptr<GraphExec>& out,
                              GraphRefusal& why);
  CUresult launch(Stream& stream);
  [[nodiscard]] std::shared_ptr<Graph> as_graph();  // the enabled steps
  // Gives the step made from the node another command. INVALID_VALUE when there is no such step, or not of that kind,
  // or when the change is one that an executable graph cannot take.
  CUresult set(std::uint64_t node, Command command);
  CUresult set_enabled(std::uint64_t node, bool enabled);
  CUresult enabled(std::uint64_t node, bool& out);
  // Takes over all parameters of a graph of the same shape, or nothing and says why.
  CUresult update(const Graph& graph, CUgraphExecUpdateResultInfo& info);

  std::uint64_t flags = 0;
  std::uint64_t handle_value = 0;

 private:
  static bool made_from(std::uint64_t node);  // whether an executable graph has a step for it
  GraphStep* step(std::uint64_t node);

  std::mutex mutex_;
  std::vector<GraphStep> steps_;
  std::vector<std::pair<CUuserObject, std::shared_ptr<void>>> kept_;
  std::map<std::uint64_t, std::size_t> by_node_;
  std::optional<GraphPlan> plan_;  // of the steps as they are; none: to be made
};

// Whether an executable graph can put the second command in the first one's place: the reason if not, else SUCCESS.
[[nodiscard]] CUgraphExecUpdateResult check_replacement(const Command& present, const Command& wanted);

[[nodiscard]] HandleTable<GraphExec>& graph_execs();

}  // namespace tensor_fusion::sim::cuda
