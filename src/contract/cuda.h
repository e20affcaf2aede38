#pragma once
// The CUDA driver's binary interface as this project needs it: handles, plain structs, callbacks. Our own declaration
// from public documentation; no vendor header is read. Every type is a plain C type of the x86-64 and arm64 ABIs, so a
// function declared with them as extern "C" is the driver's own; the layouts are pinned by the assertions at the end.
#include <cstddef>
#include <cstdint>

#include "contract/cuda_enums.h"

namespace tensor_fusion::cuda {

using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUdeviceptr_v1 = std::uint32_t;  // of the entry points before CUDA 3.2
using CUtexObject = std::uint64_t;
using CUsurfObject = std::uint64_t;
using CUmemGenericAllocationHandle = std::uint64_t;
using CUgraphConditionalHandle = std::uint64_t;
using CUlogIterator = std::uint32_t;

using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUarray = struct CUarray_st*;
using CUmipmappedArray = struct CUmipmappedArray_st*;
using CUtexref = struct CUtexref_st*;
using CUsurfref = struct CUsurfref_st*;
using CUevent = struct CUevent_st*;
using CUstream = struct CUstream_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUuserObject = struct CUuserObject_st*;
using CUlinkState = struct CUlinkState_st*;
using CUgreenCtx = struct CUgreenCtx_st*;

// Stream handles with a fixed value: the legacy default stream and the calling thread's default stream.
inline constexpr std::uintptr_t kStreamLegacy = 1;
inline constexpr std::uintptr_t kStreamPerThread = 2;

// Keys of the `extra` list of a launch.
inline constexpr std::uintptr_t kLaunchParamEnd = 0;
inline constexpr std::uintptr_t kLaunchParamBufferPointer = 1;
inline constexpr std::uintptr_t kLaunchParamBufferSize = 2;

using CUhostFn = void (*)(void* user_data);
using CUstreamCallback = void (*)(CUstream stream, CUresult status, void* user_data);
using CUoccupancyB2DSize = std::size_t (*)(int block_size);

struct CUuuid {
  unsigned char bytes[16];
};

struct CUdevprop {
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], sharedMemPerBlock, totalConstantMemory, SIMDWidth, memPitch,
      regsPerBlock, clockRate, textureAlign;
};

struct CUmemLocation {
  CUmemLocationType type;
  int id;
};

struct CUmemAllocationProp {
  CUmemAllocationType type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};

struct CUmemAccessDesc {
  CUmemLocation location;
  CUmemAccess_flags flags;
};

struct CUmemPoolProps {
  CUmemAllocationType allocType;
  CUmemAllocationHandleType handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  std::size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};
struct CUmemPoolPtrExportData {
  unsigned char reserved[64];
};

struct CUDA_ARRAY_DESCRIPTOR {
  std::size_t Width, Height;
  CUarray_format Format;
  unsigned NumChannels;
};
struct CUDA_ARRAY_DESCRIPTOR_v1 {
  unsigned Width, Height;
  CUarray_format Format;
  unsigned NumChannels;
};
struct CUDA_ARRAY3D_DESCRIPTOR {
  std::size_t Width, Height, Depth;
  CUarray_format Format;
  unsigned NumChannels, Flags;
};
struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
  unsigned Width, Height, Depth;
  CUarray_format Format;
  unsigned NumChannels, Flags;
};
struct CUDA_ARRAY_MEMORY_REQUIREMENTS {
  std::size_t size, alignment;
  unsigned reserved[4];
};
struct CUDA_ARRAY_SPARSE_PROPERTIES {
  struct {
    unsigned width, height, depth;
  } tileExtent;
  unsigned miptailFirstLevel;
  unsigned long long miptailSize;
  unsigned flags, reserved[4];
};

struct CUDA_MEMCPY2D {
  std::size_t srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  std::size_t srcPitch;
  std::size_t dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  std::size_t dstPitch;
  std::size_t WidthInBytes, Height;
};
struct CUDA_MEMCPY3D {
  std::size_t srcXInBytes, srcY, srcZ, srcLOD;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  void* reserved0;
  std::size_t srcPitch, srcHeight;
  std::size_t dstXInBytes, dstY, dstZ, dstLOD;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  void* reserved1;
  std::size_t dstPitch, dstHeight;
  std::size_t WidthInBytes, Height, Depth;
};
struct CUDA_MEMCPY3D_PEER {
  std::size_t srcXInBytes, srcY, srcZ, srcLOD;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  CUcontext srcContext;
  std::size_t srcPitch, srcHeight;
  std::size_t dstXInBytes, dstY, dstZ, dstLOD;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  CUcontext dstContext;
  std::size_t dstPitch, dstHeight;
  std::size_t WidthInBytes, Height, Depth;
};
struct CUmemcpyAttributes {
  int srcAccessOrder;
  CUmemLocation srcLocHint, dstLocHint;
  unsigned flags;
};
struct CUmemcpy3DOperand {
  int type;  // 1 pointer, 2 array
  union {
    struct {
      CUdeviceptr ptr;
      std::size_t rowLength, layerHeight;
      CUmemLocation locHint;
    } ptr;
    struct {
      CUarray array;
      struct {
        std::size_t x, y, z;
      } offset;
    } array;
  } op;
};
struct CUDA_MEMCPY3D_BATCH_OP {
  CUmemcpy3DOperand src, dst;
  struct {
    std::size_t width, height, depth;
  } extent;
  int srcAccessOrder;
  unsigned flags;
};

