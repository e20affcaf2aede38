// Nodes of graphs: adding each kind, reading and changing what they hold, in the graph and in its executable form.
#include "sim/cuda/driver.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/graph_command.h"
#include "sim/cuda/graph_condition.h"
#include "sim/cuda/graph_lookup.h"

namespace tensor_fusion::sim::cuda {
namespace {

CUresult add(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, std::size_t count, CUgraphNodeType type,
             Command command) {
  std::shared_ptr<Graph> graph;
  TF_TRY(find_graph("cuGraphAddNode", handle, graph));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> earlier;
  TF_TRY(find_nodes(*graph, after, count, earlier));
  *out = graph->add(type, std::move(command), earlier)->handle();
  return CUDA_SUCCESS;
}

// --- reading and changing
template <typename Kind>
CUresult read(const char* symbol, CUgraphNode handle, const void* out, std::shared_ptr<const Kind>& command) {
  GraphNode* node = nullptr;
  TF_TRY(find_node(symbol, handle, node));
  const auto* held = std::get_if<std::shared_ptr<const Kind>>(&node->command);
  if (out == nullptr || held == nullptr) return CUDA_ERROR_INVALID_VALUE;
  command = *held;
  return CUDA_SUCCESS;
}

CUresult change(const char* symbol, CUgraphNode handle, Command command) {
  GraphNode* node = nullptr;
  TF_TRY(find_node(symbol, handle, node));
  if (node->command.index() != command.index()) return CUDA_ERROR_INVALID_VALUE;
  node->command = std::move(command);
  return CUDA_SUCCESS;
}

CUresult change_step(const char* symbol, CUgraphExec handle, CUgraphNode node, Command command) {
  std::shared_ptr<GraphExec> exec;
  TF_TRY(find_exec(symbol, handle, exec));
  return exec->set(reinterpret_cast<std::uintptr_t>(node), std::move(command));
}

void describe(const KernelCommand& c, CUDA_KERNEL_NODE_PARAMS& out) {
  // The packed parameters, one pointer each, live as long as the node's command does.
  thread_local std::vector<void*> pointers;
  pointers.clear();
  for (const auto& parameter : c.function->kernel.parameters)
    pointers.push_back(const_cast<std::byte*>(c.params.data() + parameter.offset));
  out = {c.function->handle(),
         c.grid[0],
         c.grid[1],
         c.grid[2],
         c.block[0],
         c.block[1],
         c.block[2],
         c.shared_bytes,
         pointers.empty() ? nullptr : pointers.data(),
         nullptr,
         nullptr,
         c.function->module->context().handle()};
}

CUresult add_any(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, const CUgraphEdgeData* data,
                 std::size_t count, CUgraphNodeParams* params) {
  std::shared_ptr<Graph> graph;
  TF_TRY(find_graph("cuGraphAddNode", handle, graph));
  if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> earlier;
  TF_TRY(find_nodes(*graph, after, count, earlier));
  for (std::size_t i = 0; data != nullptr && i < count; ++i)
    if (!can_connect(earlier[i]->type, params->type, data[i])) return CUDA_ERROR_INVALID_VALUE;
  Command command;
  TF_TRY(params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL ? conditional_command(*graph, params->conditional, command)
                                                        : generic_command(params, command));
  const auto node = graph->add(params->type, std::move(command), data == nullptr ? earlier : std::vector<GraphNode*>{});
  for (std::size_t i = 0; data != nullptr && i < count; ++i) TF_TRY(graph->connect(*earlier[i], *node, data[i]));
  *out = node->handle();
  return CUDA_SUCCESS;
}

}  // namespace

#define TF_MAKE(expression) \
  Command command;          \
  TF_TRY(check_ready());    \
  TF_TRY(expression)

// kernel
TF_API(cuGraphAddKernelNode_v2, (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* params)) {
  TF_MAKE(kernel_command(params, true, command));
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_KERNEL, std::move(command));
}
TF_API(cuGraphAddKernelNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1* params)) {
  const CUDA_KERNEL_NODE_PARAMS wide = params != nullptr ? widened(*params) : CUDA_KERNEL_NODE_PARAMS{};
  TF_MAKE(kernel_command(params != nullptr ? &wide : nullptr, false, command));
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_KERNEL, std::move(command));
}
TF_API(cuGraphKernelNodeGetParams_v2, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out)) {
  std::shared_ptr<const KernelCommand> command;
  TF_TRY(read("cuGraphKernelNodeGetParams", node, out, command));
  describe(*command, *out);
  return CUDA_SUCCESS;
}
TF_API(cuGraphKernelNodeGetParams, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* out)) {
  std::shared_ptr<const KernelCommand> command;
  TF_TRY(read("cuGraphKernelNodeGetParams", node, out, command));
  CUDA_KERNEL_NODE_PARAMS p{};
  describe(*command, p);
  *out = {p.func,      p.gridDimX,  p.gridDimY,       p.gridDimZ,     p.blockDimX,
          p.blockDimY, p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra};
  return CUDA_SUCCESS;
}
TF_API(cuGraphKernelNodeSetParams_v2, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params)) {
  TF_MAKE(kernel_command(params, true, command));
  return change("cuGraphKernelNodeSetParams", node, std::move(command));
}
TF_API(cuGraphKernelNodeSetParams, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params)) {
  const CUDA_KERNEL_NODE_PARAMS wide = params != nullptr ? widened(*params) : CUDA_KERNEL_NODE_PARAMS{};
  TF_MAKE(kernel_command(params != nullptr ? &wide : nullptr, false, command));
  return change("cuGraphKernelNodeSetParams", node, std::move(command));
}
TF_API(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params)) {
  TF_MAKE(kernel_command(params, true, command));
  return change_step("cuGraphExecKernelNodeSetParams", exec, node, std::move(command));
}
TF_API(cuGraphExecKernelNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params)) {
  const CUDA_KERNEL_NODE_PARAMS wide = params != nullptr ? widened(*params) : CUDA_KERNEL_NODE_PARAMS{};
  TF_MAKE(kernel_command(params != nullptr ? &wide : nullptr, false, command));
  return change_step("cuGraphExecKernelNodeSetParams", exec, node, std::move(command));
}

