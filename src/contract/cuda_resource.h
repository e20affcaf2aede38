#pragma once
// Parts of a device as the CUDA driver hands them around: a set of multiprocessors, and what a green context is made
// of.
#include <cstddef>

#include "contract/cuda.h"

namespace tensor_fusion::cuda {

using CUdevResourceDesc = struct CUdevResourceDesc_st*;

enum CUdevResourceType : int {
  CU_DEV_RESOURCE_TYPE_INVALID = 0,
  CU_DEV_RESOURCE_TYPE_SM = 1,
};

enum CUdevSmResourceSplit_flags : unsigned {
  CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING = 1,
  CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE = 2,
};

inline constexpr unsigned CU_GREEN_CTX_DEFAULT_STREAM = 1;  // the only flag, and it has to be there

struct CUdevSmResource {
  unsigned smCount;
};
struct CUdevResource {
  CUdevResourceType type;
  unsigned char internal[92];  // the driver's own
  union {
    CUdevSmResource sm;
    unsigned char oversize[48];
  };
};
static_assert(sizeof(CUdevResource) == 144 && offsetof(CUdevResource, sm) == 96);

}  // namespace tensor_fusion::cuda