union CUlaunchAttributeValue {
  char pad[64];
  int cooperative;
  int priority;
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
  struct {
    CUevent event;
    int flags;
    int triggerAtBlockStart;
  } programmaticEvent;
  struct {
    CUevent event;
    int flags;
  } launchCompletionEvent;
  unsigned sharedMemCarveout;
  std::uint64_t word;
};
struct CUlaunchAttribute {
  CUlaunchAttributeID id;
  char pad[4];
  CUlaunchAttributeValue value;
};
struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};
struct CUDA_LAUNCH_PARAMS {
  CUfunction function;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  void** kernelParams;
};

union CUstreamBatchMemOpParams {
  CUstreamBatchMemOpType operation;
  struct {
    CUstreamBatchMemOpType operation;
    CUdeviceptr address;
    union {
      std::uint32_t value;
      std::uint64_t value64;
    };
    unsigned flags;
    CUdeviceptr alias;
  } value;  // wait or write, 32 or 64 bits
  struct {
    CUstreamBatchMemOpType operation;
    unsigned flags;
  } flush;
  std::uint64_t pad[6];
};

struct CUDA_KERNEL_NODE_PARAMS_v1 {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void** kernelParams;
  void** extra;
};
struct CUDA_KERNEL_NODE_PARAMS {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void** kernelParams;
  void** extra;
  CUkernel kern;
  CUcontext ctx;
};
struct CUDA_MEMSET_NODE_PARAMS {
  CUdeviceptr dst;
  std::size_t pitch;
  unsigned value, elementSize;
  std::size_t width, height;
};
struct CUDA_MEMSET_NODE_PARAMS_v2 {
  CUdeviceptr dst;
  std::size_t pitch;
  unsigned value, elementSize;
  std::size_t width, height;
  CUcontext ctx;
};
struct CUDA_HOST_NODE_PARAMS {
  CUhostFn fn;
  void* userData;
};
struct CUDA_MEMCPY_NODE_PARAMS {
  int flags, reserved;
  CUcontext copyCtx;
  CUDA_MEMCPY3D copyParams;
};
struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps poolProps;
  const CUmemAccessDesc* accessDescs;
  std::size_t accessDescCount, bytesize;
  CUdeviceptr dptr;
};
struct CUDA_MEM_FREE_NODE_PARAMS {
  CUdeviceptr dptr;
};
struct CUDA_CHILD_GRAPH_NODE_PARAMS {
  CUgraph graph;
};
struct CUDA_EVENT_NODE_PARAMS {
  CUevent event;
};
struct CUDA_BATCH_MEM_OP_NODE_PARAMS {
  CUcontext ctx;
  unsigned count;
  CUstreamBatchMemOpParams* paramArray;
  unsigned flags;
};
struct CUDA_CONDITIONAL_NODE_PARAMS {
  CUgraphConditionalHandle handle;
  CUgraphConditionalNodeType type;
  unsigned size;
  CUgraph* phGraph_out;
  CUcontext ctx;
};
struct CUgraphNodeParams {
  CUgraphNodeType type;
  int reserved0[3];
  union {
    long long reserved1[29];
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMCPY_NODE_PARAMS memcpy;
    CUDA_MEMSET_NODE_PARAMS_v2 memset;
    CUDA_HOST_NODE_PARAMS host;
    CUDA_CHILD_GRAPH_NODE_PARAMS graph;
    CUDA_EVENT_NODE_PARAMS event;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    CUDA_MEM_FREE_NODE_PARAMS free;
    CUDA_BATCH_MEM_OP_NODE_PARAMS memOp;
    CUDA_CONDITIONAL_NODE_PARAMS conditional;
  };
  long long reserved2;
};
struct CUgraphEdgeData {
  unsigned char from_port, to_port, type, reserved[5];
};
struct CUDA_GRAPH_INSTANTIATE_PARAMS {
  std::uint64_t flags;
  CUstream hUploadStream;
  CUgraphNode hErrNode_out;
  CUgraphInstantiateResult result_out;
};
struct CUgraphExecUpdateResultInfo {
  CUgraphExecUpdateResult result;
  CUgraphNode errorNode, errorFromNode;
};

struct CUipcMemHandle {
  char reserved[64];
};
struct CUipcEventHandle {
  char reserved[64];
};

