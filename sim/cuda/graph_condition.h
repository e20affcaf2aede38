#pragma once
// Nodes that choose what runs: a condition is a handle that kernels give a value (cudaGraphSetConditional), and a node
// runs one of its bodies by it, once or again and again. A handle's number travels in kernels' parameters and is the
// same in every copy of the graph; each executable graph has values of its own for it. A body's work is run in place,
// in a row, as one piece of work of the device. ConditionValues is thread-safe, the rest immutable once it is made.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/command.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/graph_plan.h"
#include "sim/cuda/handle.h"

namespace tensor_fusion::sim::cuda {

// What a handle names. It belongs to a graph, and to one node of it or of a graph inside.
struct GraphCondition {
  static constexpr HandleKind kHandleKind = HandleKind::graph_condition;
  std::uint64_t graph = 0;  // its handle
  unsigned initial = 0;
  bool assigned = false;  // has `initial` again at each launch
  std::atomic<bool> used{false};
  std::uint64_t handle_value = 0;
};

// The values of one executable graph.
class ConditionValues {
 public:
  void add(const GraphCondition& condition);
  void start();  // of a launch
  void set(std::uint64_t handle, unsigned value);
  [[nodiscard]] unsigned get(std::uint64_t handle) const;
  [[nodiscard]] bool empty() const { return values_.empty(); }

 private:
  struct Value {
    std::atomic<unsigned> now{0};
    unsigned initial = 0;
    bool assigned = false;
  };
  std::map<std::uint64_t, Value> values_;
};

// A conditional node as it runs: its bodies taken apart, with the values of the graph they are in.
struct ConditionalPlan {
  CUgraphConditionalNodeType type{};
  std::uint64_t condition = 0;
  std::shared_ptr<ConditionValues> values;
  std::vector<std::vector<Command>> bodies;
  std::uint64_t blocks = 1;  // of the largest kernel inside
};

// Of all conditional nodes among the entries; nothing if there are none.
[[nodiscard]] std::shared_ptr<ConditionValues> condition_values(const std::vector<GraphEntry>& entries);
// The command with what it needs to know of them.
[[nodiscard]] Command with_conditions(const Command& command, const std::shared_ptr<ConditionValues>& values);

// NOT_SUPPORTED for a body with a node of a kind that no body may have, INVALID_VALUE for one with a cycle.
CUresult check_bodies(const ConditionalCommand& command);

// A node's command; the handle must be of the graph or of one that it is inside of, and be without a node yet.
CUresult conditional_command(Graph& graph, CUDA_CONDITIONAL_NODE_PARAMS& params, Command& out);

[[nodiscard]] HandleTable<GraphCondition>& graph_conditions();

}  // namespace tensor_fusion::sim::cuda
