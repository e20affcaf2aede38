// Calls that use a kernel, and may be the first to do so in a context: only launches are elsewhere.
#include "guest/limiter/hooks/charge.h"
#include "guest/limiter/hooks/library.h"

namespace tensor_fusion::guest::limiter {
namespace {

// A kernel's settings on a device are those in the current context, if it is of that device, and else in the primary.
CUresult place_on(CUkernel kernel, CUdevice ordinal) {
  const Device* device = device_of(ordinal);
  if (device == nullptr || device == current_device()) return place_kernel(kernel);
  const Attachment& attached = *attachment();
  const std::uint64_t primary = attached.primary[device - attached.devices];
  return primary != 0 ? place_kernel(kernel, reinterpret_cast<CUcontext>(primary)) : CUDA_SUCCESS;
}

}  // namespace

CUresult place_node(const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return params != nullptr ? place_kernel(params->func) : CUDA_SUCCESS;
}
CUresult place_node(const CUDA_KERNEL_NODE_PARAMS* params) {
  if (params == nullptr) return CUDA_SUCCESS;
  return params->func != nullptr ? place_kernel(params->func, params->ctx) : place_kernel(params->kern, params->ctx);
}
CUresult place_node(const CUgraphNodeParams* params) {
  return params != nullptr && params->type == CU_GRAPH_NODE_TYPE_KERNEL ? place_node(&params->kernel) : CUDA_SUCCESS;
}

TF_ENTRY(cuKernelGetFunction, (CUfunction * function, CUkernel kernel)) {
  if (const CUresult refused = place_kernel(kernel); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuKernelGetFunction)(function, kernel);
}
TF_ENTRY(cuKernelGetAttribute, (int* value, CUfunction_attribute name, CUkernel kernel, CUdevice device)) {
  if (const CUresult refused = place_on(kernel, device); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuKernelGetAttribute)(value, name, kernel, device);
}
TF_ENTRY(cuKernelSetAttribute, (CUfunction_attribute name, int value, CUkernel kernel, CUdevice device)) {
  if (const CUresult refused = place_on(kernel, device); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuKernelSetAttribute)(name, value, kernel, device);
}
TF_ENTRY(cuKernelSetCacheConfig, (CUkernel kernel, int config, CUdevice device)) {
  if (const CUresult refused = place_on(kernel, device); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuKernelSetCacheConfig)(kernel, config, device);
}
TF_ENTRY(cuFuncGetAttribute, (int* value, CUfunction_attribute name, CUfunction function)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuFuncGetAttribute)(value, name, function);
}
TF_ENTRY(cuFuncSetAttribute, (CUfunction function, CUfunction_attribute name, int value)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuFuncSetAttribute)(function, name, value);
}
TF_ENTRY(cuFuncSetCacheConfig, (CUfunction function, int config)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuFuncSetCacheConfig)(function, config);
}
TF_ENTRY(cuFuncSetSharedMemConfig, (CUfunction function, int config)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuFuncSetSharedMemConfig)(function, config);
}
TF_ENTRY(cuFuncGetModule, (CUmodule * module, CUfunction function)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuFuncGetModule)(module, function);
}
TF_ENTRY(cuFuncIsLoaded, (int* loaded, CUfunction function)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuFuncIsLoaded)(loaded, function);
}
TF_ENTRY(cuFuncGetName, (const char** name, CUfunction function)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuFuncGetName)(name, function);
}
TF_ENTRY(cuFuncGetParamInfo, (CUfunction function, std::size_t index, std::size_t* offset, std::size_t* size)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuFuncGetParamInfo)(function, index, offset, size);
}
TF_ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor,
         (int* blocks, CUfunction function, int threads, std::size_t shared)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(blocks, function, threads, shared);
}
TF_ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
         (int* blocks, CUfunction function, int threads, std::size_t shared, unsigned flags)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(blocks, function, threads, shared, flags);
}
TF_ENTRY(cuOccupancyMaxPotentialBlockSize,
         (int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared_of, std::size_t shared, int most)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuOccupancyMaxPotentialBlockSize)(grid, block, function, shared_of, shared, most);
}
TF_ENTRY(cuOccupancyMaxPotentialBlockSizeWithFlags,
         (int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared_of, std::size_t shared, int most,
          unsigned flags)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuOccupancyMaxPotentialBlockSizeWithFlags)(grid, block, function, shared_of, shared, most, flags);
}
TF_ENTRY(cuOccupancyAvailableDynamicSMemPerBlock, (std::size_t* bytes, CUfunction function, int blocks, int threads)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuOccupancyAvailableDynamicSMemPerBlock)(bytes, function, blocks, threads);
}
TF_ENTRY(cuOccupancyMaxPotentialClusterSize, (int* size, CUfunction function, const CUlaunchConfig* config)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuOccupancyMaxPotentialClusterSize)(size, function, config);
}
TF_ENTRY(cuOccupancyMaxActiveClusters, (int* clusters, CUfunction function, const CUlaunchConfig* config)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuOccupancyMaxActiveClusters)(clusters, function, config);
}
TF_ENTRY(cuGraphAddKernelNode, (CUgraphNode * node, CUgraph graph, const CUgraphNode* needs, std::size_t count,
                                const CUDA_KERNEL_NODE_PARAMS_v1* params)) {
  if (const CUresult refused = place_node(params); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuGraphAddKernelNode)(node, graph, needs, count, params);
}
TF_ENTRY(cuGraphAddKernelNode_v2, (CUgraphNode * node, CUgraph graph, const CUgraphNode* needs, std::size_t count,
                                   const CUDA_KERNEL_NODE_PARAMS* params)) {
  if (const CUresult refused = place_node(params); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuGraphAddKernelNode_v2)(node, graph, needs, count, params);
}
TF_ENTRY(cuGraphAddNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode* needs, std::size_t count, CUgraphNodeParams* params)) {
  if (const CUresult refused = place_node(params); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuGraphAddNode)(node, graph, needs, count, params);
}
TF_ENTRY(cuGraphAddNode_v2, (CUgraphNode * node, CUgraph graph, const CUgraphNode* needs, const CUgraphEdgeData* edges,
                             std::size_t count, CUgraphNodeParams* params)) {
  if (const CUresult refused = place_node(params); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuGraphAddNode_v2)(node, graph, needs, edges, count, params);
}
TF_ENTRY(cuGraphKernelNodeSetParams, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params)) {
  if (const CUresult refused = place_node(params); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuGraphKernelNodeSetParams)(node, params);
}
TF_ENTRY(cuGraphKernelNodeSetParams_v2, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params)) {
  if (const CUresult refused = place_node(params); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuGraphKernelNodeSetParams_v2)(node, params);
}
TF_ENTRY(cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams* params)) {
  if (const CUresult refused = place_node(params); refused != CUDA_SUCCESS) return refused;
  return TF_REAL(cuGraphNodeSetParams)(node, params);
}

}  // namespace tensor_fusion::guest::limiter
