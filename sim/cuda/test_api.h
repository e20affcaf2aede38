#pragma once
// For this room's tests and benchmarks, which link the driver in: the functions they call. Written apart from the
// definitions on purpose, as a program's own header would be.
#include "contract/cuda.h"
#include "contract/cuda_resource.h"

namespace tensor_fusion::cuda {

extern "C" {
CUresult cuInit(unsigned);
CUresult cuDriverGetVersion(int*);
CUresult cuGetErrorName(CUresult, const char**);
CUresult cuGetProcAddress_v2(const char*, void**, int, std::uint64_t, CUdriverProcAddressQueryResult*);
CUresult cuDeviceGet(CUdevice*, int);
CUresult cuDeviceGetCount(int*);
CUresult cuDeviceGetName(char*, int, CUdevice);
CUresult cuDeviceGetUuid_v2(CUuuid*, CUdevice);
CUresult cuDeviceGetAttribute(int*, int, CUdevice);
CUresult cuDeviceTotalMem_v2(std::size_t*, CUdevice);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool*, CUdevice);
CUresult cuDeviceGraphMemTrim(CUdevice);
CUresult cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuCtxCreate_v2(CUcontext*, unsigned, CUdevice);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxGetCurrent(CUcontext*);
CUresult cuCtxSynchronize();
CUresult cuModuleLoadData(CUmodule*, const void*);
CUresult cuModuleLoadDataEx(CUmodule*, const void*, unsigned, CUjit_option*, void**);
CUresult cuModuleUnload(CUmodule);
CUresult cuModuleGetFunction(CUfunction*, CUmodule, const char*);
CUresult cuModuleGetGlobal_v2(CUdeviceptr*, std::size_t*, CUmodule, const char*);
CUresult cuLibraryLoadData(CUlibrary*, const void*, CUjit_option*, void**, unsigned, int*, void**, unsigned);
CUresult cuLibraryGetKernel(CUkernel*, CUlibrary, const char*);
CUresult cuLibraryUnload(CUlibrary);
CUresult cuFuncSetBlockShape(CUfunction, int, int, int);
CUresult cuParamSetv(CUfunction, int, void*, unsigned);
CUresult cuParamSetSize(CUfunction, unsigned);
CUresult cuLaunch(CUfunction);
CUresult cuLaunchGrid(CUfunction, int, int);
CUresult cuLaunchGridAsync(CUfunction, int, int, CUstream);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                        void**, void**);
CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                             void**, void**);
CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction, void**, void**);
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig*, CUfunction, void**, void**);
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   CUstream, void**);
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                        unsigned, CUstream, void**);
CUresult cuLaunchHostFunc(CUstream, CUhostFn, void*);
CUresult cuStreamAddCallback(CUstream, CUstreamCallback, void*, unsigned);
CUresult cuMemGetInfo_v2(std::size_t*, std::size_t*);
CUresult cuMemAlloc_v2(CUdeviceptr*, std::size_t);
CUresult cuMemAllocPitch_v2(CUdeviceptr*, std::size_t*, std::size_t, std::size_t, unsigned);
CUresult cuMemAllocManaged(CUdeviceptr*, std::size_t, unsigned);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemHostAlloc(void**, std::size_t, unsigned);
CUresult cuMemFreeHost(void*);
CUresult cuMemAllocAsync(CUdeviceptr*, std::size_t, CUstream);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr*, std::size_t, CUstream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr*, std::size_t, CUmemoryPool, CUstream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr*, std::size_t, CUmemoryPool, CUstream);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr, CUstream);
CUresult cuMemPoolCreate(CUmemoryPool*, const CUmemPoolProps*);
CUresult cuMemPoolDestroy(CUmemoryPool);
CUresult cuMemPoolSetAccess(CUmemoryPool, const CUmemAccessDesc*, std::size_t);
CUresult cuMemPoolGetAccess(CUmemAccess_flags*, CUmemoryPool, CUmemLocation*);
CUresult cuMemGetDefaultMemPool(CUmemoryPool*, CUmemLocation*, CUmemAllocationType);
CUresult cuMemGetMemPool(CUmemoryPool*, CUmemLocation*, CUmemAllocationType);
CUresult cuMemSetMemPool(CUmemLocation*, CUmemAllocationType, CUmemoryPool);
CUresult cuMemPoolTrimTo(CUmemoryPool, std::size_t);
CUresult cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute, void*);
CUresult cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void*);
CUresult cuMemGetAllocationGranularity(std::size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags);
CUresult cuMemAddressReserve(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long);
CUresult cuMemAddressFree(CUdeviceptr, std::size_t);
CUresult cuMemCreate(CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*, unsigned long long);
CUresult cuMemRelease(CUmemGenericAllocationHandle);
CUresult cuMemMap(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, std::size_t);
CUresult cuMemSetAccess(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t);
CUresult cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                      unsigned long long);
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle*, void*);
CUresult cuArrayCreate_v2(CUarray*, const CUDA_ARRAY_DESCRIPTOR*);
CUresult cuArray3DCreate_v2(CUarray*, const CUDA_ARRAY3D_DESCRIPTOR*);
CUresult cuArrayDestroy(CUarray);
CUresult cuMipmappedArrayCreate(CUmipmappedArray*, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned);
CUresult cuMipmappedArrayDestroy(CUmipmappedArray);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, std::size_t);
CUresult cuMemcpyDtoH_v2(void*, CUdeviceptr, std::size_t);
CUresult cuMemcpyDtoD_v2(CUdeviceptr, CUdeviceptr, std::size_t);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, std::size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, std::size_t, CUstream);
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, std::size_t);
CUresult cuMemsetD32_v2(CUdeviceptr, unsigned, std::size_t);
CUresult cuMemsetD32Async(CUdeviceptr, unsigned, std::size_t, CUstream);
CUresult cuPointerGetAttribute(void*, CUpointer_attribute, CUdeviceptr);
CUresult cuIpcGetMemHandle(CUipcMemHandle*, CUdeviceptr);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr*, CUipcMemHandle, unsigned);
CUresult cuIpcCloseMemHandle(CUdeviceptr);
CUresult cuIpcGetEventHandle(CUipcEventHandle*, CUevent);
CUresult cuIpcOpenEventHandle(CUevent*, CUipcEventHandle);
CUresult cuStreamCreate(CUstream*, unsigned);
CUresult cuStreamCreateWithPriority(CUstream*, unsigned, int);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamQuery(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, std::uint32_t, unsigned);
CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr, std::uint32_t, unsigned);
CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
CUresult cuStreamEndCapture(CUstream, CUgraph*);
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus*);
CUresult cuEventCreate(CUevent*, unsigned);
CUresult cuEventDestroy_v2(CUevent);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventQuery(CUevent);
CUresult cuEventSynchronize(CUevent);
CUresult cuEventElapsedTime(float*, CUevent, CUevent);
CUresult cuGraphCreate(CUgraph*, unsigned);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphClone(CUgraph*, CUgraph);
CUresult cuGraphAddKernelNode_v2(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                                 const CUDA_KERNEL_NODE_PARAMS*);
CUresult cuGraphAddMemcpyNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CUDA_MEMCPY3D*, CUcontext);
CUresult cuGraphAddMemsetNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CUDA_MEMSET_NODE_PARAMS*,
                              CUcontext);
