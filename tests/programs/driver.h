#pragma once
// For test programs: the CUDA driver as a struct of functions, found in libcuda.so.1 at run time through the door that
// the program names: `dlsym` (by exported name) or `gpa` (cuGetProcAddress_v2, by base name, version and stream
// flavour). A missing function stays null. Nothing else of the tree is linked in.
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "contract/cuda.h"
#include "contract/cuda_symbols.h"

namespace tensor_fusion::programs {

using namespace ::tensor_fusion::cuda;

#define TF_DRIVER_FUNCTIONS(F)                                                                                         \
  F(cuInit, (unsigned))                                                                                                \
  F(cuDriverGetVersion, (int*))                                                                                        \
  F(cuGetErrorName, (CUresult, const char**))                                                                          \
  F(cuGetProcAddress_v2, (const char*, void**, int, std::uint64_t, CUdriverProcAddressQueryResult*))                   \
  F(cuDeviceGet, (CUdevice*, int))                                                                                     \
  F(cuDeviceGetCount, (int*))                                                                                          \
  F(cuDeviceGetName, (char*, int, CUdevice))                                                                           \
  F(cuDeviceGetUuid_v2, (CUuuid*, CUdevice))                                                                           \
  F(cuDeviceGetAttribute, (int*, int, CUdevice))                                                                       \
  F(cuDeviceTotalMem_v2, (std::size_t*, CUdevice))                                                                     \
  F(cuDeviceGetDefaultMemPool, (CUmemoryPool*, CUdevice))                                                              \
  F(cuDeviceGraphMemTrim, (CUdevice))                                                                                  \
  F(cuDevicePrimaryCtxRetain, (CUcontext*, CUdevice))                                                                  \
  F(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                                                          \
  F(cuCtxCreate_v2, (CUcontext*, unsigned, CUdevice))                                                                  \
  F(cuCtxDestroy_v2, (CUcontext))                                                                                      \
  F(cuCtxSetCurrent, (CUcontext))                                                                                      \
  F(cuCtxGetCurrent, (CUcontext*))                                                                                     \
  F(cuCtxSynchronize, ())                                                                                              \
  F(cuModuleLoadData, (CUmodule*, const void*))                                                                        \
  F(cuModuleLoadDataEx, (CUmodule*, const void*, unsigned, CUjit_option*, void**))                                     \
  F(cuModuleUnload, (CUmodule))                                                                                        \
  F(cuModuleGetFunction, (CUfunction*, CUmodule, const char*))                                                         \
  F(cuModuleGetGlobal_v2, (CUdeviceptr*, std::size_t*, CUmodule, const char*))                                         \
  F(cuLibraryLoadData, (CUlibrary*, const void*, CUjit_option*, void**, unsigned, int*, void**, unsigned))             \
  F(cuLibraryGetKernel, (CUkernel*, CUlibrary, const char*))                                                           \
  F(cuLibraryUnload, (CUlibrary))                                                                                      \
  F(cuFuncSetBlockShape, (CUfunction, int, int, int))                                                                  \
  F(cuParamSetv, (CUfunction, int, void*, unsigned))                                                                   \
  F(cuParamSetSize, (CUfunction, unsigned))                                                                            \
  F(cuLaunch, (CUfunction))                                                                                            \
  F(cuLaunchGrid, (CUfunction, int, int))                                                                              \
  F(cuLaunchGridAsync, (CUfunction, int, int, CUstream))                                                               \
  F(cuLaunchKernel,                                                                                                    \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**))      \
  F(cuLaunchKernel_ptsz,                                                                                               \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**))      \
  F(cuLaunchKernelEx, (const CUlaunchConfig*, CUfunction, void**, void**))                                             \
  F(cuLaunchKernelEx_ptsz, (const CUlaunchConfig*, CUfunction, void**, void**))                                        \
  F(cuLaunchCooperativeKernel,                                                                                         \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**))              \
  F(cuLaunchCooperativeKernel_ptsz,                                                                                    \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**))              \
  F(cuLaunchHostFunc, (CUstream, CUhostFn, void*))                                                                     \
  F(cuStreamAddCallback, (CUstream, CUstreamCallback, void*, unsigned))                                                \
  F(cuMemGetInfo_v2, (std::size_t*, std::size_t*))                                                                     \
  F(cuMemAlloc_v2, (CUdeviceptr*, std::size_t))                                                                        \
  F(cuMemAllocPitch_v2, (CUdeviceptr*, std::size_t*, std::size_t, std::size_t, unsigned))                              \
  F(cuMemAllocManaged, (CUdeviceptr*, std::size_t, unsigned))                                                          \
  F(cuMemFree_v2, (CUdeviceptr))                                                                                       \
  F(cuMemHostAlloc, (void**, std::size_t, unsigned))                                                                   \
  F(cuMemFreeHost, (void*))                                                                                            \
  F(cuMemAllocAsync, (CUdeviceptr*, std::size_t, CUstream))                                                            \
  F(cuMemAllocAsync_ptsz, (CUdeviceptr*, std::size_t, CUstream))                                                       \
  F(cuMemAllocFromPoolAsync, (CUdeviceptr*, std::size_t, CUmemoryPool, CUstream))                                      \
  F(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr*, std::size_t, CUmemoryPool, CUstream))                                 \
  F(cuMemFreeAsync, (CUdeviceptr, CUstream))                                                                           \
  F(cuMemFreeAsync_ptsz, (CUdeviceptr, CUstream))                                                                      \
  F(cuMemPoolCreate, (CUmemoryPool*, const CUmemPoolProps*))                                                           \
  F(cuMemPoolDestroy, (CUmemoryPool))                                                                                  \
  F(cuMemPoolTrimTo, (CUmemoryPool, std::size_t))                                                                      \
  F(cuMemPoolExportToShareableHandle, (void*, CUmemoryPool, CUmemAllocationHandleType, unsigned long long))            \
  F(cuMemPoolImportFromShareableHandle, (CUmemoryPool*, void*, CUmemAllocationHandleType, unsigned long long))         \
  F(cuMemPoolExportPointer, (CUmemPoolPtrExportData*, CUdeviceptr))                                                    \
  F(cuMemPoolImportPointer, (CUdeviceptr*, CUmemoryPool, CUmemPoolPtrExportData*))                                     \
  F(cuMemPoolGetAttribute, (CUmemoryPool, CUmemPool_attribute, void*))                                                 \
  F(cuMemPoolSetAttribute, (CUmemoryPool, CUmemPool_attribute, void*))                                                 \
  F(cuMemGetAllocationGranularity, (std::size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags))       \
  F(cuMemAddressReserve, (CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long))                    \
  F(cuMemAddressFree, (CUdeviceptr, std::size_t))                                                                      \
  F(cuMemCreate, (CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*, unsigned long long))         \
  F(cuMemRelease, (CUmemGenericAllocationHandle))                                                                      \
  F(cuMemMap, (CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long))               \
  F(cuMemUnmap, (CUdeviceptr, std::size_t))                                                                            \
  F(cuMemSetAccess, (CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t))                                   \
  F(cuMemExportToShareableHandle,                                                                                      \
    (void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long))                              \
  F(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType))                 \
  F(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle*, void*))                                               \
  F(cuArrayCreate_v2, (CUarray*, const CUDA_ARRAY_DESCRIPTOR*))                                                        \
  F(cuArray3DCreate_v2, (CUarray*, const CUDA_ARRAY3D_DESCRIPTOR*))                                                    \
  F(cuArrayDestroy, (CUarray))                                                                                         \
  F(cuMipmappedArrayCreate, (CUmipmappedArray*, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned))                             \
  F(cuMipmappedArrayDestroy, (CUmipmappedArray))                                                                       \
  F(cuMemcpyHtoD_v2, (CUdeviceptr, const void*, std::size_t))                                                          \
  F(cuMemcpyDtoH_v2, (void*, CUdeviceptr, std::size_t))                                                                \
  F(cuMemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, std::size_t))                                                          \
  F(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void*, std::size_t, CUstream))                                           \
  F(cuMemcpyDtoHAsync_v2, (void*, CUdeviceptr, std::size_t, CUstream))                                                 \
  F(cuMemsetD8_v2, (CUdeviceptr, unsigned char, std::size_t))                                                          \
  F(cuMemsetD32_v2, (CUdeviceptr, unsigned, std::size_t))                                                              \
  F(cuMemsetD32Async, (CUdeviceptr, unsigned, std::size_t, CUstream))                                                  \
  F(cuPointerGetAttribute, (void*, CUpointer_attribute, CUdeviceptr))                                                  \
  F(cuIpcGetMemHandle, (CUipcMemHandle*, CUdeviceptr))                                                                 \
  F(cuIpcOpenMemHandle_v2, (CUdeviceptr*, CUipcMemHandle, unsigned))                                                   \
  F(cuIpcCloseMemHandle, (CUdeviceptr))                                                                                \
  F(cuIpcGetEventHandle, (CUipcEventHandle*, CUevent))                                                                 \
  F(cuIpcOpenEventHandle, (CUevent*, CUipcEventHandle))                                                                \
  F(cuStreamCreate, (CUstream*, unsigned))                                                                             \
  F(cuStreamCreateWithPriority, (CUstream*, unsigned, int))                                                            \
  F(cuStreamDestroy_v2, (CUstream))                                                                                    \
  F(cuStreamQuery, (CUstream))                                                                                         \
  F(cuStreamSynchronize, (CUstream))                                                                                   \
  F(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                                                  \
  F(cuStreamWaitValue32_v2, (CUstream, CUdeviceptr, std::uint32_t, unsigned))                                          \
  F(cuStreamWriteValue32_v2, (CUstream, CUdeviceptr, std::uint32_t, unsigned))                                         \
  F(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode))                                                          \
  F(cuStreamEndCapture, (CUstream, CUgraph*))                                                                          \
  F(cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus*))                                                           \
  F(cuEventCreate, (CUevent*, unsigned))                                                                               \
  F(cuEventDestroy_v2, (CUevent))                                                                                      \
  F(cuEventRecord, (CUevent, CUstream))                                                                                \
  F(cuEventQuery, (CUevent))                                                                                           \
  F(cuEventSynchronize, (CUevent))                                                                                     \
  F(cuEventElapsedTime, (float*, CUevent, CUevent))                                                                    \
  F(cuGraphCreate, (CUgraph*, unsigned))                                                                               \
  F(cuGraphDestroy, (CUgraph))                                                                                         \
  F(cuGraphClone, (CUgraph*, CUgraph))                                                                                 \
  F(cuGraphAddKernelNode_v2, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CUDA_KERNEL_NODE_PARAMS*)) \
  F(cuGraphAddMemcpyNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CUDA_MEMCPY3D*, CUcontext))   \
  F(cuGraphAddMemsetNode,                                                                                              \
    (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CUDA_MEMSET_NODE_PARAMS*, CUcontext))               \
  F(cuGraphAddHostNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CUDA_HOST_NODE_PARAMS*))        \
  F(cuGraphAddChildGraphNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraph))                       \
  F(cuGraphAddMemAllocNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUDA_MEM_ALLOC_NODE_PARAMS*))     \
  F(cuGraphAddMemFreeNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUdeviceptr))                      \
  F(cuGraphGetNodes, (CUgraph, CUgraphNode*, std::size_t*))                                                            \
  F(cuGraphInstantiateWithFlags, (CUgraphExec*, CUgraph, unsigned long long))                                          \
  F(cuGraphInstantiate_v2, (CUgraphExec*, CUgraph, CUgraphNode*, char*, std::size_t))                                  \
  F(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*))                     \
  F(cuGraphExecUpdate_v2, (CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*))                                        \
  F(cuGraphExecDestroy, (CUgraphExec))                                                                                 \
  F(cuGraphUpload, (CUgraphExec, CUstream))                                                                            \
  F(cuGraphLaunch, (CUgraphExec, CUstream))                                                                            \
  F(cuGraphLaunch_ptsz, (CUgraphExec, CUstream))

