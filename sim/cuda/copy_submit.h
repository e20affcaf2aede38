#pragma once
// The common way of all copy entry points into a stream.
#include "sim/cuda/abi.h"
#include "sim/cuda/command.h"

namespace tensor_fusion::sim::cuda {

enum class Waits : std::uint8_t { never, if_host };

// `symbol` without version; a blocking call waits when host memory is part of it.
CUresult submit_copy(const char* symbol, Flavour flavour, CUstream handle, const CUDA_MEMCPY3D& asked, Waits waits);

}  // namespace tensor_fusion::sim::cuda