// copy
TF_API(cuGraphAddMemcpyNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                              const CUDA_MEMCPY3D* params, CUcontext)) {
  TF_MAKE(copy_command(params, command));
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_MEMCPY, std::move(command));
}
TF_API(cuGraphMemcpyNodeGetParams, (CUgraphNode node, CUDA_MEMCPY3D* out)) {
  std::shared_ptr<const CopyCommand> command;
  TF_TRY(read("cuGraphMemcpyNodeGetParams", node, out, command));
  *out = command->asked;
  return CUDA_SUCCESS;
}
TF_API(cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D* params)) {
  TF_MAKE(copy_command(params, command));
  return change("cuGraphMemcpyNodeSetParams", node, std::move(command));
}
TF_API(cuGraphExecMemcpyNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* params, CUcontext)) {
  TF_MAKE(copy_command(params, command));
  return change_step("cuGraphExecMemcpyNodeSetParams", exec, node, std::move(command));
}

// memset
TF_API(cuGraphAddMemsetNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context)) {
  TF_MAKE(fill_command(params, context, command));
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_MEMSET, std::move(command));
}
TF_API(cuGraphMemsetNodeGetParams, (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out)) {
  std::shared_ptr<const FillCommand> command;
  TF_TRY(read("cuGraphMemsetNodeGetParams", node, out, command));
  const auto& p = command->what;
  *out = {p.dst, p.pitch, p.value, p.elementSize, p.width, p.height};
  return CUDA_SUCCESS;
}
TF_API(cuGraphMemsetNodeSetParams, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params)) {
  TF_MAKE(fill_command(params, nullptr, command));
  return change("cuGraphMemsetNodeSetParams", node, std::move(command));
}
TF_API(cuGraphExecMemsetNodeSetParams,
       (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context)) {
  TF_MAKE(fill_command(params, context, command));
  return change_step("cuGraphExecMemsetNodeSetParams", exec, node, std::move(command));
}