struct CUexecAffinityParam {
  int type;
  union {
    unsigned smCount;
  } param;
};
struct CUctxCreateParams {
  CUexecAffinityParam* execAffinityParams;
  int numExecAffinityParams;
  void* cigParams;
};

struct CUDA_RESOURCE_DESC {
  int resType;
  union {
    int reserved[32];
    std::uint64_t word;
  } res;
  unsigned flags;
};
struct alignas(64) CUtensorMap {
  std::uint64_t opaque[16];
};

struct CUcheckpointLockArgs {
  unsigned timeoutMs, reserved0;
  std::uint64_t reserved1[7];
};
struct CUcheckpointCheckpointArgs {
  std::uint64_t reserved[8];
};
struct CUcheckpointRestoreArgs {
  std::uint64_t reserved[8];
};
struct CUcheckpointUnlockArgs {
  std::uint64_t reserved[8];
};

// Physical memory behind a part of a sparse array, or no longer.
enum CUmemOperationType : int { CU_MEM_OPERATION_TYPE_MAP = 1, CU_MEM_OPERATION_TYPE_UNMAP = 2 };
enum CUarraySparseSubresourceType : int {
  CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL = 0,
  CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL = 1
};
struct CUarrayMapInfo {
  int resourceType;  // 0 an array, 1 a mipmapped one
  union {
    CUmipmappedArray mipmap;
    CUarray array;
  } resource;
  CUarraySparseSubresourceType subresourceType;
  union {
    struct {
      unsigned level, layer, offsetX, offsetY, offsetZ, extentWidth, extentHeight, extentDepth;
    } sparseLevel;
    struct {
      unsigned layer;
      unsigned long long offset, size;
    } miptail;
  } subresource;
  CUmemOperationType memOperationType;
  int memHandleType;
  union {
    CUmemGenericAllocationHandle memHandle;
  } memHandle;
  unsigned long long offset;
  unsigned deviceBitMask, flags, reserved[2];
};
static_assert(sizeof(CUarrayMapInfo) == 96 && offsetof(CUarrayMapInfo, memHandle) == 64);

static_assert(sizeof(CUdevprop) == 56 && sizeof(CUmemLocation) == 8 && sizeof(CUmemAccessDesc) == 12);
static_assert(sizeof(CUmemAllocationProp) == 32 && offsetof(CUmemAllocationProp, location) == 8);
static_assert(sizeof(CUmemPoolProps) == 88 && offsetof(CUmemPoolProps, maxSize) == 24);
static_assert(sizeof(CUDA_ARRAY_DESCRIPTOR) == 24 && sizeof(CUDA_ARRAY3D_DESCRIPTOR) == 40);
static_assert(sizeof(CUDA_ARRAY_DESCRIPTOR_v1) == 16 && sizeof(CUDA_ARRAY3D_DESCRIPTOR_v1) == 24);
static_assert(sizeof(CUDA_ARRAY_MEMORY_REQUIREMENTS) == 32 && sizeof(CUDA_ARRAY_SPARSE_PROPERTIES) == 48);
static_assert(sizeof(CUDA_MEMCPY2D) == 128 && offsetof(CUDA_MEMCPY2D, dstMemoryType) == 72);
static_assert(sizeof(CUDA_MEMCPY3D) == 200 && offsetof(CUDA_MEMCPY3D, dstMemoryType) == 120);
static_assert(sizeof(CUDA_MEMCPY3D_PEER) == 200 && offsetof(CUDA_MEMCPY3D_PEER, dstContext) == 152);
static_assert(sizeof(CUmemcpyAttributes) == 24 && sizeof(CUDA_MEMCPY3D_BATCH_OP) == 112);
static_assert(sizeof(CUlaunchAttribute) == 72 && sizeof(CUlaunchConfig) == 56 &&
              offsetof(CUlaunchConfig, hStream) == 32);
static_assert(sizeof(CUDA_LAUNCH_PARAMS) == 56 && sizeof(CUstreamBatchMemOpParams) == 48);
static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS_v1) == 56 && sizeof(CUDA_KERNEL_NODE_PARAMS) == 72);
static_assert(sizeof(CUDA_MEMSET_NODE_PARAMS) == 40 && sizeof(CUDA_MEMSET_NODE_PARAMS_v2) == 48);
static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) == 120 && sizeof(CUDA_MEMCPY_NODE_PARAMS) == 216);
static_assert(sizeof(CUgraphNodeParams) == 256 && offsetof(CUgraphNodeParams, kernel) == 16);
static_assert(sizeof(CUDA_CONDITIONAL_NODE_PARAMS) == 32);
static_assert(sizeof(CUgraphEdgeData) == 8 && sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS) == 32);
static_assert(sizeof(CUgraphExecUpdateResultInfo) == 24 && sizeof(CUctxCreateParams) == 24);
static_assert(sizeof(CUDA_RESOURCE_DESC) == 144 && sizeof(CUtensorMap) == 128 && sizeof(CUcheckpointLockArgs) == 64);

}  // namespace tensor_fusion::cuda