enum class Door { dlsym, gpa };

struct Driver {
#define TF_MEMBER(name, params) CUresult(*name) params = nullptr;
  TF_DRIVER_FUNCTIONS(TF_MEMBER)
#undef TF_MEMBER

  void* library = nullptr;

  // Leaves `library` null when there is no driver.
  explicit Driver(Door door = door_of_environment()) : library(::dlopen("libcuda.so.1", RTLD_NOW)) {
    if (library == nullptr) return;
    void* resolver = ::dlsym(library, "cuGetProcAddress_v2");
#define TF_LOAD(name, params) name = reinterpret_cast<CUresult(*) params>(find(door, resolver, #name));
    TF_DRIVER_FUNCTIONS(TF_LOAD)
#undef TF_LOAD
  }

  // TEST_DOOR=gpa or dlsym (default).
  static Door door_of_environment() {
    const char* wish = std::getenv("TEST_DOOR");
    return wish != nullptr && std::strcmp(wish, "gpa") == 0 ? Door::gpa : Door::dlsym;
  }

  [[nodiscard]] std::string name_of(CUresult result) const {
    const char* text = nullptr;
    if (cuGetErrorName == nullptr || cuGetErrorName(result, &text) != CUDA_SUCCESS || text == nullptr)
      return std::to_string(result);
    return text;
  }

