#include "sim/cuda/graph_exec.h"

#include <algorithm>
#include <utility>

#include "sim/cuda/driver.h"
#include "sim/cuda/graph_condition.h"

namespace tensor_fusion::sim::cuda {
namespace {

// What the program does to a child graph later does not reach into the executable graph.
Command of_its_own(const Command& command) {
  if (const auto* child = std::get_if<std::shared_ptr<const ChildCommand>>(&command))
    return std::make_shared<const ChildCommand>(ChildCommand{NodeGraph((*child)->graph->clone())});
  if (const auto* chooser = std::get_if<std::shared_ptr<const ConditionalCommand>>(&command)) {
    auto mine = std::make_shared<ConditionalCommand>();
    mine->condition = (*chooser)->condition;
    mine->type = (*chooser)->type;
    for (const auto& body : (*chooser)->bodies) mine->add_body(body->clone(), 0);
    return std::shared_ptr<const ConditionalCommand>(std::move(mine));
  }
  return command;
}

// A graph or an executable one, as far as they can be compared.
struct Shape {
  CUgraphNodeType type;
  const Command* command;
  std::vector<std::size_t> after;  // sorted
  const GraphNode* node;           // null for a step
};

std::vector<Shape> shape_of(const Graph& graph) {
  std::map<const GraphNode*, std::size_t> place;
  std::vector<Shape> shape;
  for (const GraphNode* node : graph.in_order()) {
    Shape each{node->type, &node->command, {}, node};
    for (const GraphNode* earlier : node->after) each.after.push_back(place.at(earlier));
    std::sort(each.after.begin(), each.after.end());
    place[node] = shape.size();
    shape.push_back(std::move(each));
  }
  return shape;
}

std::vector<Shape> shape_of(const std::vector<GraphStep>& steps) {
  std::vector<Shape> shape;
  for (const GraphStep& step : steps) {
    shape.push_back({step.type, &step.command, step.after, nullptr});
    std::sort(shape.back().after.begin(), shape.back().after.end());
  }
  return shape;
}

CUgraphNode handle_of(const GraphNode* node) { return node != nullptr ? node->handle() : nullptr; }

CUresult refuse(CUgraphExecUpdateResultInfo& info, CUgraphExecUpdateResult why, const GraphNode* node = nullptr,
                const GraphNode* from = nullptr) {
  info = {why, handle_of(node), handle_of(from)};
  return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

bool same_choice(const ConditionalCommand& a, const ConditionalCommand& b) {
  return a.type == b.type && a.bodies.size() == b.bodies.size() && a.condition->assigned == b.condition->assigned;
}

CUresult compare(const std::vector<Shape>& present, const std::vector<Shape>& wanted,
                 CUgraphExecUpdateResultInfo& info) {
  if (present.size() != wanted.size()) return refuse(info, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Shape& old = present[i];
    const Shape& now = wanted[i];
    if (now.type != old.type) return refuse(info, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, now.node);
    if (now.after != old.after) {
      std::vector<std::size_t> added;
      std::set_difference(now.after.begin(), now.after.end(), old.after.begin(), old.after.end(),
                          std::back_inserter(added));
      return refuse(info, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, now.node,
                    added.empty() ? nullptr : wanted[added.front()].node);
    }
    const auto* old_child = std::get_if<std::shared_ptr<const ChildCommand>>(old.command);
    const auto* new_child = std::get_if<std::shared_ptr<const ChildCommand>>(now.command);
    if (old_child != nullptr && new_child != nullptr) {
      TF_TRY(compare(shape_of(*(*old_child)->graph), shape_of(*(*new_child)->graph), info));
      continue;
    }
    const auto* old_chooser = std::get_if<std::shared_ptr<const ConditionalCommand>>(old.command);
    const auto* new_chooser = std::get_if<std::shared_ptr<const ConditionalCommand>>(now.command);
    if (old_chooser != nullptr && new_chooser != nullptr) {
      if (!same_choice(**old_chooser, **new_chooser))
        return refuse(info, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, now.node);
      for (std::size_t body = 0; body < (*new_chooser)->bodies.size(); ++body)
        TF_TRY(compare(shape_of(*(*old_chooser)->bodies[body]), shape_of(*(*new_chooser)->bodies[body]), info));
      continue;
    }
    if (const auto why = check_replacement(*old.command, *now.command); why != CU_GRAPH_EXEC_UPDATE_SUCCESS)
      return refuse(info, why, now.node);
  }
  return CUDA_SUCCESS;
}

const Device* device_at(CUdeviceptr address) {
  const auto allocation = Driver::get().addresses().find(address);
  return allocation ? allocation->device : nullptr;
}

bool same_places(const CopyCommand& a, const CopyCommand& b) {
  return a.asked.srcMemoryType == b.asked.srcMemoryType && a.asked.dstMemoryType == b.asked.dstMemoryType &&
         a.from.device == b.from.device && a.to.device == b.to.device;
}

// A fill of more than one row keeps its shape; a single row may grow and shrink.
bool same_fill(const CUDA_MEMSET_NODE_PARAMS_v2& a, const CUDA_MEMSET_NODE_PARAMS_v2& b) {
  if (device_at(a.dst) != device_at(b.dst)) return false;
  if (a.height <= 1 && b.height <= 1) return true;
  return a.height == b.height && a.width == b.width && a.pitch == b.pitch && a.elementSize == b.elementSize;
}

}  // namespace

HandleTable<GraphExec>& graph_execs() {
  static auto* table = new HandleTable<GraphExec>;
  return *table;
}

CUgraphExecUpdateResult check_replacement(const Command& present, const Command& wanted) {
  return std::visit(
      [&]<typename T>(const std::shared_ptr<const T>& old) {
        const auto* same_kind = std::get_if<std::shared_ptr<const T>>(&wanted);
        if (same_kind == nullptr) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        const T& now = **same_kind;
        if constexpr (std::is_same_v<T, KernelCommand>) {
          if (&old->function->module->context() != &now.function->module->context())
            return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
        } else if constexpr (std::is_same_v<T, CopyCommand>) {
          if (!same_places(*old, now)) return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        } else if constexpr (std::is_same_v<T, FillCommand>) {
          if (!same_fill(old->what, now.what)) return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        } else if constexpr (std::is_same_v<T, AllocCommand>) {
          if (old.get() != &now) return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
        } else if constexpr (std::is_same_v<T, FreeCommand>) {
          if (old->address != now.address) return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
        }
        return CU_GRAPH_EXEC_UPDATE_SUCCESS;
      },
      present);
}

bool GraphExec::made_from(std::uint64_t node) {
  const auto alive = graph_execs().all();
  return std::any_of(alive.begin(), alive.end(), [node](const auto& exec) {
    const std::lock_guard lock(exec->mutex_);
    return exec->by_node_.contains(node);
  });
}

CUresult GraphExec::instantiate(const Graph& graph, std::uint64_t wanted_flags, std::shared_ptr<GraphExec>& out,
                                GraphRefusal& why) {
  const auto order = graph.in_order();
  if (order.empty() && !graph.nodes().empty()) {
    why = {CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, graph.nodes().front().get()};
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (graph.has_idle_condition()) {
    why.reason = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (GraphNode* node : order) {
    const auto* chooser = std::get_if<std::shared_ptr<const ConditionalCommand>>(&node->command);
    const CUresult fit = chooser != nullptr ? check_bodies(**chooser) : CUDA_SUCCESS;
    if (fit == CUDA_SUCCESS) continue;
    why = {fit == CUDA_ERROR_NOT_SUPPORTED ? CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED
                                           : CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE,
           node};
    return fit;
  }
  static std::mutex one_at_a_time;
  std::unique_lock<std::mutex> lock;
  for (const GraphNode* node : order) {  // the addresses in it can be live once
    if (node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->type != CU_GRAPH_NODE_TYPE_MEM_FREE) continue;
    lock = std::unique_lock(one_at_a_time);
    if (made_from(node->handle_value)) return CUDA_ERROR_INVALID_VALUE;
    break;
  }
  auto exec = std::make_shared<GraphExec>();
  exec->flags = wanted_flags;
  exec->kept_ = graph.kept();
  for (const GraphNode* node : order) {
    GraphStep step;
    step.type = node->type;
    step.command = of_its_own(node->command);
    step.node = node->handle_value;
    for (const GraphNode* earlier : node->after) step.after.push_back(exec->by_node_.at(earlier->handle_value));
    exec->by_node_[node->handle_value] = exec->steps_.size();
    exec->steps_.push_back(std::move(step));
  }
  exec->handle_value = graph_execs().insert(exec);
  out = std::move(exec);
  return CUDA_SUCCESS;
}

CUresult GraphExec::launch(Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (!plan_) {
    std::vector<GraphEntry> entries;
    for (const GraphStep& step : steps_)
      entries.push_back({step.enabled ? step.command : Command(std::make_shared<const EmptyCommand>()), step.after});
    plan_.emplace(entries);
  }
  TF_TRY(plan_->check());
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0) plan_->free_leftovers();
  return plan_->launch(stream);
}

std::shared_ptr<Graph> GraphExec::as_graph() {
  const std::lock_guard lock(mutex_);
  auto graph = Graph::create();
  std::vector<GraphNode*> made;
  for (const GraphStep& step : steps_) {
    std::vector<GraphNode*> after;
    for (const std::size_t earlier : step.after) after.push_back(made[earlier]);
    const bool runs = step.enabled;
    made.push_back(graph
                       ->add(runs ? step.type : CU_GRAPH_NODE_TYPE_EMPTY,
                             runs ? step.command : Command(std::make_shared<const EmptyCommand>()), after)
                       .get());
  }
  return graph;
}

GraphStep* GraphExec::step(std::uint64_t node) {
  const auto found = by_node_.find(node);
  return found != by_node_.end() ? &steps_[found->second] : nullptr;
}

CUresult GraphExec::set(std::uint64_t node, Command command) {
  const std::lock_guard lock(mutex_);
  GraphStep* const found = step(node);
  if (found == nullptr || check_replacement(found->command, command) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
    return CUDA_ERROR_INVALID_VALUE;
  if (const auto* child = std::get_if<std::shared_ptr<const ChildCommand>>(&command)) {
    CUgraphExecUpdateResultInfo ignored{};
    const auto& present = std::get<std::shared_ptr<const ChildCommand>>(found->command);
    if (compare(shape_of(*present->graph), shape_of(*(*child)->graph), ignored) != CUDA_SUCCESS)
      return CUDA_ERROR_INVALID_VALUE;
  }
  found->command = of_its_own(command);
  plan_.reset();
  return CUDA_SUCCESS;
}

CUresult GraphExec::set_enabled(std::uint64_t node, bool enabled) {
  const std::lock_guard lock(mutex_);
  GraphStep* const found = step(node);
  if (found == nullptr || (found->type != CU_GRAPH_NODE_TYPE_KERNEL && found->type != CU_GRAPH_NODE_TYPE_MEMSET &&
                           found->type != CU_GRAPH_NODE_TYPE_MEMCPY))
    return CUDA_ERROR_INVALID_VALUE;
  found->enabled = enabled;
  plan_.reset();
  return CUDA_SUCCESS;
}

CUresult GraphExec::enabled(std::uint64_t node, bool& out) {
  const std::lock_guard lock(mutex_);
  const GraphStep* const found = step(node);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  out = found->enabled;
  return CUDA_SUCCESS;
}

CUresult GraphExec::update(const Graph& graph, CUgraphExecUpdateResultInfo& info) {
  const std::lock_guard lock(mutex_);
  info = {};
  const auto wanted = shape_of(graph);
  if (wanted.empty() && !graph.nodes().empty()) return refuse(info, CU_GRAPH_EXEC_UPDATE_ERROR);  // a cycle
  TF_TRY(compare(shape_of(steps_), wanted, info));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    steps_[i].command = of_its_own(*wanted[i].command);
    by_node_[wanted[i].node->handle_value] = i;  // beside the nodes it was made from
  }
  plan_.reset();
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
