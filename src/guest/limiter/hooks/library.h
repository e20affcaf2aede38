#pragma once
// Libraries belong to all contexts: a driver puts their code and global variables into each one only when that is first
// asked for, by one of many calls. Here each of those is looked at like the load of a module. Any thread.
#include "guest/limiter/core/attachment.h"

namespace tensor_fusion::guest::limiter {

// Before a call that uses `handle` in that context, or, where it is null, in the current one: if it is a kernel of a
// library, it is put there now. Not CUDA_SUCCESS: it has no room there, and the call is refused.
CUresult place_kernel(const void* handle, CUcontext context = nullptr);
// The same before a node of a graph is made or changed, if it is one of a kernel.
CUresult place_node(const CUDA_KERNEL_NODE_PARAMS_v1* params);
CUresult place_node(const CUDA_KERNEL_NODE_PARAMS* params);
CUresult place_node(const CUgraphNodeParams* params);

// Where a launch runs, by value, so that all of it stays in registers.
struct Launch {
  Device* device;
  CUresult refused;  // CUDA_SUCCESS: it is not; else what is launched has no room there
};
Launch look_up_launch_closely(CUfunction function, CUstream stream, Device* current);
[[gnu::always_inline]] inline Launch look_up_launch(CUfunction function, CUstream stream) {
  Device* current = current_device();
  if (__builtin_expect(current != nullptr && current->close_looks->load(std::memory_order_relaxed) == 0, 1))
    return {current, CUDA_SUCCESS};
  return look_up_launch_closely(function, stream, current);
}

}  // namespace tensor_fusion::guest::limiter