// host function
TF_API(cuGraphAddHostNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                            const CUDA_HOST_NODE_PARAMS* params)) {
  TF_MAKE(host_command(params, command));
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_HOST, std::move(command));
}
TF_API(cuGraphHostNodeGetParams, (CUgraphNode node, CUDA_HOST_NODE_PARAMS* out)) {
  std::shared_ptr<const HostCommand> command;
  TF_TRY(read("cuGraphHostNodeGetParams", node, out, command));
  *out = {command->function, command->user_data};
  return CUDA_SUCCESS;
}
TF_API(cuGraphHostNodeSetParams, (CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params)) {
  TF_MAKE(host_command(params, command));
  return change("cuGraphHostNodeSetParams", node, std::move(command));
}
TF_API(cuGraphExecHostNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params)) {
  TF_MAKE(host_command(params, command));
  return change_step("cuGraphExecHostNodeSetParams", exec, node, std::move(command));
}

// child graph, empty
TF_API(cuGraphAddChildGraphNode,
       (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, std::size_t count, CUgraph child)) {
  TF_MAKE(child_command(child, command));
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_GRAPH, std::move(command));
}
TF_API(cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph* out)) {
  std::shared_ptr<const ChildCommand> command;
  TF_TRY(read("cuGraphChildGraphNodeGetGraph", node, out, command));
  *out = command->graph->handle();
  return CUDA_SUCCESS;
}
TF_API(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child)) {
  TF_MAKE(child_command(child, command));
  return change_step("cuGraphExecChildGraphNodeSetParams", exec, node, std::move(command));
}
TF_API(cuGraphAddEmptyNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, std::size_t count)) {
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_EMPTY, std::make_shared<const EmptyCommand>());
}

// events
#define TF_EVENT_NODE(Kind, Held, type)                                                                    \
  TF_API(cuGraphAdd##Kind##Node,                                                                           \
         (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, std::size_t count, CUevent event)) { \
    TF_MAKE(event_command<Held>(event, command));                                                          \
    return add(out, graph, after, count, type, std::move(command));                                        \
  }                                                                                                        \
  TF_API(cuGraph##Kind##NodeGetEvent, (CUgraphNode node, CUevent * out)) {                                 \
    std::shared_ptr<const Held> command;                                                                   \
    TF_TRY(read("cuGraph" #Kind "NodeGetEvent", node, out, command));                                      \
    *out = as_handle<CUevent>(command->event->handle_value);                                               \
    return CUDA_SUCCESS;                                                                                   \
  }                                                                                                        \
  TF_API(cuGraph##Kind##NodeSetEvent, (CUgraphNode node, CUevent event)) {                                 \
    TF_MAKE(event_command<Held>(event, command));                                                          \
    return change("cuGraph" #Kind "NodeSetEvent", node, std::move(command));                               \
  }                                                                                                        \
  TF_API(cuGraphExec##Kind##NodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event)) {           \
    TF_MAKE(event_command<Held>(event, command));                                                          \
    return change_step("cuGraphExec" #Kind "NodeSetEvent", exec, node, std::move(command));                \
  }
TF_EVENT_NODE(EventRecord, RecordCommand, CU_GRAPH_NODE_TYPE_EVENT_RECORD)
TF_EVENT_NODE(EventWait, WaitCommand, CU_GRAPH_NODE_TYPE_WAIT_EVENT)

// memory
TF_API(cuGraphAddMemAllocNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS* params)) {
  TF_MAKE(alloc_command(params, command));
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_MEM_ALLOC, std::move(command));
}
TF_API(cuGraphMemAllocNodeGetParams, (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out)) {
  std::shared_ptr<const AllocCommand> command;
  TF_TRY(read("cuGraphMemAllocNodeGetParams", node, out, command));
  *out = command->asked;
  return CUDA_SUCCESS;
}
TF_API(cuGraphAddMemFreeNode,
       (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, std::size_t count, CUdeviceptr address)) {
  TF_MAKE(free_command(address, command));
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_MEM_FREE, std::move(command));
}
TF_API(cuGraphMemFreeNodeGetParams, (CUgraphNode node, CUdeviceptr* out)) {
  std::shared_ptr<const FreeCommand> command;
  TF_TRY(read("cuGraphMemFreeNodeGetParams", node, out, command));
  *out = command->address;
  return CUDA_SUCCESS;
}
TF_API(cuGraphAddBatchMemOpNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* params)) {
  TF_MAKE(operations_command(params, command));
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, std::move(command));
}
TF_API(cuGraphBatchMemOpNodeGetParams, (CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* out)) {
  std::shared_ptr<const MemoryOpsCommand> command;
  TF_TRY(read("cuGraphBatchMemOpNodeGetParams", node, out, command));
  *out = {command->context, static_cast<unsigned>(command->operations.size()),
          const_cast<CUstreamBatchMemOpParams*>(command->operations.data()), command->flags};
  return CUDA_SUCCESS;
}
TF_API(cuGraphBatchMemOpNodeSetParams, (CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* params)) {
  TF_MAKE(operations_command(params, command));
  return change("cuGraphBatchMemOpNodeSetParams", node, std::move(command));
}
TF_API(cuGraphExecBatchMemOpNodeSetParams,
       (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* params)) {
  TF_MAKE(operations_command(params, command));
  return change_step("cuGraphExecBatchMemOpNodeSetParams", exec, node, std::move(command));
}

