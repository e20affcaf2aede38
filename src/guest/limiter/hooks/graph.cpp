// Graphs. Their device time belongs to the gate; here stands their memory: allocation nodes take physical memory when
// an executable graph first runs, and keep it until it is trimmed. It is charged as the growth of the device's graph
// memory.
#include "guest/limiter/core/os.h"
#include "guest/limiter/hooks/charge.h"
#include "guest/limiter/hooks/library.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kGraphStep = 2 << 20;  // pieces in which drivers reserve graph memory
constexpr int kMaxNesting = 8;

// An executable graph may take memory of several devices: a holding for each.
std::uint64_t key_of(CUgraphExec exec, std::uint32_t device) {
  return reinterpret_cast<std::uint64_t>(exec) ^ (std::uint64_t{device} << 56);
}

struct PerDevice {
  std::uint64_t bytes[contract::kMaxDevices] = {};
};

// What the allocation nodes of a graph ask for, child graphs included. Each says on which device; one that is not of
// this slice counts as the current one.
void add_allocations(const Attachment& attached, CUgraph graph, const Device* current, int nesting, PerDevice& asked) {
  std::size_t count = 0;
  if (driver().cuGraphMemAllocNodeGetParams == nullptr || driver().cuGraphGetNodes == nullptr ||
      nesting > kMaxNesting || driver().cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0)
    return;
  const std::size_t size = count * sizeof(CUgraphNode);
  auto* nodes = static_cast<CUgraphNode*>(os::map_memory(size));
  if (nodes == nullptr) return;
  if (driver().cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS) {
    for (std::size_t i = 0; i < count; ++i) {
      CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
      CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
      CUgraph child = nullptr;
      if (driver().cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS) continue;
      if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
          driver().cuGraphMemAllocNodeGetParams(nodes[i], &allocation) == CUDA_SUCCESS) {
        const Device* device = device_of(allocation.poolProps.location.id);
        if (device == nullptr) device = current;
        if (device != nullptr) asked.bytes[device - attached.devices] += rounded(allocation.bytesize, kGraphStep);
      } else if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
                 driver().cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CUDA_SUCCESS) {
        add_allocations(attached, child, current, nesting + 1, asked);
      }
    }
  }
  os::unmap(nodes, size);
}

std::uint64_t graph_memory(const Device& device) {
  std::uint64_t bytes = 0;
  if (driver().cuDeviceGetGraphMemAttribute == nullptr ||
      driver().cuDeviceGetGraphMemAttribute(device.ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) !=
          CUDA_SUCCESS)
    return 0;
  return bytes;
}

std::atomic<std::uint64_t>& charged_for(Attachment& attached, const Device& device) {
  return attached.graph_charged[&device - attached.devices];
}

void settle_graph_memory(Attachment& attached, Device& device, std::uint64_t reserved_beforehand) {
  auto& charged_now = charged_for(attached, device);
  const std::uint64_t before = charged_now.load(std::memory_order_relaxed) + reserved_beforehand;
  const std::uint64_t after = graph_memory(device);
  if (after > before) attached.ledger.charge(device, after - before);
  if (after < before) attached.ledger.release(device, before - after);
  charged_now.store(after, std::memory_order_relaxed);
}

CUresult instantiated(CUresult result, const CUgraphExec* exec, CUgraph graph) {
  if (result != CUDA_SUCCESS || exec == nullptr) return result;
  Device* device = current_device();
  Attachment* attached = attachment();
  if (attached == nullptr) return result;
  if (device != nullptr) gate::graph_instantiated(*device, *exec, graph);
  PerDevice asked;
  add_allocations(*attached, graph, device, 0, asked);
  for (std::uint32_t index = 0; index < attached->device_count; ++index) {
    if (asked.bytes[index] == 0) continue;
    Holding holding;
    holding.kind = Kind::exec;
    holding.key = key_of(*exec, index);
    holding.bytes = asked.bytes[index];
    holding.extra = ~std::uint64_t{0};  // never run
    holding.device = index;
    if (attached->holdings.insert(holding)) attached->graph_execs.fetch_add(1, std::memory_order_relaxed);
  }
  return result;
}

