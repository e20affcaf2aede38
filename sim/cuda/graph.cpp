#include "sim/cuda/graph.h"

#include <algorithm>
#include <set>

#include "sim/cuda/driver.h"
#include "sim/cuda/graph_condition.h"

namespace tensor_fusion::sim::cuda {

HandleTable<Graph>& graphs() {
  static auto* table = new HandleTable<Graph>;
  return *table;
}
HandleTable<GraphNode>& graph_nodes() {
  static auto* table = new HandleTable<GraphNode>;
  return *table;
}

std::shared_ptr<Graph> Graph::create() {
  auto graph = std::make_shared<Graph>();
  graph->handle_value = graphs().insert(graph);
  return graph;
}

Graph::~Graph() {
  for (const auto& node : nodes_) graph_nodes().remove(node->handle_value);
  for (const auto& condition : conditions_) graph_conditions().remove(condition->handle_value);
}

NodeGraph::~NodeGraph() {
  if (graph_) graphs().remove(graph_->handle_value);
}

void ConditionalCommand::add_body(std::shared_ptr<Graph> body, std::uint64_t parent) {
  body->is_child = true;
  body->parent = parent;
  body_handles.push_back(body->handle());
  bodies.emplace_back(std::move(body));
}

std::shared_ptr<GraphNode> Graph::add(CUgraphNodeType type, Command command, const std::vector<GraphNode*>& after) {
  auto node = std::make_shared<GraphNode>();
  node->type = type;
  node->command = std::move(command);
  if (const auto* child = std::get_if<std::shared_ptr<const ChildCommand>>(&node->command))
    (*child)->graph->parent = handle_value;
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

CUgraphEdgeData GraphNode::edge(const GraphNode& earlier) const {
  const auto found = edges.find(&earlier);
  return found != edges.end() ? found->second : CUgraphEdgeData{};
}

bool can_connect(CUgraphNodeType from, CUgraphNodeType to, const CUgraphEdgeData& edge) {
  if (is_plain(edge)) return true;
  if (from != CU_GRAPH_NODE_TYPE_KERNEL || edge.to_port != 0) return false;
  switch (edge.from_port) {
    case CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC:
      return edge.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && to == CU_GRAPH_NODE_TYPE_KERNEL;
    case CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER:
      return edge.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT ||
             (edge.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && to == CU_GRAPH_NODE_TYPE_KERNEL);
    default:
      return false;
  }
}

CUresult Graph::connect(GraphNode& from, GraphNode& to, const CUgraphEdgeData& edge) {
  if (&from == &to || std::find(to.after.begin(), to.after.end(), &from) != to.after.end() ||
      !can_connect(from.type, to.type, edge))
    return CUDA_ERROR_INVALID_VALUE;
  to.after.push_back(&from);
  if (!is_plain(edge)) to.edges[&from] = edge;
  from.before.push_back(&to);
  return CUDA_SUCCESS;
}

CUresult Graph::disconnect(GraphNode& from, GraphNode& to, const CUgraphEdgeData& edge) {
  const CUgraphEdgeData present = to.edge(from);
  if (present.from_port != edge.from_port || present.to_port != edge.to_port || present.type != edge.type ||
      std::erase(to.after, &from) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  std::erase(from.before, &to);
  to.edges.erase(&from);
  return CUDA_SUCCESS;
}

void Graph::erase(GraphNode& node) {
  for (GraphNode* earlier : node.after) std::erase(earlier->before, &node);
  for (GraphNode* later : node.before) {
    std::erase(later->after, &node);
    later->edges.erase(&node);
  }
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
      command = std::make_shared<const ChildCommand>(ChildCommand{NodeGraph(std::move(inner))});
    } else if (const auto* chooser = std::get_if<std::shared_ptr<const ConditionalCommand>>(&command)) {
      auto mine = std::make_shared<ConditionalCommand>();
      mine->condition = (*chooser)->condition;
      mine->type = (*chooser)->type;
      mine->context = (*chooser)->context;
      for (const auto& body : (*chooser)->bodies) mine->add_body(body->clone(), copy->handle_value);
      command = std::shared_ptr<const ConditionalCommand>(std::move(mine));
    }
    const auto made = copy->add(node->type, std::move(command), {});
    made->origin = node->handle_value;
    twin[node.get()] = made.get();
  }
  for (const auto& node : nodes_)
    for (const GraphNode* earlier : node->after)
      (void)copy->connect(*twin[earlier], *twin[node.get()], node->edge(*earlier));
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

std::vector<GraphEntry> Graph::entries() const {
  std::map<const GraphNode*, std::size_t> place;
  std::vector<GraphEntry> all;
  for (const GraphNode* node : in_order()) {
    GraphEntry entry{node->command, {}};
    for (const GraphNode* earlier : node->after) entry.after.push_back(place.at(earlier));
    place[node] = all.size();
    all.push_back(std::move(entry));
  }
  return all;
}

bool Graph::has_idle_condition() const {
  return std::any_of(conditions_.begin(), conditions_.end(), [](const auto& each) { return !each->used; });
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

}  // namespace tensor_fusion::sim::cuda
