#pragma once
// Pools by where their memory lies and of what kind it is: each device, the host and its NUMA nodes, and for managed
// memory also nowhere in particular, have a default pool and a current one. Thread-safe.
#include <memory>

#include "sim/cuda/abi.h"

namespace tensor_fusion::sim::cuda {

class Device;
class Pool;

// The device whose memory a pool there is made of; null for the host's. INVALID_VALUE for a place without pools.
CUresult find_pool_place(const CUmemLocation& location, CUmemAllocationType type, Device*& device);
// Where the pool is the current one, the default one is from now on.
void forget_current_pool(const std::shared_ptr<Pool>& pool);

}  // namespace tensor_fusion::sim::cuda