 private:
  void* find(Door door, void* resolver, const char* exported) const {
    if (door == Door::dlsym || resolver == nullptr) return ::dlsym(library, exported);
    const auto get =
        reinterpret_cast<CUresult (*)(const char*, void**, int, std::uint64_t, CUdriverProcAddressQueryResult*)>(
            resolver);
    for (const CudaSymbol& row : kCudaSymbols) {
      if (std::strcmp(row.exported, exported) != 0) continue;
      void* address = nullptr;
      CUdriverProcAddressQueryResult status{};
      const std::uint64_t flags = row.flavour == StreamFlavour::kPlain ? CU_GET_PROC_ADDRESS_DEFAULT
                                                                       : CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
      if (get(row.base, &address, row.version, flags, &status) == CUDA_SUCCESS && address != nullptr) return address;
    }
    return nullptr;
  }
};

// Functions by their exported name, for those that one program alone uses: of a missing one the answer is not_found.
struct Library {
  void* handle = nullptr;
  template <class... Arguments>
  auto find(const char* name) const {
    auto function = reinterpret_cast<CUresult (*)(Arguments...)>(::dlsym(handle, name));
    if (function != nullptr) return function;
    return +[](Arguments...) { return CUDA_ERROR_NOT_FOUND; };
  }
};

