#pragma once
// The book of memory pools: which the process has, on which device each reserves memory, and how much of that has been
// charged. A pool whose memory lies on the host has a place too, and is never charged. Refuses a pool when all places
// are taken. Any thread; what a Pool holds besides its handle is read and written with its mutex held.
#include "guest/limiter/hooks/entry.h"

namespace tensor_fusion::guest::limiter {

Pool* find_pool(Attachment& attached, CUmemoryPool handle);  // null: unknown
// Null when all places are taken. `device` null: on the host. A pool that is known stays as it was.
Pool* add_pool(Attachment& attached, Device* device, CUmemoryPool handle, std::uint32_t traits);

std::uint64_t pool_attribute(CUmemoryPool handle, CUmemPool_attribute attribute);

// These with the pool's mutex held.
void settle_pool(Attachment& attached, Pool& pool);  // charges what it reserves now, no more and no less
// What was allocated from a pool outlives it. The driver's pool stays until then, since nobody else could be asked how
// much is left, and is no pool to the program any more.
void close_pool(Attachment& attached, Pool& pool);

inline bool on_host(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

}  // namespace tensor_fusion::guest::limiter