CUresult cuGraphAddHostNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CUDA_HOST_NODE_PARAMS*);
CUresult cuGraphAddChildGraphNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraph);
CUresult cuGraphAddMemAllocNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUDA_MEM_ALLOC_NODE_PARAMS*);
CUresult cuGraphAddMemFreeNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUdeviceptr);
CUresult cuGraphGetNodes(CUgraph, CUgraphNode*, std::size_t*);
CUresult cuGraphInstantiateWithFlags(CUgraphExec*, CUgraph, unsigned long long);
CUresult cuGraphInstantiate_v2(CUgraphExec*, CUgraph, CUgraphNode*, char*, std::size_t);
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*);
CUresult cuGraphExecUpdate_v2(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuGraphUpload(CUgraphExec, CUstream);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphLaunch_ptsz(CUgraphExec, CUstream);
CUresult cuGetProcAddress(const char*, void**, int, std::uint64_t);
CUresult cuGetErrorString(CUresult, const char**);
CUresult cuGetExportTable(const void**, const CUuuid*);
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned*, int*);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuCtxPushCurrent_v2(CUcontext);
CUresult cuProfilerInitialize(const char*, const char*, int);
CUresult cuProfilerStart();
CUresult cuProfilerStop();
CUresult cuCtxPopCurrent_v2(CUcontext*);
CUresult cuCtxGetDevice(CUdevice*);
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned);
CUresult cuCtxGetStreamPriorityRange(int*, int*);
CUresult cuDeviceCanAccessPeer(int*, CUdevice, CUdevice);
CUresult cuFuncGetAttribute(int*, CUfunction_attribute, CUfunction);
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int*, CUfunction, int, std::size_t);
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D*);
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D*);
CUresult cuMemcpyPeer(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, std::size_t);
CUresult cuMemHostRegister_v2(void*, std::size_t, unsigned);
CUresult cuMemHostUnregister(void*);
CUresult cuMemGetAddressRange_v2(CUdeviceptr*, std::size_t*, CUdeviceptr);
CUresult cuMemsetD2D16_v2(CUdeviceptr, std::size_t, unsigned short, std::size_t, std::size_t);
CUresult cuStreamGetPriority(CUstream, int*);
CUresult cuLinkCreate_v2(unsigned, CUjit_option*, void**, CUlinkState*);
CUresult cuLinkAddData_v2(CUlinkState, CUjitInputType, void*, std::size_t, const char*, unsigned, CUjit_option*,
                          void**);
