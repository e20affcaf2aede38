// Graphs as wholes and their shape: making, cloning, asking, running. What single nodes hold is in graph_node_api.cpp.
#include <algorithm>
#include <cstdio>

#include "sim/cuda/capture.h"
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/graph_lookup.h"

namespace tensor_fusion::sim::cuda {

CUresult find_graph(const char* symbol, CUgraph handle, std::shared_ptr<Graph>& graph) {
  TF_TRY(enter(symbol));
  graph = graphs().share(handle);
  return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult find_node(const char* symbol, CUgraphNode handle, GraphNode*& node) {
  TF_TRY(enter(symbol));
  node = graph_nodes().find(handle);
  return node != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult find_nodes(const Graph& graph, const CUgraphNode* handles, std::size_t count, std::vector<GraphNode*>& out) {
  if (count != 0 && handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    GraphNode* node = graph_nodes().find(handles[i]);
    if (node == nullptr || node->graph != &graph || std::find(out.begin(), out.end(), node) != out.end())
      return CUDA_ERROR_INVALID_VALUE;
    out.push_back(node);
  }
  return CUDA_SUCCESS;
}

CUresult find_exec(const char* symbol, CUgraphExec handle, std::shared_ptr<GraphExec>& exec) {
  TF_TRY(enter(symbol));
  exec = graph_execs().share(handle);
  return exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

namespace {

CUresult instantiate(CUgraphExec* out, CUgraph handle, std::uint64_t flags, GraphRefusal& why) {
  std::shared_ptr<Graph> graph;
  TF_TRY(find_graph("cuGraphInstantiate", handle, graph));
  if (out == nullptr || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    why.reason = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    return refuse_once("cuGraphInstantiate for launches from the device");
  }
  std::shared_ptr<GraphExec> exec;
  TF_TRY(GraphExec::instantiate(*graph, flags, exec, why));
  *out = as_handle<CUgraphExec>(exec->handle_value);
  return CUDA_SUCCESS;
}

CUgraphNode blamed(const GraphRefusal& why) { return why.node != nullptr ? why.node->handle() : nullptr; }

CUresult instantiate(CUgraphExec* out, CUgraph handle, CUgraphNode* bad, char* log, std::size_t log_bytes) {
  if (log != nullptr && log_bytes != 0) *log = '\0';
  GraphRefusal why;
  const CUresult result = instantiate(out, handle, 0, why);
  if (bad != nullptr) *bad = blamed(why);
  return result;
}

// Both forms of "how many, and which": with no array only the number is answered.
CUresult list(const std::vector<GraphNode*>& nodes, CUgraphNode* out, std::size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out != nullptr) {
    for (std::size_t i = 0; i < *count; ++i) out[i] = i < nodes.size() ? nodes[i]->handle() : nullptr;
    *count = std::min(*count, nodes.size());
  } else {
    *count = nodes.size();
  }
  return CUDA_SUCCESS;
}

CUresult edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, std::size_t* count) {
  std::shared_ptr<Graph> graph;
  TF_TRY(find_graph("cuGraphGetEdges", handle, graph));
  if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::pair<GraphNode*, GraphNode*>> all;
  for (const auto& node : graph->nodes())
    for (GraphNode* earlier : node->after) all.emplace_back(earlier, node.get());
  const auto edge = [&](std::size_t i) {
    return i < all.size() ? all[i].second->edge(*all[i].first) : CUgraphEdgeData{};
  };
  if (from != nullptr) {
    for (std::size_t i = 0; data == nullptr && i < std::min(*count, all.size()); ++i)
      if (!is_plain(edge(i))) return CUDA_ERROR_LOSSY_QUERY;
    for (std::size_t i = 0; i < *count; ++i) {
      from[i] = i < all.size() ? all[i].first->handle() : nullptr;
      to[i] = i < all.size() ? all[i].second->handle() : nullptr;
      if (data != nullptr) data[i] = edge(i);
    }
    *count = std::min(*count, all.size());
  } else {
    *count = all.size();
  }
  return CUDA_SUCCESS;
}

CUresult neighbours(const char* symbol, CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* data, std::size_t* count,
                    bool after) {
  GraphNode* node = nullptr;
  TF_TRY(find_node(symbol, handle, node));
  const auto& nodes = after ? node->after : node->before;
  const auto edge = [&](std::size_t i) { return after ? node->edge(*nodes[i]) : nodes[i]->edge(*node); };
  for (std::size_t i = 0; out != nullptr && count != nullptr && i < std::min(*count, nodes.size()); ++i) {
    if (data == nullptr && !is_plain(edge(i))) return CUDA_ERROR_LOSSY_QUERY;
    if (data != nullptr) data[i] = edge(i);
  }
  return list(nodes, out, count);
}

CUresult change_edges(const char* symbol, CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                      const CUgraphEdgeData* data, std::size_t count, bool add) {
  std::shared_ptr<Graph> graph;
  TF_TRY(find_graph(symbol, handle, graph));
  if (count != 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    GraphNode* first = graph_nodes().find(from[i]);
    GraphNode* second = graph_nodes().find(to[i]);
    if (first == nullptr || second == nullptr || first->graph != graph.get() || second->graph != graph.get())
      return CUDA_ERROR_INVALID_VALUE;
    const CUgraphEdgeData edge = data != nullptr ? data[i] : CUgraphEdgeData{};
    TF_TRY(add ? graph->connect(*first, *second, edge) : graph->disconnect(*first, *second, edge));
  }
  return CUDA_SUCCESS;
}

CUresult update(CUgraphExec exec_handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo& info) {
  std::shared_ptr<GraphExec> exec;
  TF_TRY(find_exec("cuGraphExecUpdate", exec_handle, exec));
  const auto graph = graphs().share(graph_handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  return exec->update(*graph, info);
}

}  // namespace

TF_API(cuGraphCreate, (CUgraph * out, unsigned flags)) {
  TF_TRY(enter("cuGraphCreate"));
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = Graph::create()->handle();
  return CUDA_SUCCESS;
}
TF_API(cuGraphDestroy, (CUgraph handle)) {
  std::shared_ptr<Graph> graph;
  TF_TRY(find_graph("cuGraphDestroy", handle, graph));
  if (graph->is_child) return CUDA_ERROR_INVALID_VALUE;
  graphs().remove(handle);
  return CUDA_SUCCESS;
}
TF_API(cuGraphClone, (CUgraph * out, CUgraph handle)) {
  std::shared_ptr<Graph> graph;
  TF_TRY(find_graph("cuGraphClone", handle, graph));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (graph->has_memory_nodes()) return CUDA_ERROR_NOT_SUPPORTED;
  *out = graph->clone()->handle();
  return CUDA_SUCCESS;
}
TF_API(cuGraphNodeFindInClone, (CUgraphNode * out, CUgraphNode original, CUgraph handle)) {
  std::shared_ptr<Graph> graph;
  TF_TRY(find_graph("cuGraphNodeFindInClone", handle, graph));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& node : graph->nodes()) {
    if (node->origin != reinterpret_cast<std::uintptr_t>(original)) continue;
    *out = node->handle();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

TF_API(cuGraphNodeGetType, (CUgraphNode handle, CUgraphNodeType* out)) {
  GraphNode* node = nullptr;
  TF_TRY(find_node("cuGraphNodeGetType", handle, node));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = node->type;
  return CUDA_SUCCESS;
}
TF_API(cuGraphGetNodes, (CUgraph handle, CUgraphNode* out, std::size_t* count)) {
  std::shared_ptr<Graph> graph;
  TF_TRY(find_graph("cuGraphGetNodes", handle, graph));
  std::vector<GraphNode*> nodes;
  for (const auto& node : graph->nodes()) nodes.push_back(node.get());
  return list(nodes, out, count);
}
TF_API(cuGraphGetRootNodes, (CUgraph handle, CUgraphNode* out, std::size_t* count)) {
  std::shared_ptr<Graph> graph;
  TF_TRY(find_graph("cuGraphGetRootNodes", handle, graph));
  std::vector<GraphNode*> nodes;
  for (const auto& node : graph->nodes())
    if (node->after.empty()) nodes.push_back(node.get());
  return list(nodes, out, count);
}
TF_API(cuGraphGetEdges, (CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count)) {
  return edges(graph, from, to, nullptr, count);
}
TF_API(cuGraphGetEdges_v2,
       (CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, std::size_t* count)) {
  return edges(graph, from, to, data, count);
}
TF_API(cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode* out, std::size_t* count)) {
  return neighbours("cuGraphNodeGetDependencies", node, out, nullptr, count, true);
}
TF_API(cuGraphNodeGetDependencies_v2, (CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data, std::size_t* count)) {
  return neighbours("cuGraphNodeGetDependencies", node, out, data, count, true);
}
TF_API(cuGraphNodeGetDependentNodes, (CUgraphNode node, CUgraphNode* out, std::size_t* count)) {
  return neighbours("cuGraphNodeGetDependentNodes", node, out, nullptr, count, false);
}
TF_API(cuGraphNodeGetDependentNodes_v2,
       (CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data, std::size_t* count)) {
  return neighbours("cuGraphNodeGetDependentNodes", node, out, data, count, false);
}
TF_API(cuGraphAddDependencies, (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count)) {
  return change_edges("cuGraphAddDependencies", graph, from, to, nullptr, count, true);
}
TF_API(cuGraphAddDependencies_v2, (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* data, std::size_t count)) {
  return change_edges("cuGraphAddDependencies", graph, from, to, data, count, true);
}
TF_API(cuGraphRemoveDependencies, (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count)) {
  return change_edges("cuGraphRemoveDependencies", graph, from, to, nullptr, count, false);
}
TF_API(cuGraphRemoveDependencies_v2, (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* data, std::size_t count)) {
  return change_edges("cuGraphRemoveDependencies", graph, from, to, data, count, false);
}
TF_API(cuGraphDestroyNode, (CUgraphNode handle)) {
  GraphNode* node = nullptr;
  TF_TRY(find_node("cuGraphDestroyNode", handle, node));
  if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
    return CUDA_ERROR_NOT_SUPPORTED;
  node->graph->erase(*node);
  return CUDA_SUCCESS;
}

TF_API(cuGraphInstantiate, (CUgraphExec * out, CUgraph graph, CUgraphNode* bad, char* log, std::size_t log_bytes)) {
  return instantiate(out, graph, bad, log, log_bytes);
}
TF_API(cuGraphInstantiate_v2, (CUgraphExec * out, CUgraph graph, CUgraphNode* bad, char* log, std::size_t log_bytes)) {
  return instantiate(out, graph, bad, log, log_bytes);
}
TF_API(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph graph, unsigned long long flags)) {
  GraphRefusal why;
  return instantiate(out, graph, flags, why);
}
TF_STREAM_API(cuGraphInstantiateWithParams, (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params), {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphRefusal why;
  const CUresult result = instantiate(out, graph, params->flags, why);
  params->hErrNode_out = blamed(why);
  params->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : why.reason;
  return result;
})
TF_API(cuGraphExecDestroy, (CUgraphExec handle)) {
  TF_TRY(enter("cuGraphExecDestroy"));
  return graph_execs().remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
TF_API(cuGraphExecGetFlags, (CUgraphExec handle, std::uint64_t* out)) {
  std::shared_ptr<GraphExec> exec;
  TF_TRY(find_exec("cuGraphExecGetFlags", handle, exec));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = exec->flags;
  return CUDA_SUCCESS;
}
TF_API(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode* bad, CUgraphExecUpdateResult* why)) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = update(exec, graph, info);
  if (bad != nullptr) *bad = info.errorNode;
  if (why != nullptr) *why = info.result;
  return result;
}
TF_API(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info)) {
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return update(exec, graph, *info);
}

