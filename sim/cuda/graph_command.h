#pragma once
// From the parameters of a graph's node, as the API has them for each kind, to the command that it runs. Answers what
// is wrong with them; an allocation node's parameters get the address it has taken.
#include <memory>

#include "sim/cuda/command.h"

namespace tensor_fusion::sim::cuda {

// `second`: of the form that also has a kernel handle and a context.
CUresult kernel_command(const CUDA_KERNEL_NODE_PARAMS* params, bool second, Command& out);
CUDA_KERNEL_NODE_PARAMS widened(const CUDA_KERNEL_NODE_PARAMS_v1& params);
CUresult copy_command(const CUDA_MEMCPY3D* params, Command& out);
CUresult fill_command(const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context, Command& out);
CUresult host_command(const CUDA_HOST_NODE_PARAMS* params, Command& out);
CUresult child_command(CUgraph handle, Command& out);
CUresult alloc_command(CUDA_MEM_ALLOC_NODE_PARAMS* params, Command& out);
// Only what a graph or a pool has given out can be freed by a graph.
CUresult free_command(CUdeviceptr address, Command& out);
CUresult operations_command(const CUDA_BATCH_MEM_OP_NODE_PARAMS* params, Command& out);
// Of any kind.
CUresult generic_command(CUgraphNodeParams* params, Command& out);

template <typename EventCommand>
CUresult event_command(CUevent handle, Command& out) {
  auto event = events().share(handle);
  if (!event) return CUDA_ERROR_INVALID_VALUE;
  out = std::make_shared<const EventCommand>(EventCommand{std::move(event)});
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
