#include "sim/cuda/graph_command.h"

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/graph_memory.h"

namespace tensor_fusion::sim::cuda {

CUresult kernel_command(const CUDA_KERNEL_NODE_PARAMS* params, bool second, Command& out) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = second && params->ctx != nullptr ? contexts().find(params->ctx) : current_context();
  std::shared_ptr<Function> function;
  if (params->func != nullptr && functions().find(params->func) != nullptr) {
    function = functions().share(params->func);
  } else {
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const auto handle =
        params->func != nullptr ? params->func : reinterpret_cast<CUfunction>(second ? params->kern : nullptr);
    if (find_function(handle, *context, function) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  }
  std::shared_ptr<const KernelCommand> command;
  TF_TRY(make_kernel_command(function, {params->gridDimX, params->gridDimY, params->gridDimZ},
                             {params->blockDimX, params->blockDimY, params->blockDimZ}, params->sharedMemBytes,
                             params->kernelParams, params->extra, false, command));
  out = std::move(command);
  return CUDA_SUCCESS;
}

CUDA_KERNEL_NODE_PARAMS widened(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  return {p.func,      p.gridDimX,       p.gridDimY,     p.gridDimZ, p.blockDimX, p.blockDimY,
          p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra,    nullptr,     nullptr};
}

CUresult copy_command(const CUDA_MEMCPY3D* params, Command& out) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<CopyCommand> command;
  TF_TRY(make_copy(*params, command));
  out = std::shared_ptr<const CopyCommand>(std::move(command));
  return CUDA_SUCCESS;
}

CUresult fill_command(const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context, Command& out) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<const FillCommand> command;
  TF_TRY(make_fill(
      {params->dst, params->pitch, params->value, params->elementSize, params->width, params->height, context},
      command));
  out = std::move(command);
  return CUDA_SUCCESS;
}

CUresult host_command(const CUDA_HOST_NODE_PARAMS* params, Command& out) {
  if (params == nullptr || params->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  out = std::make_shared<const HostCommand>(HostCommand{params->fn, nullptr, nullptr, params->userData});
  return CUDA_SUCCESS;
}

CUresult child_command(CUgraph handle, Command& out) {
  const auto graph = graphs().share(handle);
  if (!graph || graph->has_memory_nodes()) return CUDA_ERROR_INVALID_VALUE;
  auto copy = graph->clone();
  copy->is_child = true;
  out = std::make_shared<const ChildCommand>(ChildCommand{NodeGraph(std::move(copy))});
  return CUDA_SUCCESS;
}

CUresult alloc_command(CUDA_MEM_ALLOC_NODE_PARAMS* params, Command& out) {
  if (params == nullptr || params->bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  if (params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(params->poolProps.location.id, device));
  auto command = std::make_shared<AllocCommand>();
  TF_TRY(make_graph_memory(*device, params->bytesize, command->memory));
  params->dptr = command->memory->address;
  command->asked = *params;
  if (params->accessDescs != nullptr)
    command->access.assign(params->accessDescs, params->accessDescs + params->accessDescCount);
  command->asked.accessDescs = command->access.empty() ? nullptr : command->access.data();
  out = std::shared_ptr<const AllocCommand>(std::move(command));
  return CUDA_SUCCESS;
}

CUresult free_command(CUdeviceptr address, Command& out) {
  const auto allocation = Driver::get().addresses().exact(address);
  const bool of_pool = allocation && allocation->kind == Allocation::Kind::pool;
  if (!of_pool && !graph_owns(address)) return CUDA_ERROR_INVALID_VALUE;
  out = std::make_shared<const FreeCommand>(FreeCommand{address});
  return CUDA_SUCCESS;
}

CUresult operations_command(const CUDA_BATCH_MEM_OP_NODE_PARAMS* params, Command& out) {
  if (params == nullptr || params->count == 0 || params->count > 256 || params->paramArray == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  auto command = std::make_shared<MemoryOpsCommand>();
  command->operations.assign(params->paramArray, params->paramArray + params->count);
  command->context = params->ctx;
  command->flags = params->flags;
  TF_TRY(check_memory_operations(command->operations));
  out = std::shared_ptr<const MemoryOpsCommand>(std::move(command));
  return CUDA_SUCCESS;
}

CUresult generic_command(CUgraphNodeParams* params, Command& out) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return kernel_command(&params->kernel, true, out);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return copy_command(&params->memcpy.copyParams, out);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto& p = params->memset;
      const CUDA_MEMSET_NODE_PARAMS first{p.dst, p.pitch, p.value, p.elementSize, p.width, p.height};
      return fill_command(&first, p.ctx, out);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return host_command(&params->host, out);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return child_command(params->graph.graph, out);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      out = std::make_shared<const EmptyCommand>();
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return event_command<WaitCommand>(params->event.event, out);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return event_command<RecordCommand>(params->event.event, out);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return alloc_command(&params->alloc, out);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return free_command(params->free.dptr, out);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return operations_command(&params->memOp, out);
    default:
      return refuse_once("graph nodes of that kind");
  }
}

}  // namespace tensor_fusion::sim::cuda