TF_STREAM_API(cuGraphLaunch, (CUgraphExec handle, CUstream stream_handle), {
  TF_TRY(enter("cuGraphLaunch", "launch"));
  Stream* stream = nullptr;
  TF_TRY(find_work_stream(stream_handle, kFlavour, stream));
  const auto exec = graph_execs().share(handle);
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capturing) {  // becomes a child of the graph being captured
    auto child = exec->as_graph();
    if (child->has_memory_nodes()) return CUDA_ERROR_NOT_SUPPORTED;
    child->is_child = true;
    return issue(*stream, std::make_shared<const ChildCommand>(ChildCommand{NodeGraph(std::move(child))}));
  }
  TF_TRY(check_capture_conflict(*stream));
  return exec->launch(*stream);
})
TF_STREAM_API(cuGraphUpload, (CUgraphExec handle, CUstream stream_handle), {
  TF_TRY(enter("cuGraphUpload"));
  Stream* stream = nullptr;
  TF_TRY(find_work_stream(stream_handle, kFlavour, stream));
  return graph_execs().find(handle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
})

TF_API(cuGraphDebugDotPrint, (CUgraph handle, const char* path, unsigned)) {
  std::shared_ptr<Graph> graph;
  TF_TRY(find_graph("cuGraphDebugDotPrint", handle, graph));
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::FILE* file = std::fopen(path, "we");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  std::fprintf(file, "digraph dot {\nsubgraph cluster_1 {\nlabel=\"graph_1\" graph[style=\"dashed\"];\n");
  for (const auto& node : graph->nodes()) {
    std::fprintf(file, "\"graph_1_node_%llu\"[label=\"%llu\\ntype %d\"];\n",
                 static_cast<unsigned long long>(node->number), static_cast<unsigned long long>(node->number),
                 static_cast<int>(node->type));
    for (const GraphNode* earlier : node->after)
      std::fprintf(file, "\"graph_1_node_%llu\" -> \"graph_1_node_%llu\";\n",
                   static_cast<unsigned long long>(earlier->number), static_cast<unsigned long long>(node->number));
  }
  std::fprintf(file, "}\n}\n");
  std::fclose(file);
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