CUresult cuLinkAddFile_v2(CUlinkState, CUjitInputType, const char*, unsigned, CUjit_option*, void**);
CUresult cuLinkComplete(CUlinkState, void**, std::size_t*);
CUresult cuLinkDestroy(CUlinkState);
CUresult cuGraphInstantiate(CUgraphExec*, CUgraph, CUgraphNode*, char*, std::size_t);
CUresult cuGraphNodeFindInClone(CUgraphNode*, CUgraphNode, CUgraph);
CUresult cuGraphNodeSetEnabled(CUgraphExec, CUgraphNode, unsigned);
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode*, const CUgraphNode*, std::size_t);
CUresult cuDeviceGetGraphMemAttribute(CUdevice, CUgraphMem_attribute, void*);
CUresult cuCheckpointProcessLock(int, CUcheckpointLockArgs*);
CUresult cuCheckpointProcessCheckpoint(int, CUcheckpointCheckpointArgs*);
CUresult cuCheckpointProcessRestore(int, CUcheckpointRestoreArgs*);
CUresult cuCheckpointProcessUnlock(int, CUcheckpointUnlockArgs*);
CUresult cuCheckpointProcessGetState(int, CUprocessState*);
CUresult cuGraphicsUnregisterResource(void*);
CUresult cuDeviceGetDevResource(CUdevice, CUdevResource*, CUdevResourceType);
CUresult cuCtxGetDevResource(CUcontext, CUdevResource*, CUdevResourceType);
CUresult cuGreenCtxGetDevResource(CUgreenCtx, CUdevResource*, CUdevResourceType);
CUresult cuDevSmResourceSplitByCount(CUdevResource*, unsigned*, const CUdevResource*, CUdevResource*, unsigned,
                                     unsigned);
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc*, CUdevResource*, unsigned);
CUresult cuGreenCtxCreate(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned);
CUresult cuGreenCtxDestroy(CUgreenCtx);
CUresult cuCtxFromGreenCtx(CUcontext*, CUgreenCtx);
CUresult cuGreenCtxStreamCreate(CUstream*, CUgreenCtx, unsigned, int);
CUresult cuGreenCtxRecordEvent(CUgreenCtx, CUevent);
CUresult cuGreenCtxWaitEvent(CUgreenCtx, CUevent);
CUresult cuCtxRecordEvent(CUcontext, CUevent);
CUresult cuCtxWaitEvent(CUcontext, CUevent);
CUresult cuStreamGetGreenCtx(CUstream, CUgreenCtx*);
CUresult cuStreamGetCtx(CUstream, CUcontext*);
CUresult cuMemAdvise_v2(CUdeviceptr, std::size_t, CUmem_advise, CUmemLocation);
CUresult cuMemPrefetchAsync_v2(CUdeviceptr, std::size_t, CUmemLocation, unsigned, CUstream);
CUresult cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, std::uint64_t*, CUgraph*, const CUgraphNode**,
                                   std::size_t*);
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*);
CUresult cuStreamWaitEvent_ptsz(CUstream, CUevent, unsigned);
CUresult cuUserObjectCreate(CUuserObject*, void*, CUhostFn, unsigned, unsigned);
CUresult cuGraphRetainUserObject(CUgraph, CUuserObject, unsigned, unsigned);
CUresult cuGraphNodeGetType(CUgraphNode, CUgraphNodeType*);
CUresult cuGraphAddNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraphNodeParams*);
CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle*, CUgraph, CUcontext, unsigned, unsigned);
CUresult cuGraphInstantiateWithParams(CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*);
CUresult cuStreamBeginCaptureToGraph(CUstream, CUgraph, const CUgraphNode*, const CUgraphEdgeData*, std::size_t,
                                     CUstreamCaptureMode);
