#pragma once
// Memory of another interface as this driver knows it: only what it exported itself as an opaque file descriptor, which
// is how two users of one card hand memory to each other. Imported memory is charged to whoever made it. There are no
// graphics here that could make semaphores, so none can be imported. The ABI's structures stand here too.
#include <cstdint>
#include <memory>

#include "sim/cuda/abi.h"
#include "sim/cuda/handle.h"
#include "sim/cuda/vmm.h"

namespace tensor_fusion::sim::cuda {

using CUexternalMemory = struct CUextMemory_st*;
using CUexternalSemaphore = struct CUextSemaphore_st*;

enum CUexternalMemoryHandleType : int {
  CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD = 1,
  CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD = 9,
};
union ExternalHandle {
  int fd;
  struct {
    void* handle;
    const void* name;
  } win32;
};
struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
  CUexternalMemoryHandleType type;
  ExternalHandle handle;
  unsigned long long size;
  unsigned flags, reserved[16];
};
struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
  unsigned long long offset, size;
  unsigned flags, reserved[16];
};
struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
  unsigned long long offset;
  CUDA_ARRAY3D_DESCRIPTOR arrayDesc;
  unsigned numLevels, reserved[16];
};
struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
  int type;
  ExternalHandle handle;
  unsigned flags, reserved[16];
};
enum CUmemRangeHandleType : int { CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1 };
static_assert(sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC) == 104 && sizeof(CUDA_EXTERNAL_MEMORY_BUFFER_DESC) == 88);
static_assert(sizeof(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC) == 120);
static_assert(sizeof(CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC) == 96);

struct ExternalMemory {
  static constexpr HandleKind kHandleKind = HandleKind::external_memory;
  std::shared_ptr<PhysicalMemory> memory;
  std::uint64_t bytes = 0;  // as the importer said
};

}  // namespace tensor_fusion::sim::cuda