// any kind
TF_API(cuGraphAddNode,
       (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, std::size_t count, CUgraphNodeParams* params)) {
  return add_any(out, graph, after, nullptr, count, params);
}
TF_API(cuGraphAddNode_v2, (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData* data,
                           std::size_t count, CUgraphNodeParams* params)) {
  return add_any(out, graph, after, data, count, params);
}
TF_API(cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams* params)) {
  TF_MAKE(generic_command(params, command));
  return change("cuGraphNodeSetParams", node, std::move(command));
}
TF_API(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* params)) {
  TF_MAKE(generic_command(params, command));
  return change_step("cuGraphExecNodeSetParams", exec, node, std::move(command));
}
TF_API(cuGraphNodeSetEnabled, (CUgraphExec handle, CUgraphNode node, unsigned enabled)) {
  std::shared_ptr<GraphExec> exec;
  TF_TRY(find_exec("cuGraphNodeSetEnabled", handle, exec));
  return exec->set_enabled(reinterpret_cast<std::uintptr_t>(node), enabled != 0);
}
TF_API(cuGraphNodeGetEnabled, (CUgraphExec handle, CUgraphNode node, unsigned* out)) {
  std::shared_ptr<GraphExec> exec;
  TF_TRY(find_exec("cuGraphNodeGetEnabled", handle, exec));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bool enabled = false;
  TF_TRY(exec->enabled(reinterpret_cast<std::uintptr_t>(node), enabled));
  *out = enabled;
  return CUDA_SUCCESS;
}
TF_API(cuGraphKernelNodeGetAttribute, (CUgraphNode node, CUlaunchAttributeID name, CUlaunchAttributeValue* out)) {
  std::shared_ptr<const KernelCommand> command;
  TF_TRY(read("cuGraphKernelNodeGetAttribute", node, out, command));
  *out = {};
  if (name == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) out->cooperative = command->cooperative;
  for (const auto& attribute : command->attributes)
    if (attribute.id == name) *out = attribute.value;
  return CUDA_SUCCESS;
}
TF_API(cuGraphKernelNodeSetAttribute,
       (CUgraphNode node, CUlaunchAttributeID name, const CUlaunchAttributeValue* value)) {
  std::shared_ptr<const KernelCommand> command;
  TF_TRY(read("cuGraphKernelNodeSetAttribute", node, value, command));
  auto changed = std::make_shared<KernelCommand>(*command);
  if (name == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) changed->cooperative = value->cooperative != 0;
  std::erase_if(changed->attributes, [&](const auto& attribute) { return attribute.id == name; });
  changed->attributes.push_back({name, {}, *value});
  return change("cuGraphKernelNodeSetAttribute", node, std::shared_ptr<const KernelCommand>(std::move(changed)));
}
TF_API(cuGraphKernelNodeCopyAttributes, (CUgraphNode to, CUgraphNode from)) {
  std::shared_ptr<const KernelCommand> source, target;
  TF_TRY(read("cuGraphKernelNodeCopyAttributes", from, &source, source));
  TF_TRY(read("cuGraphKernelNodeCopyAttributes", to, &target, target));
  auto changed = std::make_shared<KernelCommand>(*target);
  changed->attributes = source->attributes;
  changed->cooperative = source->cooperative;
  return change("cuGraphKernelNodeCopyAttributes", to, std::shared_ptr<const KernelCommand>(std::move(changed)));
}

}  // namespace tensor_fusion::sim::cuda