CUresult updated(CUresult result, CUgraphExec exec) {
  if (result == CUDA_SUCCESS && attachment() != nullptr) gate::graph_updated(exec);
  return result;
}

// Runs a call that may make an executable graph take its memory.
template <class Call>
CUresult with_memory(Attachment& attached, CUgraphExec exec, Call call) {
  if (attached.graph_execs.load(std::memory_order_relaxed) == 0) return call();
  bool allocates[contract::kMaxDevices] = {};
  bool any = false;
  for (std::uint32_t index = 0; index < attached.device_count; ++index) {
    Holding holding;
    allocates[index] = attached.holdings.find(Kind::exec, key_of(exec, index), holding);
    any |= allocates[index];
  }
  if (!any) return call();
  PerDevice reserved;
  Guard guard(attached.graph_mutex);
  const std::uint64_t trims = attached.graph_trims.load(std::memory_order_relaxed);
  for (std::uint32_t index = 0; index < attached.device_count; ++index) {
    Holding holding;
    if (!allocates[index] || !attached.holdings.find(Kind::exec, key_of(exec, index), holding)) continue;
    if (holding.extra == trims) continue;  // it has run, and its memory is there unless it was trimmed since
    const Room room = reserve(attached.devices[index], holding.bytes);
    if (room) {
      reserved.bytes[index] = holding.bytes;
      continue;
    }
    for (std::uint32_t before = 0; before < index; ++before) release(attached.devices[before], reserved.bytes[before]);
    return no_room(room);
  }
  fault(FaultPoint::reserved);
  const CUresult result = call();
  for (std::uint32_t index = 0; index < attached.device_count; ++index) {
    if (!allocates[index]) continue;
    settle_graph_memory(attached, attached.devices[index], reserved.bytes[index]);
    if (result == CUDA_SUCCESS)
      attached.holdings.update(Kind::exec, key_of(exec, index), [&](Holding& known) { known.extra = trims; });
  }
  return result;
}

template <class Call>
CUresult launch(CUgraphExec exec, CUstream stream, bool own_stream, Call call) {
  Device* device = stream_device(stream);
  if (device == nullptr) return must_refuse() ? refusal() : call();
  // The gate first: it may wait, and must not with the memory held.
  if (gate::bypassed(*device)) return with_memory(*attachment(), exec, call);
  gate::Token token = gate::before_graph_launch(*device, exec, stream, own_stream);
  const CUresult result = with_memory(*attachment(), exec, call);
  if (token.word[0] != 0) gate::after_launch(token, result);
  return result;
}

}  // namespace

TF_ENTRY(cuGraphInstantiate, (CUgraphExec * exec, CUgraph graph, CUgraphNode* node, char* log, std::size_t size)) {
  return instantiated(TF_FORWARD(cuGraphInstantiate, exec, graph, node, log, size), exec, graph);
}
TF_ENTRY(cuGraphInstantiate_v2, (CUgraphExec * exec, CUgraph graph, CUgraphNode* node, char* log, std::size_t size)) {
  return instantiated(TF_FORWARD(cuGraphInstantiate_v2, exec, graph, node, log, size), exec, graph);
}
TF_ENTRY(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags)) {
  return instantiated(TF_FORWARD(cuGraphInstantiateWithFlags, exec, graph, flags), exec, graph);
}
TF_ENTRY(cuGraphInstantiateWithParams, (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params)) {
  return instantiated(TF_FORWARD(cuGraphInstantiateWithParams, exec, graph, params), exec, graph);
}
TF_ENTRY(cuGraphInstantiateWithParams_ptsz,
         (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params)) {
  return instantiated(TF_FORWARD(cuGraphInstantiateWithParams_ptsz, exec, graph, params), exec, graph);
}
TF_ENTRY(cuGraphExecDestroy, (CUgraphExec exec)) {
  Attachment* attached = attachment();
  if (attached == nullptr) return TF_FORWARD(cuGraphExecDestroy, exec);
  gate::graph_destroyed(exec);
  if (attached->graph_execs.load(std::memory_order_relaxed) == 0) return TF_REAL(cuGraphExecDestroy)(exec);
  bool allocates[contract::kMaxDevices] = {};
  for (std::uint32_t index = 0; index < attached->device_count; ++index) {
    Holding holding;
    allocates[index] = attached->holdings.take(Kind::exec, key_of(exec, index), holding);
    if (allocates[index]) attached->graph_execs.fetch_sub(1, std::memory_order_relaxed);
  }
  const CUresult result = TF_REAL(cuGraphExecDestroy)(exec);
  Guard guard(attached->graph_mutex);
  for (std::uint32_t index = 0; index < attached->device_count; ++index)
    if (allocates[index]) settle_graph_memory(*attached, attached->devices[index], 0);
  return result;
}

