#pragma once
// Graphs: commands with an order between them. A node belongs to one graph and keeps its place in it. As in the real
// API one graph must not be changed from two threads at once. What runs is made of them: graph_exec.h.
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/command.h"
#include "sim/cuda/graph_plan.h"
#include "sim/cuda/handle.h"

namespace tensor_fusion::sim::cuda {

struct GraphCondition;

struct GraphNode {
  static constexpr HandleKind kHandleKind = HandleKind::graph_node;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Command command;
  Graph* graph = nullptr;
  std::vector<GraphNode*> after;  // in order of adding
  std::vector<GraphNode*> before;
  std::map<const GraphNode*, CUgraphEdgeData> edges;  // to those of `after` that it may start beside, not only behind
  std::uint64_t number = 0;                           // in the graph, in order of adding
  std::uint64_t origin = 0;                           // handle of the node it was cloned from, 0 = none
  std::uint64_t handle_value = 0;
  [[nodiscard]] CUgraphNode handle() const { return as_handle<CUgraphNode>(handle_value); }
  [[nodiscard]] CUgraphEdgeData edge(const GraphNode& earlier) const;
};

[[nodiscard]] constexpr bool is_plain(const CUgraphEdgeData& edge) {
  return edge.from_port == 0 && edge.to_port == 0 && edge.type == 0;
}
// Whether an edge of that kind can be between nodes of these types.
[[nodiscard]] bool can_connect(CUgraphNodeType from, CUgraphNodeType to, const CUgraphEdgeData& edge);

class Graph : public std::enable_shared_from_this<Graph> {
 public:
  static constexpr HandleKind kHandleKind = HandleKind::graph;
  static std::shared_ptr<Graph> create();
  ~Graph();

  std::shared_ptr<GraphNode> add(CUgraphNodeType type, Command command, const std::vector<GraphNode*>& after);
  CUresult connect(GraphNode& from, GraphNode& to, const CUgraphEdgeData& edge = {});
  CUresult disconnect(GraphNode& from, GraphNode& to, const CUgraphEdgeData& edge = {});
  void erase(GraphNode& node);
  [[nodiscard]] std::shared_ptr<Graph> clone() const;
  // In an order in which each node comes after all it waits for; empty if there is a cycle.
  [[nodiscard]] std::vector<GraphNode*> in_order() const;
  [[nodiscard]] std::vector<GraphEntry> entries() const;  // in that order
  [[nodiscard]] const std::vector<std::shared_ptr<GraphNode>>& nodes() const { return nodes_; }
  [[nodiscard]] bool has_memory_nodes() const;
  // Things of the program that live as long as the graph and what was made of it.
  void keep(CUuserObject name, std::shared_ptr<void> keeper) { kept_.emplace_back(name, std::move(keeper)); }
  bool let_go(CUuserObject name);
  [[nodiscard]] const auto& kept() const { return kept_; }
  void keep(std::shared_ptr<GraphCondition> condition) { conditions_.push_back(std::move(condition)); }
  [[nodiscard]] bool has_idle_condition() const;  // one that belongs to no node

  std::uint64_t handle_value = 0;
  bool is_child = false;     // belongs to a node: not to be destroyed by the program
  std::uint64_t parent = 0;  // handle of the graph with that node
  [[nodiscard]] CUgraph handle() const { return as_handle<CUgraph>(handle_value); }

 private:
  std::vector<std::shared_ptr<GraphNode>> nodes_;
  std::vector<std::pair<CUuserObject, std::shared_ptr<void>>> kept_;
  std::vector<std::shared_ptr<GraphCondition>> conditions_;
  std::uint64_t next_number_ = 0;
};

// Memory of an allocation node: its address is fixed when the node is made, its bytes are charged when it first runs.
struct GraphMemory {
  Device* device = nullptr;
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0, extent = 0;
  bool charged = false, live = false;
  ~GraphMemory();
};

[[nodiscard]] HandleTable<Graph>& graphs();
[[nodiscard]] HandleTable<GraphNode>& graph_nodes();

}  // namespace tensor_fusion::sim::cuda
