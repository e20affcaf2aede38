#pragma once
// Memory of graphs' allocation nodes (its type is in graph.h).
#include <cstdint>
#include <memory>

#include "sim/cuda/abi.h"
#include "sim/cuda/device.h"

namespace tensor_fusion::sim::cuda {

struct GraphMemory;

// Fixes an address; charges nothing yet.
CUresult make_graph_memory(Device& device, std::uint64_t bytes, std::shared_ptr<GraphMemory>& out);
// NOT_FOUND when no graph made this address, INVALID_VALUE when it is not allocated now.
CUresult free_graph_memory(CUdeviceptr address);
[[nodiscard]] bool graph_owns(CUdeviceptr address);

}  // namespace tensor_fusion::sim::cuda