// In a function of a Driver `d`: says what went wrong, and returns 1.
#define MUST(call)                                                                              \
  do {                                                                                          \
    if (const CUresult r = (call); r != CUDA_SUCCESS) {                                         \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, d.name_of(r).c_str()); \
      return 1;                                                                                 \
    }                                                                                           \
  } while (false)

// One line of JSON on standard output: {"path": …, "result": …, then the numbers}.
struct Line {
  explicit Line(const char* path, const std::string& result) {
    std::printf("{\"path\": \"%s\", \"result\": \"%s\"", path, result.c_str());
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  Line& number(const char* key, long long value) {
    std::printf(", \"%s\": %lld", key, value);
    return *this;
  }
  ~Line() {
    std::printf("}\n");
    std::fflush(stdout);
  }
};

// Physical memory of the first device, which may go to other processes by descriptor.
inline CUmemAllocationProp on_device() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

// What the driver says is left for this program, in bytes; 0 where it says nothing.
inline std::size_t free_bytes(const Driver& d) {
  std::size_t free = 0, total = 0;
  return d.cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS ? free : 0;
}

// Awaits that it says so much.
inline bool comes_back(const Driver& d, std::size_t wanted) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (free_bytes(d) != wanted && std::chrono::steady_clock::now() < until) ::usleep(1000);
  return free_bytes(d) == wanted;
}

// Kernels for test programs: `nothing` has no effect, `tensor_fusion_busy` takes the nanoseconds it is told (only on
// the simulated device; elsewhere it returns at once), `count` adds 1 to the word its parameter points to, once per
// thread.
inline constexpr const char* kKernels = R"(
.version 6.3
.target sm_70
.address_size 64
.visible .entry nothing()
{
  ret;
}
.visible .entry tensor_fusion_busy(.param .u64 ns)
{
  ret;
}
.visible .entry count(.param .u64 word)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [word];
  cvta.to.global.u64 %rd2, %rd1;
  atom.global.add.u32 %r1, [%rd2], 1;
  ret;
}
)";

}  // namespace tensor_fusion::programs
