#pragma once
// Handles of graphs, nodes and executable graphs, as entry points meet them. Wrong ones are INVALID_VALUE, as in the
// real API.
#include <cstddef>
#include <memory>
#include <vector>

#include "sim/cuda/graph_exec.h"

namespace tensor_fusion::sim::cuda {

CUresult find_graph(const char* symbol, CUgraph handle, std::shared_ptr<Graph>& graph);
CUresult find_node(const char* symbol, CUgraphNode handle, GraphNode*& node);
CUresult find_nodes(const Graph& graph, const CUgraphNode* handles, std::size_t count, std::vector<GraphNode*>& out);
CUresult find_exec(const char* symbol, CUgraphExec handle, std::shared_ptr<GraphExec>& exec);

}  // namespace tensor_fusion::sim::cuda
