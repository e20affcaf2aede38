#include "sim/cuda/graph.h"

#include <algorithm>
#include <set>

#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {

HandleTable<Graph>& graphs() {
  static auto* table = new HandleTable<Graph>;
  return *table;
}
HandleTable<GraphNode>& graph_nodes() {
  static auto* table = new HandleTable<GraphNode>;
  return *table;
}
HandleTable<GraphExec>& graph_execs() {
  static auto* table = new HandleTable<GraphExec>;
  return *table;
}

std::shared_ptr<Graph> Graph::create() {
  auto graph = std::make_shared<Graph>();
  graph->handle_value = graphs().insert(graph);
  return graph;
}

Graph::~Graph() {
  for (const auto& node : nodes_) graph_nodes().remove(node->handle_value);
}

std::shared_ptr<GraphNode> Graph::add(CUgraphNodeType type, Command command, const std::vector<GraphNode*>& after) {
  auto node = std::make_shared<GraphNode>();
  node->type = type;
  node->command = std::move(command);
  node->graph = this;
  node->number = next_number_++;
  for (GraphNode* earlier : after) {
    if (std::find(node->after.begin(), node->after.end(), earlier) != node->after.end()) continue;
    node->after.push_back(earlier);
    earlier->before.push_back(node.get());
  }
  node->handle_value = graph_nodes().insert(node);
  nodes_.push_back(node);
  return node;
}

CUresult Graph::connect(GraphNode& from, GraphNode& to) {
  if (&from == &to || std::find(to.after.begin(), to.after.end(), &from) != to.after.end())
    return CUDA_ERROR_INVALID_VALUE;
  to.after.push_back(&from);
  from.before.push_back(&to);
  return CUDA_SUCCESS;
}

CUresult Graph::disconnect(GraphNode& from, GraphNode& to) {
  if (std::erase(to.after, &from) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::erase(from.before, &to);
  return CUDA_SUCCESS;
}

void Graph::erase(GraphNode& node) {
  for (GraphNode* earlier : node.after) std::erase(earlier->before, &node);
  for (GraphNode* later : node.before) std::erase(later->after, &node);
  graph_nodes().remove(node.handle_value);
  std::erase_if(nodes_, [&](const auto& each) { return each.get() == &node; });
}

std::shared_ptr<Graph> Graph::clone() const {
  auto copy = create();
  std::map<const GraphNode*, GraphNode*> twin;
  for (const auto& node : nodes_) {
    Command command = node->command;
    if (const auto* child = std::get_if<std::shared_ptr<const ChildCommand>>(&command)) {
      auto inner = (*child)->graph->clone();
      inner->is_child = true;
      command = std::make_shared<const ChildCommand>(ChildCommand{std::move(inner)});
    }
    const auto made = copy->add(node->type, std::move(command), {});
    made->origin = node->handle_value;
    twin[node.get()] = made.get();
  }
  for (const auto& node : nodes_)
    for (const GraphNode* earlier : node->after) (void)copy->connect(*twin[earlier], *twin[node.get()]);
  copy->kept_ = kept_;
  return copy;
}

std::vector<GraphNode*> Graph::in_order() const {
  const auto older = [](const GraphNode* a, const GraphNode* b) { return a->number < b->number; };
  std::map<const GraphNode*, std::size_t> missing;
  std::set<GraphNode*, decltype(older)> ready(older);
  for (const auto& node : nodes_) {
    missing[node.get()] = node->after.size();
    if (node->after.empty()) ready.insert(node.get());
  }
  std::vector<GraphNode*> order;
  while (!ready.empty()) {
    GraphNode* node = *ready.begin();
    ready.erase(ready.begin());
    order.push_back(node);
    for (GraphNode* later : node->before)
      if (--missing[later] == 0) ready.insert(later);
  }
  if (order.size() != nodes_.size()) order.clear();
  return order;
}

CUresult Graph::enqueue_all(Stream& stream) const {
  for (const GraphNode* node : in_order()) TF_TRY(enqueue(stream, node->command));
  return CUDA_SUCCESS;
}

bool Graph::let_go(CUuserObject name) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const auto& each) { return each.first == name; });
  if (found == kept_.end()) return false;
  kept_.erase(found);
  return true;
}

bool Graph::has_memory_nodes() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
    return node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
  });
}

CUresult GraphExec::instantiate(const Graph& graph, std::uint64_t wanted_flags, std::shared_ptr<GraphExec>& out,
                                GraphNode** bad) {
  const auto order = graph.in_order();
  if (order.empty() && !graph.nodes().empty()) {
    if (bad != nullptr) *bad = graph.nodes().front().get();
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto exec = std::make_shared<GraphExec>();
  exec->flags = wanted_flags;
  exec->kept_ = graph.kept();
  for (const GraphNode* node : order) {
    GraphStep step;
    step.type = node->type;
    step.command = node->command;
    step.node = node->handle_value;
    if (const auto* child = std::get_if<std::shared_ptr<const ChildCommand>>(&step.command)) {
      auto inner = (*child)->graph->clone();  // what the program does to the child later does not reach in here
      inner->is_child = true;
      graphs().remove(inner->handle_value);
      step.command = std::make_shared<const ChildCommand>(ChildCommand{std::move(inner)});
    }
    for (const GraphNode* earlier : node->after) step.after.push_back(exec->by_node_.at(earlier->handle_value));
    exec->by_node_[node->handle_value] = exec->steps_.size();
    exec->steps_.push_back(std::move(step));
  }
  exec->handle_value = graph_execs().insert(exec);
  out = std::move(exec);
  return CUDA_SUCCESS;
}

CUresult GraphExec::launch(Stream& stream) {
  const std::lock_guard lock(mutex);
  const std::lock_guard stream_lock(stream.mutex());
  for (const GraphStep& step : steps_)
    if (step.enabled) TF_TRY(enqueue(stream, step.command));
  return CUDA_SUCCESS;
}

std::shared_ptr<Graph> GraphExec::as_graph() {
  const std::lock_guard lock(mutex);
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

CUresult GraphExec::update(const Graph& graph, CUgraphExecUpdateResultInfo& info) {
  const std::lock_guard lock(mutex);
  const auto order = graph.in_order();
  info = {};
  const auto fail = [&](CUgraphExecUpdateResult why, const GraphNode* node) {
    info.result = why;
    info.errorNode = node != nullptr ? node->handle() : nullptr;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  };
  if (order.size() != steps_.size()) return fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr);
  std::map<const GraphNode*, std::size_t> place;
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    if (order[i]->type != steps_[i].type) return fail(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, order[i]);
    std::vector<std::size_t> after;
    for (const GraphNode* earlier : order[i]->after) after.push_back(place[earlier]);
    auto known = steps_[i].after;
    std::sort(after.begin(), after.end());
    std::sort(known.begin(), known.end());
    if (after != known) return fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, order[i]);
    if (const auto* kernel = std::get_if<std::shared_ptr<const KernelCommand>>(&order[i]->command)) {
      const auto& present = *std::get<std::shared_ptr<const KernelCommand>>(steps_[i].command);
      if (&(*kernel)->function->module->context() != &present.function->module->context())
        return fail(CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, order[i]);
    }
    if (order[i]->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && order[i]->command != steps_[i].command)
      return fail(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, order[i]);
  }
  by_node_.clear();
  for (std::size_t i = 0; i < order.size(); ++i) {
    steps_[i].command = order[i]->command;
    steps_[i].node = order[i]->handle_value;
    by_node_[steps_[i].node] = i;
  }
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