TF_ENTRY(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode* node, CUgraphExecUpdateResult* result)) {
  return updated(TF_FORWARD(cuGraphExecUpdate, exec, graph, node, result), exec);
}
TF_ENTRY(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info)) {
  return updated(TF_FORWARD(cuGraphExecUpdate_v2, exec, graph, info), exec);
}
TF_ENTRY(cuGraphExecKernelNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params)) {
  if (const CUresult refused = place_node(params); refused != CUDA_SUCCESS) return refused;
  return updated(TF_FORWARD(cuGraphExecKernelNodeSetParams, exec, node, params), exec);
}
TF_ENTRY(cuGraphExecKernelNodeSetParams_v2,
         (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params)) {
  if (const CUresult refused = place_node(params); refused != CUDA_SUCCESS) return refused;
  return updated(TF_FORWARD(cuGraphExecKernelNodeSetParams_v2, exec, node, params), exec);
}
TF_ENTRY(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* params)) {
  if (const CUresult refused = place_node(params); refused != CUDA_SUCCESS) return refused;
  return updated(TF_FORWARD(cuGraphExecNodeSetParams, exec, node, params), exec);
}
TF_ENTRY(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph graph)) {
  return updated(TF_FORWARD(cuGraphExecChildGraphNodeSetParams, exec, node, graph), exec);
}

#define TF_UPLOAD(symbol)                                                               \
  TF_ENTRY(symbol, (CUgraphExec exec, CUstream stream)) {                               \
    Attachment* attached = attachment();                                                \
    if (attached == nullptr) return TF_FORWARD(symbol, exec, stream);                   \
    return with_memory(*attached, exec, [&] { return TF_REAL(symbol)(exec, stream); }); \
  }
TF_UPLOAD(cuGraphUpload)
TF_UPLOAD(cuGraphUpload_ptsz)
#undef TF_UPLOAD

TF_ENTRY(cuGraphLaunch, (CUgraphExec exec, CUstream stream)) {
  return launch(exec, stream, false, [&] { return TF_REAL(cuGraphLaunch)(exec, stream); });
}
TF_ENTRY(cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream)) {
  return launch(exec, stream, true, [&] { return TF_REAL(cuGraphLaunch_ptsz)(exec, stream); });
}

TF_ENTRY(cuDeviceGraphMemTrim, (CUdevice ordinal)) {
  Device* device = device_of(ordinal);
  if (device == nullptr) return TF_FORWARD(cuDeviceGraphMemTrim, ordinal);
  Attachment& attached = *attachment();
  Guard guard(attached.graph_mutex);
  const CUresult result = TF_REAL(cuDeviceGraphMemTrim)(ordinal);
  attached.graph_trims.fetch_add(1, std::memory_order_relaxed);
  settle_graph_memory(attached, *device, 0);
  return result;
}

}  // namespace tensor_fusion::guest::limiter