CUresult cuGraphAddNode_v2(CUgraphNode*, CUgraph, const CUgraphNode*, const CUgraphEdgeData*, std::size_t,
                           CUgraphNodeParams*);
CUresult cuGraphAddDependencies_v2(CUgraph, const CUgraphNode*, const CUgraphNode*, const CUgraphEdgeData*,
                                   std::size_t);
CUresult cuGraphRemoveDependencies(CUgraph, const CUgraphNode*, const CUgraphNode*, std::size_t);
CUresult cuGraphRemoveDependencies_v2(CUgraph, const CUgraphNode*, const CUgraphNode*, const CUgraphEdgeData*,
                                      std::size_t);
CUresult cuGraphGetEdges(CUgraph, CUgraphNode*, CUgraphNode*, std::size_t*);
CUresult cuGraphGetEdges_v2(CUgraph, CUgraphNode*, CUgraphNode*, CUgraphEdgeData*, std::size_t*);
CUresult cuGraphNodeGetDependencies(CUgraphNode, CUgraphNode*, std::size_t*);
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode, CUgraphNode*, CUgraphEdgeData*, std::size_t*);
CUresult cuGraphAddEmptyNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t);
CUresult cuGraphAddEventRecordNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUevent);
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode, CUgraph*);
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec, CUgraphNode, CUgraph);
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D*, CUcontext);
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec, CUgraphNode, const CUDA_MEMSET_NODE_PARAMS*, CUcontext);
CUresult cuGraphExecHostNodeSetParams(CUgraphExec, CUgraphNode, const CUDA_HOST_NODE_PARAMS*);
CUresult cuDeviceSetGraphMemAttribute(CUdevice, CUgraphMem_attribute, void*);
CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR*, CUarray);
CUresult cuMipmappedArrayGetLevel(CUarray*, CUmipmappedArray, unsigned);
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER*);
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER*, CUstream);
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D*, CUstream);
CUresult cuMemcpyHtoA_v2(CUarray, std::size_t, const void*, std::size_t);
CUresult cuMemcpyAtoH_v2(void*, CUarray, std::size_t, std::size_t);
CUresult cuMemcpyBatchAsync_v2(const CUdeviceptr*, const CUdeviceptr*, const std::size_t*, std::size_t,
                               const CUmemcpyAttributes*, const std::size_t*, std::size_t, CUstream);
CUresult cuMemcpyBatchAsync(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*, std::size_t*,
                            std::size_t, std::size_t*, CUstream);
CUresult cuMemcpy3DBatchAsync_v2(std::size_t, const CUDA_MEMCPY3D_BATCH_OP*, std::uint64_t, CUstream);
CUresult cuTexObjectCreate(CUtexObject*, const CUDA_RESOURCE_DESC*, const void*, const void*);
CUresult cuTexObjectDestroy(CUtexObject);
CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC*, CUtexObject);
CUresult cuTexObjectGetTextureDesc(void*, CUtexObject);
CUresult cuTexObjectGetResourceViewDesc(void*, CUtexObject);
CUresult cuSurfObjectCreate(CUsurfObject*, const CUDA_RESOURCE_DESC*);
CUresult cuSurfObjectDestroy(CUsurfObject);
CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC*, CUsurfObject);
}

}  // namespace tensor_fusion::cuda
