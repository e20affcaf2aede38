#pragma once
// Every symbol of the CUDA driver library that we answer, in one table: the name a program asks for, the name that is
// exported, the CUDA version (1000 * major + 10 * minor) that brought this variant, and which default stream it means
// by stream 0. The simulated driver answers cuGetProcAddress from it; the limiter finds its hooks with it.
//
// TF_CUDA_SYMBOLS(PLAIN, STREAM, BLOCKING) expands to one entry per exported variant:
//   PLAIN(base, exported, version)                     one symbol
//   STREAM(base, exported, version, twin_version)      and exported##_ptsz, the twin for the per-thread default stream
//   BLOCKING(base, exported, version, twin_version)    and exported##_ptds, the twin of a blocking call
// One exported symbol may answer to two names (cuGraphInstantiateWithFlags is also cuGraphInstantiate from 12000 on).
#include <cstddef>

// clang-format off
#define TF_CUDA_SYMBOLS(PLAIN, STREAM, BLOCKING) \
  /* Initialisation and resolution */                                                                                      \
  PLAIN(cuInit, cuInit, 2000)                                                                                              \
  PLAIN(cuDriverGetVersion, cuDriverGetVersion, 2020)                                                                      \
  PLAIN(cuGetErrorString, cuGetErrorString, 6000)                                                                          \
  PLAIN(cuGetErrorName, cuGetErrorName, 6000)                                                                              \
  PLAIN(cuGetProcAddress, cuGetProcAddress, 11030)                                                                         \
  PLAIN(cuGetProcAddress, cuGetProcAddress_v2, 12000)                                                                      \
  PLAIN(cuGetExportTable, cuGetExportTable, 3000)                                                                          \
  /* Devices */                                                                                                            \
  PLAIN(cuDeviceGet, cuDeviceGet, 2000)                                                                                    \
  PLAIN(cuDeviceGetCount, cuDeviceGetCount, 2000)                                                                          \
  PLAIN(cuDeviceGetName, cuDeviceGetName, 2000)                                                                            \
  PLAIN(cuDeviceGetLuid, cuDeviceGetLuid, 10000)                                                                           \
  PLAIN(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000)                                                                  \
  PLAIN(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010)                                                                    \
  PLAIN(cuDeviceGetByPCIBusId, cuDeviceGetByPCIBusId, 4010)                                                                \
  PLAIN(cuDeviceComputeCapability, cuDeviceComputeCapability, 2000)                                                        \
  PLAIN(cuDeviceGetProperties, cuDeviceGetProperties, 2000)                                                                \
  PLAIN(cuDeviceGetTexture1DLinearMaxWidth, cuDeviceGetTexture1DLinearMaxWidth, 11010)                                     \
  PLAIN(cuDeviceGetExecAffinitySupport, cuDeviceGetExecAffinitySupport, 11040)                                             \
  PLAIN(cuDeviceGetNvSciSyncAttributes, cuDeviceGetNvSciSyncAttributes, 10020)                                             \
  PLAIN(cuFlushGPUDirectRDMAWrites, cuFlushGPUDirectRDMAWrites, 11030)                                                     \
  PLAIN(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000)                                                                \
  PLAIN(cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, 8000)                                                            \
  PLAIN(cuDeviceGetHostAtomicCapabilities, cuDeviceGetHostAtomicCapabilities, 13000)                                       \
  PLAIN(cuDeviceGetP2PAtomicCapabilities, cuDeviceGetP2PAtomicCapabilities, 13000)                                         \
  PLAIN(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020)                                                                     \
  PLAIN(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020)                                                                     \
  PLAIN(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020)                                                       \
  PLAIN(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040)                                                                 \
  PLAIN(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040)                                                 \
  PLAIN(cuDeviceSetGraphMemAttribute, cuDeviceSetGraphMemAttribute, 11040)                                                 \
  PLAIN(cuDeviceRegisterAsyncNotification, cuDeviceRegisterAsyncNotification, 12040)                                       \
  PLAIN(cuDeviceUnregisterAsyncNotification, cuDeviceUnregisterAsyncNotification, 12040)                                   \
  PLAIN(cuDeviceGetUuid, cuDeviceGetUuid, 9020)                                                                            \
  PLAIN(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040)                                                                        \
  PLAIN(cuDeviceTotalMem, cuDeviceTotalMem, 2000)                                                                          \
  PLAIN(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020)                                                                       \
  /* Primary contexts */                                                                                                   \
  PLAIN(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)                                                          \
  PLAIN(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000)                                                        \
  PLAIN(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000)                                                    \
  PLAIN(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags, 7000)                                                      \
  PLAIN(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, 11000)                                                  \
  PLAIN(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000)                                                      \
  PLAIN(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000)                                                            \
  PLAIN(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000)                                                        \
  /* Contexts */                                                                                                           \
  PLAIN(cuCtxCreate, cuCtxCreate, 2000)                                                                                    \
  PLAIN(cuCtxCreate, cuCtxCreate_v2, 3020)                                                                                 \
  PLAIN(cuCtxCreate, cuCtxCreate_v3, 11040)                                                                                \
  PLAIN(cuCtxCreate, cuCtxCreate_v4, 12050)                                                                                \
  PLAIN(cuCtxDestroy, cuCtxDestroy, 2000)                                                                                  \
  PLAIN(cuCtxDestroy, cuCtxDestroy_v2, 4000)                                                                               \
  PLAIN(cuCtxAttach, cuCtxAttach, 2000)                                                                                    \
  PLAIN(cuCtxDetach, cuCtxDetach, 2000)                                                                                    \
  PLAIN(cuCtxPushCurrent, cuCtxPushCurrent, 2000)                                                                          \
  PLAIN(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000)                                                                       \
  PLAIN(cuCtxPopCurrent, cuCtxPopCurrent, 2000)                                                                            \
  PLAIN(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000)                                                                         \
  PLAIN(cuCtxSetCurrent, cuCtxSetCurrent, 4000)                                                                            \
  PLAIN(cuCtxGetCurrent, cuCtxGetCurrent, 4000)                                                                            \
  PLAIN(cuCtxGetDevice, cuCtxGetDevice, 2000)                                                                              \
  PLAIN(cuCtxGetDevice, cuCtxGetDevice_v2, 13000)                                                                          \
  PLAIN(cuCtxSynchronize, cuCtxSynchronize, 2000)                                                                          \
  PLAIN(cuCtxSynchronize, cuCtxSynchronize_v2, 13000)                                                                      \
  PLAIN(cuCtxGetFlags, cuCtxGetFlags, 7000)                                                                                \
  PLAIN(cuCtxSetFlags, cuCtxSetFlags, 12010)                                                                               \
  PLAIN(cuCtxGetId, cuCtxGetId, 12000)                                                                                     \
  PLAIN(cuCtxSetLimit, cuCtxSetLimit, 3010)                                                                                \
  PLAIN(cuCtxGetLimit, cuCtxGetLimit, 3010)                                                                                \
  PLAIN(cuCtxGetCacheConfig, cuCtxGetCacheConfig, 3020)                                                                    \
  PLAIN(cuCtxSetCacheConfig, cuCtxSetCacheConfig, 3020)                                                                    \
  PLAIN(cuCtxGetSharedMemConfig, cuCtxGetSharedMemConfig, 4020)                                                            \
  PLAIN(cuCtxSetSharedMemConfig, cuCtxSetSharedMemConfig, 4020)                                                            \
  PLAIN(cuCtxGetApiVersion, cuCtxGetApiVersion, 3020)                                                                      \
  PLAIN(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050)                                                    \
  PLAIN(cuCtxResetPersistingL2Cache, cuCtxResetPersistingL2Cache, 11000)                                                   \
  PLAIN(cuCtxGetExecAffinity, cuCtxGetExecAffinity, 11040)                                                                 \
  PLAIN(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000)                                                                \
  PLAIN(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000)                                                              \
  PLAIN(cuCtxRecordEvent, cuCtxRecordEvent, 12050)                                                                         \
  PLAIN(cuCtxWaitEvent, cuCtxWaitEvent, 12050)                                                                             \
  /* Green contexts */                                                                                                     \
  PLAIN(cuGreenCtxCreate, cuGreenCtxCreate, 12040)                                                                         \
  PLAIN(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040)                                                                       \
  PLAIN(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040)                                                                       \
  PLAIN(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040)                                                             \
  PLAIN(cuCtxGetDevResource, cuCtxGetDevResource, 12040)                                                                   \
  PLAIN(cuGreenCtxGetDevResource, cuGreenCtxGetDevResource, 12040)                                                         \
  PLAIN(cuDevSmResourceSplitByCount, cuDevSmResourceSplitByCount, 12040)                                                   \
  PLAIN(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040)                                                       \
  PLAIN(cuGreenCtxRecordEvent, cuGreenCtxRecordEvent, 12040)                                                               \
  PLAIN(cuGreenCtxWaitEvent, cuGreenCtxWaitEvent, 12040)                                                                   \
  PLAIN(cuStreamGetGreenCtx, cuStreamGetGreenCtx, 12040)                                                                   \
  PLAIN(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050)                                                             \
  PLAIN(cuGreenCtxGetId, cuGreenCtxGetId, 12090)                                                                           \
  /* Modules, libraries, linker */                                                                                         \
  PLAIN(cuModuleLoad, cuModuleLoad, 2000)                                                                                  \
  PLAIN(cuModuleLoadData, cuModuleLoadData, 2000)                                                                          \
  PLAIN(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010)                                                                      \
  PLAIN(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000)                                                                \
  PLAIN(cuModuleUnload, cuModuleUnload, 2000)                                                                              \
  PLAIN(cuModuleGetLoadingMode, cuModuleGetLoadingMode, 11070)                                                             \
  PLAIN(cuModuleGetFunction, cuModuleGetFunction, 2000)                                                                    \
  PLAIN(cuModuleGetFunctionCount, cuModuleGetFunctionCount, 12040)                                                         \
  PLAIN(cuModuleEnumerateFunctions, cuModuleEnumerateFunctions, 12040)                                                     \
  PLAIN(cuModuleGetGlobal, cuModuleGetGlobal, 2000)                                                                        \
  PLAIN(cuModuleGetGlobal, cuModuleGetGlobal_v2, 3020)                                                                     \
  PLAIN(cuModuleGetTexRef, cuModuleGetTexRef, 2000)                                                                        \
  PLAIN(cuModuleGetSurfRef, cuModuleGetSurfRef, 3000)                                                                      \
  PLAIN(cuLinkCreate, cuLinkCreate, 5050)                                                                                  \
  PLAIN(cuLinkCreate, cuLinkCreate_v2, 6050)                                                                               \
  PLAIN(cuLinkAddData, cuLinkAddData, 5050)                                                                                \
  PLAIN(cuLinkAddData, cuLinkAddData_v2, 6050)                                                                             \
  PLAIN(cuLinkAddFile, cuLinkAddFile, 5050)                                                                                \
  PLAIN(cuLinkAddFile, cuLinkAddFile_v2, 6050)                                                                             \
  PLAIN(cuLinkComplete, cuLinkComplete, 5050)                                                                              \
  PLAIN(cuLinkDestroy, cuLinkDestroy, 5050)                                                                                \
  PLAIN(cuLibraryLoadData, cuLibraryLoadData, 12000)                                                                       \
  PLAIN(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000)                                                               \
  PLAIN(cuLibraryUnload, cuLibraryUnload, 12000)                                                                           \
  PLAIN(cuLibraryGetKernel, cuLibraryGetKernel, 12000)                                                                     \
  PLAIN(cuLibraryGetKernelCount, cuLibraryGetKernelCount, 12040)                                                           \
  PLAIN(cuLibraryEnumerateKernels, cuLibraryEnumerateKernels, 12040)                                                       \
  PLAIN(cuLibraryGetModule, cuLibraryGetModule, 12000)                                                                     \
  PLAIN(cuLibraryGetGlobal, cuLibraryGetGlobal, 12000)                                                                     \
  PLAIN(cuLibraryGetManaged, cuLibraryGetManaged, 12000)                                                                   \
  PLAIN(cuLibraryGetUnifiedFunction, cuLibraryGetUnifiedFunction, 12000)                                                   \
  PLAIN(cuKernelGetFunction, cuKernelGetFunction, 12000)                                                                   \
  PLAIN(cuKernelGetLibrary, cuKernelGetLibrary, 12050)                                                                     \
  PLAIN(cuKernelGetAttribute, cuKernelGetAttribute, 12000)                                                                 \
  PLAIN(cuKernelSetAttribute, cuKernelSetAttribute, 12000)                                                                 \
  PLAIN(cuKernelSetCacheConfig, cuKernelSetCacheConfig, 12000)                                                             \
  PLAIN(cuKernelGetName, cuKernelGetName, 12030)                                                                           \
  PLAIN(cuKernelGetParamInfo, cuKernelGetParamInfo, 12040)                                                                 \
  /* Functions and launches */                                                                                             \
  PLAIN(cuFuncGetAttribute, cuFuncGetAttribute, 2020)                                                                      \
  PLAIN(cuFuncSetAttribute, cuFuncSetAttribute, 9000)                                                                      \
  PLAIN(cuFuncSetCacheConfig, cuFuncSetCacheConfig, 3000)                                                                  \
  PLAIN(cuFuncSetSharedMemConfig, cuFuncSetSharedMemConfig, 4020)                                                          \
  PLAIN(cuFuncGetModule, cuFuncGetModule, 11000)                                                                           \
  PLAIN(cuFuncGetName, cuFuncGetName, 12030)                                                                               \
  PLAIN(cuFuncGetParamInfo, cuFuncGetParamInfo, 12040)                                                                     \
  PLAIN(cuFuncIsLoaded, cuFuncIsLoaded, 12040)                                                                             \
  PLAIN(cuFuncLoad, cuFuncLoad, 12040)                                                                                     \
  PLAIN(cuFuncSetBlockShape, cuFuncSetBlockShape, 2000)                                                                    \
  PLAIN(cuFuncSetSharedSize, cuFuncSetSharedSize, 2000)                                                                    \
  PLAIN(cuParamSetSize, cuParamSetSize, 2000)                                                                              \
  PLAIN(cuParamSeti, cuParamSeti, 2000)                                                                                    \
  PLAIN(cuParamSetf, cuParamSetf, 2000)                                                                                    \
  PLAIN(cuParamSetv, cuParamSetv, 2000)                                                                                    \
  PLAIN(cuParamSetTexRef, cuParamSetTexRef, 2000)                                                                          \
  PLAIN(cuLaunch, cuLaunch, 2000)                                                                                          \
  PLAIN(cuLaunchGrid, cuLaunchGrid, 2000)                                                                                  \
  PLAIN(cuLaunchGridAsync, cuLaunchGridAsync, 2000)                                                                        \
  STREAM(cuLaunchKernel, cuLaunchKernel, 4000, 7000)                                                                       \
  STREAM(cuLaunchKernelEx, cuLaunchKernelEx, 11060, 11060)                                                                 \
  STREAM(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, 9000)                                                 \
  PLAIN(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 9000)                                  \
  STREAM(cuLaunchHostFunc, cuLaunchHostFunc, 10000, 10000)                                                                 \
  PLAIN(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050)                    \
  PLAIN(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000)  \
  PLAIN(cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSize, 6050)                                          \
  PLAIN(cuOccupancyMaxPotentialBlockSizeWithFlags, cuOccupancyMaxPotentialBlockSizeWithFlags, 7000)                        \
  PLAIN(cuOccupancyAvailableDynamicSMemPerBlock, cuOccupancyAvailableDynamicSMemPerBlock, 10020)                           \
  PLAIN(cuOccupancyMaxPotentialClusterSize, cuOccupancyMaxPotentialClusterSize, 11070)                                     \
  PLAIN(cuOccupancyMaxActiveClusters, cuOccupancyMaxActiveClusters, 11070)                                                 \
  /* Memory */                                                                                                             \
  PLAIN(cuMemGetInfo, cuMemGetInfo, 2000)                                                                                  \
  PLAIN(cuMemGetInfo, cuMemGetInfo_v2, 3020)                                                                               \
  PLAIN(cuMemAlloc, cuMemAlloc, 2000)                                                                                      \
  PLAIN(cuMemAlloc, cuMemAlloc_v2, 3020)                                                                                   \
  PLAIN(cuMemAllocPitch, cuMemAllocPitch, 2000)                                                                            \
  PLAIN(cuMemAllocPitch, cuMemAllocPitch_v2, 3020)                                                                         \
  PLAIN(cuMemFree, cuMemFree, 2000)                                                                                        \
  PLAIN(cuMemFree, cuMemFree_v2, 3020)                                                                                     \
  PLAIN(cuMemGetAddressRange, cuMemGetAddressRange, 2000)                                                                  \
  PLAIN(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020)                                                               \
  PLAIN(cuMemAllocHost, cuMemAllocHost, 2000)                                                                              \
  PLAIN(cuMemAllocHost, cuMemAllocHost_v2, 3020)                                                                           \
  PLAIN(cuMemFreeHost, cuMemFreeHost, 2000)                                                                                \
  PLAIN(cuMemHostAlloc, cuMemHostAlloc, 2020)                                                                              \
  PLAIN(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer, 2020)                                                        \
  PLAIN(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020)                                                     \
  PLAIN(cuMemHostGetFlags, cuMemHostGetFlags, 2030)                                                                        \
  PLAIN(cuMemHostRegister, cuMemHostRegister, 4000)                                                                        \
  PLAIN(cuMemHostRegister, cuMemHostRegister_v2, 6050)                                                                     \
  PLAIN(cuMemHostUnregister, cuMemHostUnregister, 4000)                                                                    \
  PLAIN(cuMemAllocManaged, cuMemAllocManaged, 6000)                                                                        \
  STREAM(cuMemPrefetchAsync, cuMemPrefetchAsync, 8000, 8000)                                                               \
  STREAM(cuMemPrefetchAsync, cuMemPrefetchAsync_v2, 12020, 12020)                                                          \
  PLAIN(cuMemAdvise, cuMemAdvise, 8000)                                                                                    \
  PLAIN(cuMemAdvise, cuMemAdvise_v2, 12020)                                                                                \
  PLAIN(cuMemRangeGetAttribute, cuMemRangeGetAttribute, 8000)                                                              \
  PLAIN(cuMemRangeGetAttributes, cuMemRangeGetAttributes, 8000)                                                            \
  STREAM(cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync, 13000, 13000)                                                   \
  STREAM(cuMemDiscardBatchAsync, cuMemDiscardBatchAsync, 13000, 13000)                                                     \
  STREAM(cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync, 13000, 13000)                               \
  STREAM(cuStreamAttachMemAsync, cuStreamAttachMemAsync, 6000, 7000)                                                       \
  PLAIN(cuPointerGetAttribute, cuPointerGetAttribute, 4000)                                                                \
  PLAIN(cuPointerGetAttributes, cuPointerGetAttributes, 7000)                                                              \
  PLAIN(cuPointerSetAttribute, cuPointerSetAttribute, 6000)                                                                \
  /* Stream-ordered memory */                                                                                              \
  STREAM(cuMemAllocAsync, cuMemAllocAsync, 11020, 11020)                                                                   \
  STREAM(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 11020)                                                   \
  STREAM(cuMemFreeAsync, cuMemFreeAsync, 11020, 11020)                                                                     \
  PLAIN(cuMemPoolCreate, cuMemPoolCreate, 11020)                                                                           \
  PLAIN(cuMemPoolDestroy, cuMemPoolDestroy, 11020)                                                                         \
  PLAIN(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020)                                                                           \
  PLAIN(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020)                                                               \
  PLAIN(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020)                                                               \
  PLAIN(cuMemPoolSetAccess, cuMemPoolSetAccess, 11020)                                                                     \
  PLAIN(cuMemPoolGetAccess, cuMemPoolGetAccess, 11020)                                                                     \
  PLAIN(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11020)                                         \
  PLAIN(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020)                                     \
  PLAIN(cuMemPoolExportPointer, cuMemPoolExportPointer, 11020)                                                             \
  PLAIN(cuMemPoolImportPointer, cuMemPoolImportPointer, 11020)                                                             \
  PLAIN(cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, 13000)                                                             \
  PLAIN(cuMemGetMemPool, cuMemGetMemPool, 13000)                                                                           \
  PLAIN(cuMemSetMemPool, cuMemSetMemPool, 13000)                                                                           \
  /* Virtual memory management */                                                                                          \
  PLAIN(cuMemAddressReserve, cuMemAddressReserve, 10020)                                                                   \
  PLAIN(cuMemAddressFree, cuMemAddressFree, 10020)                                                                         \
  PLAIN(cuMemCreate, cuMemCreate, 10020)                                                                                   \
  PLAIN(cuMemRelease, cuMemRelease, 10020)                                                                                 \
  PLAIN(cuMemMap, cuMemMap, 10020)                                                                                         \
  PLAIN(cuMemUnmap, cuMemUnmap, 10020)                                                                                     \
  PLAIN(cuMemSetAccess, cuMemSetAccess, 10020)                                                                             \
  PLAIN(cuMemGetAccess, cuMemGetAccess, 10020)                                                                             \
  PLAIN(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020)                                                 \
  PLAIN(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020)                                             \
  PLAIN(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020)                                               \
  PLAIN(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, 10020)                             \
  PLAIN(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000)                                                   \
  PLAIN(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070)                                               \
  STREAM(cuMemMapArrayAsync, cuMemMapArrayAsync, 11010, 11010)                                                             \
  PLAIN(cuMulticastCreate, cuMulticastCreate, 12010)                                                                       \
  PLAIN(cuMulticastAddDevice, cuMulticastAddDevice, 12010)                                                                 \
  PLAIN(cuMulticastBindMem, cuMulticastBindMem, 12010)                                                                     \
  PLAIN(cuMulticastBindAddr, cuMulticastBindAddr, 12010)                                                                   \
  PLAIN(cuMulticastUnbind, cuMulticastUnbind, 12010)                                                                       \
  PLAIN(cuMulticastGetGranularity, cuMulticastGetGranularity, 12010)                                                       \
  /* Inter-process and external memory */                                                                                  \
  PLAIN(cuIpcGetEventHandle, cuIpcGetEventHandle, 4010)                                                                    \
  PLAIN(cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010)                                                                  \
  PLAIN(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010)                                                                        \
  PLAIN(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010)                                                                    \
  PLAIN(cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010)                                                                      \
  PLAIN(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000)                                                                  \
  PLAIN(cuImportExternalMemory, cuImportExternalMemory, 10000)                                                             \
  PLAIN(cuExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedBuffer, 10000)                                           \
  PLAIN(cuExternalMemoryGetMappedMipmappedArray, cuExternalMemoryGetMappedMipmappedArray, 10000)                           \
  PLAIN(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000)                                                           \
  PLAIN(cuImportExternalSemaphore, cuImportExternalSemaphore, 10000)                                                       \
  PLAIN(cuDestroyExternalSemaphore, cuDestroyExternalSemaphore, 10000)                                                     \
  STREAM(cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync, 10000, 10000)                                   \
  STREAM(cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync, 10000, 10000)                                       \
  /* Copies: blocking forms have a _ptds twin, asynchronous ones _ptsz */                                                  \
  BLOCKING(cuMemcpy, cuMemcpy, 4000, 7000)                                                                                 \
  STREAM(cuMemcpyAsync, cuMemcpyAsync, 4000, 7000)                                                                         \
  BLOCKING(cuMemcpyPeer, cuMemcpyPeer, 4000, 7000)                                                                         \
  STREAM(cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000, 7000)                                                                 \
  PLAIN(cuMemcpyHtoD, cuMemcpyHtoD, 2000)                                                                                  \
  BLOCKING(cuMemcpyHtoD, cuMemcpyHtoD_v2, 3020, 7000)                                                                      \
  PLAIN(cuMemcpyDtoH, cuMemcpyDtoH, 2000)                                                                                  \
  BLOCKING(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020, 7000)                                                                      \
  PLAIN(cuMemcpyDtoD, cuMemcpyDtoD, 2000)                                                                                  \
  BLOCKING(cuMemcpyDtoD, cuMemcpyDtoD_v2, 3020, 7000)                                                                      \
  PLAIN(cuMemcpyDtoA, cuMemcpyDtoA, 2000)                                                                                  \
  BLOCKING(cuMemcpyDtoA, cuMemcpyDtoA_v2, 3020, 7000)                                                                      \
  PLAIN(cuMemcpyAtoD, cuMemcpyAtoD, 2000)                                                                                  \
  BLOCKING(cuMemcpyAtoD, cuMemcpyAtoD_v2, 3020, 7000)                                                                      \
  PLAIN(cuMemcpyHtoA, cuMemcpyHtoA, 2000)                                                                                  \
  BLOCKING(cuMemcpyHtoA, cuMemcpyHtoA_v2, 3020, 7000)                                                                      \
  PLAIN(cuMemcpyAtoH, cuMemcpyAtoH, 2000)                                                                                  \
  BLOCKING(cuMemcpyAtoH, cuMemcpyAtoH_v2, 3020, 7000)                                                                      \
  PLAIN(cuMemcpyAtoA, cuMemcpyAtoA, 2000)                                                                                  \
  BLOCKING(cuMemcpyAtoA, cuMemcpyAtoA_v2, 3020, 7000)                                                                      \
  PLAIN(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync, 2000)                                                                        \
  STREAM(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020, 7000)                                                              \
  PLAIN(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync, 2000)                                                                        \
  STREAM(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020, 7000)                                                              \
  PLAIN(cuMemcpyHtoAAsync, cuMemcpyHtoAAsync, 2000)                                                                        \
  STREAM(cuMemcpyHtoAAsync, cuMemcpyHtoAAsync_v2, 3020, 7000)                                                              \
  PLAIN(cuMemcpyAtoHAsync, cuMemcpyAtoHAsync, 2000)                                                                        \
  STREAM(cuMemcpyAtoHAsync, cuMemcpyAtoHAsync_v2, 3020, 7000)                                                              \
  PLAIN(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync, 3000)                                                                        \
  STREAM(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020, 7000)                                                              \
  PLAIN(cuMemcpy2D, cuMemcpy2D, 2000)                                                                                      \
  BLOCKING(cuMemcpy2D, cuMemcpy2D_v2, 3020, 7000)                                                                          \
  PLAIN(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned, 2000)                                                                    \
  BLOCKING(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2, 3020, 7000)                                                        \
  PLAIN(cuMemcpy3D, cuMemcpy3D, 2000)                                                                                      \
  BLOCKING(cuMemcpy3D, cuMemcpy3D_v2, 3020, 7000)                                                                          \
  PLAIN(cuMemcpy2DAsync, cuMemcpy2DAsync, 2000)                                                                            \
  STREAM(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, 3020, 7000)                                                                  \
  PLAIN(cuMemcpy3DAsync, cuMemcpy3DAsync, 2000)                                                                            \
  STREAM(cuMemcpy3DAsync, cuMemcpy3DAsync_v2, 3020, 7000)                                                                  \
  BLOCKING(cuMemcpy3DPeer, cuMemcpy3DPeer, 4000, 7000)                                                                     \
  STREAM(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, 4000, 7000)                                                             \
  STREAM(cuMemcpyBatchAsync, cuMemcpyBatchAsync, 12080, 12080)                                                             \
  STREAM(cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, 13000, 13000)                                                          \
  STREAM(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync, 12080, 12080)                                                         \
  STREAM(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_v2, 13000, 13000)                                                      \
  PLAIN(cuMemsetD8, cuMemsetD8, 2000)                                                                                      \
  BLOCKING(cuMemsetD8, cuMemsetD8_v2, 3020, 7000)                                                                          \
  PLAIN(cuMemsetD16, cuMemsetD16, 2000)                                                                                    \
  BLOCKING(cuMemsetD16, cuMemsetD16_v2, 3020, 7000)                                                                        \
  PLAIN(cuMemsetD32, cuMemsetD32, 2000)                                                                                    \
  BLOCKING(cuMemsetD32, cuMemsetD32_v2, 3020, 7000)                                                                        \
  PLAIN(cuMemsetD2D8, cuMemsetD2D8, 2000)                                                                                  \
  BLOCKING(cuMemsetD2D8, cuMemsetD2D8_v2, 3020, 7000)                                                                      \
  PLAIN(cuMemsetD2D16, cuMemsetD2D16, 2000)                                                                                \
  BLOCKING(cuMemsetD2D16, cuMemsetD2D16_v2, 3020, 7000)                                                                    \
  PLAIN(cuMemsetD2D32, cuMemsetD2D32, 2000)                                                                                \
  BLOCKING(cuMemsetD2D32, cuMemsetD2D32_v2, 3020, 7000)                                                                    \
  STREAM(cuMemsetD8Async, cuMemsetD8Async, 3020, 7000)                                                                     \
  STREAM(cuMemsetD16Async, cuMemsetD16Async, 3020, 7000)                                                                   \
  STREAM(cuMemsetD32Async, cuMemsetD32Async, 3020, 7000)                                                                   \
  STREAM(cuMemsetD2D8Async, cuMemsetD2D8Async, 3020, 7000)                                                                 \
  STREAM(cuMemsetD2D16Async, cuMemsetD2D16Async, 3020, 7000)                                                               \
  STREAM(cuMemsetD2D32Async, cuMemsetD2D32Async, 3020, 7000)                                                               \
  /* Arrays */                                                                                                             \
  PLAIN(cuArrayCreate, cuArrayCreate, 2000)                                                                                \
  PLAIN(cuArrayCreate, cuArrayCreate_v2, 3020)                                                                             \
  PLAIN(cuArrayGetDescriptor, cuArrayGetDescriptor, 2000)                                                                  \
  PLAIN(cuArrayGetDescriptor, cuArrayGetDescriptor_v2, 3020)                                                               \
  PLAIN(cuArray3DCreate, cuArray3DCreate, 2000)                                                                            \
  PLAIN(cuArray3DCreate, cuArray3DCreate_v2, 3020)                                                                         \
  PLAIN(cuArray3DGetDescriptor, cuArray3DGetDescriptor, 2000)                                                              \
  PLAIN(cuArray3DGetDescriptor, cuArray3DGetDescriptor_v2, 3020)                                                           \
  PLAIN(cuArrayDestroy, cuArrayDestroy, 2000)                                                                              \
  PLAIN(cuArrayGetPlane, cuArrayGetPlane, 11020)                                                                           \
  PLAIN(cuArrayGetSparseProperties, cuArrayGetSparseProperties, 11010)                                                     \
  PLAIN(cuArrayGetMemoryRequirements, cuArrayGetMemoryRequirements, 11060)                                                 \
  PLAIN(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000)                                                              \
  PLAIN(cuMipmappedArrayGetLevel, cuMipmappedArrayGetLevel, 5000)                                                          \
  PLAIN(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000)                                                            \
  PLAIN(cuMipmappedArrayGetSparseProperties, cuMipmappedArrayGetSparseProperties, 11010)                                   \
  PLAIN(cuMipmappedArrayGetMemoryRequirements, cuMipmappedArrayGetMemoryRequirements, 11060)                               \
  /* Textures, surfaces, tensor maps */                                                                                    \
  PLAIN(cuTexObjectCreate, cuTexObjectCreate, 5000)                                                                        \
  PLAIN(cuTexObjectDestroy, cuTexObjectDestroy, 5000)                                                                      \
  PLAIN(cuTexObjectGetResourceDesc, cuTexObjectGetResourceDesc, 5000)                                                      \
  PLAIN(cuTexObjectGetTextureDesc, cuTexObjectGetTextureDesc, 5000)                                                        \
  PLAIN(cuTexObjectGetResourceViewDesc, cuTexObjectGetResourceViewDesc, 5000)                                              \
  PLAIN(cuSurfObjectCreate, cuSurfObjectCreate, 5000)                                                                      \
  PLAIN(cuSurfObjectDestroy, cuSurfObjectDestroy, 5000)                                                                    \
  PLAIN(cuSurfObjectGetResourceDesc, cuSurfObjectGetResourceDesc, 5000)                                                    \
  PLAIN(cuTexRefCreate, cuTexRefCreate, 2000)                                                                              \
  PLAIN(cuTexRefDestroy, cuTexRefDestroy, 2000)                                                                            \
  PLAIN(cuTexRefSetAddress, cuTexRefSetAddress, 2000)                                                                      \
  PLAIN(cuTexRefSetAddress, cuTexRefSetAddress_v2, 3020)                                                                   \
  PLAIN(cuTexRefSetAddress2D, cuTexRefSetAddress2D, 2000)                                                                  \
  PLAIN(cuTexRefSetAddress2D, cuTexRefSetAddress2D_v2, 3020)                                                               \
  PLAIN(cuTexRefSetAddress2D, cuTexRefSetAddress2D_v3, 4010)                                                               \
  PLAIN(cuTexRefGetAddress, cuTexRefGetAddress, 2000)                                                                      \
  PLAIN(cuTexRefGetAddress, cuTexRefGetAddress_v2, 3020)                                                                   \
  PLAIN(cuTexRefSetArray, cuTexRefSetArray, 2000)                                                                          \
  PLAIN(cuTexRefGetArray, cuTexRefGetArray, 2000)                                                                          \
  PLAIN(cuTexRefSetAddressMode, cuTexRefSetAddressMode, 2000)                                                              \
  PLAIN(cuTexRefGetAddressMode, cuTexRefGetAddressMode, 2000)                                                              \
  PLAIN(cuTexRefSetFilterMode, cuTexRefSetFilterMode, 2000)                                                                \
  PLAIN(cuTexRefGetFilterMode, cuTexRefGetFilterMode, 2000)                                                                \
  PLAIN(cuTexRefSetFlags, cuTexRefSetFlags, 2000)                                                                          \
  PLAIN(cuTexRefGetFlags, cuTexRefGetFlags, 2000)                                                                          \
  PLAIN(cuTexRefSetFormat, cuTexRefSetFormat, 2000)                                                                        \
  PLAIN(cuTexRefGetFormat, cuTexRefGetFormat, 2000)                                                                        \
  PLAIN(cuTexRefSetMipmappedArray, cuTexRefSetMipmappedArray, 5000)                                                        \
  PLAIN(cuTexRefGetMipmappedArray, cuTexRefGetMipmappedArray, 5000)                                                        \
  PLAIN(cuTexRefSetMipmapFilterMode, cuTexRefSetMipmapFilterMode, 5000)                                                    \
  PLAIN(cuTexRefGetMipmapFilterMode, cuTexRefGetMipmapFilterMode, 5000)                                                    \
  PLAIN(cuTexRefSetMipmapLevelBias, cuTexRefSetMipmapLevelBias, 5000)                                                      \
  PLAIN(cuTexRefGetMipmapLevelBias, cuTexRefGetMipmapLevelBias, 5000)                                                      \
  PLAIN(cuTexRefSetMipmapLevelClamp, cuTexRefSetMipmapLevelClamp, 5000)                                                    \
  PLAIN(cuTexRefGetMipmapLevelClamp, cuTexRefGetMipmapLevelClamp, 5000)                                                    \
  PLAIN(cuTexRefSetMaxAnisotropy, cuTexRefSetMaxAnisotropy, 5000)                                                          \
  PLAIN(cuTexRefGetMaxAnisotropy, cuTexRefGetMaxAnisotropy, 5000)                                                          \
  PLAIN(cuTexRefSetBorderColor, cuTexRefSetBorderColor, 8000)                                                              \
  PLAIN(cuTexRefGetBorderColor, cuTexRefGetBorderColor, 8000)                                                              \
  PLAIN(cuSurfRefSetArray, cuSurfRefSetArray, 3000)                                                                        \
  PLAIN(cuSurfRefGetArray, cuSurfRefGetArray, 3000)                                                                        \
  PLAIN(cuTensorMapEncodeTiled, cuTensorMapEncodeTiled, 12000)                                                             \
  PLAIN(cuTensorMapEncodeIm2col, cuTensorMapEncodeIm2col, 12000)                                                           \
  PLAIN(cuTensorMapEncodeIm2colWide, cuTensorMapEncodeIm2colWide, 12080)                                                   \
  PLAIN(cuTensorMapReplaceAddress, cuTensorMapReplaceAddress, 12000)                                                       \
  /* Streams */                                                                                                            \
  PLAIN(cuStreamCreate, cuStreamCreate, 2000)                                                                              \
  PLAIN(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050)                                                      \
  PLAIN(cuStreamDestroy, cuStreamDestroy, 2000)                                                                            \
  PLAIN(cuStreamDestroy, cuStreamDestroy_v2, 4000)                                                                         \
  STREAM(cuStreamGetPriority, cuStreamGetPriority, 5050, 7000)                                                             \
  STREAM(cuStreamGetFlags, cuStreamGetFlags, 5050, 7000)                                                                   \
  STREAM(cuStreamGetId, cuStreamGetId, 12000, 12000)                                                                       \
  STREAM(cuStreamGetCtx, cuStreamGetCtx, 9020, 9020)                                                                       \
  STREAM(cuStreamGetCtx, cuStreamGetCtx_v2, 12050, 12050)                                                                  \
  STREAM(cuStreamGetDevice, cuStreamGetDevice, 12080, 12080)                                                               \
  STREAM(cuStreamWaitEvent, cuStreamWaitEvent, 3020, 7000)                                                                 \
  STREAM(cuStreamAddCallback, cuStreamAddCallback, 5000, 7000)                                                             \
  STREAM(cuStreamQuery, cuStreamQuery, 2000, 7000)                                                                         \
  STREAM(cuStreamSynchronize, cuStreamSynchronize, 2000, 7000)                                                             \
  STREAM(cuStreamCopyAttributes, cuStreamCopyAttributes, 11000, 11000)                                                     \
  STREAM(cuStreamGetAttribute, cuStreamGetAttribute, 11000, 11000)                                                         \
  STREAM(cuStreamSetAttribute, cuStreamSetAttribute, 11000, 11000)                                                         \
  STREAM(cuStreamWaitValue32, cuStreamWaitValue32, 8000, 8000)                                                             \
  STREAM(cuStreamWaitValue32, cuStreamWaitValue32_v2, 11070, 11070)                                                        \
  STREAM(cuStreamWaitValue64, cuStreamWaitValue64, 9000, 9000)                                                             \
  STREAM(cuStreamWaitValue64, cuStreamWaitValue64_v2, 11070, 11070)                                                        \
  STREAM(cuStreamWriteValue32, cuStreamWriteValue32, 8000, 8000)                                                           \
  STREAM(cuStreamWriteValue32, cuStreamWriteValue32_v2, 11070, 11070)                                                      \
  STREAM(cuStreamWriteValue64, cuStreamWriteValue64, 9000, 9000)                                                           \
  STREAM(cuStreamWriteValue64, cuStreamWriteValue64_v2, 11070, 11070)                                                      \
  STREAM(cuStreamBatchMemOp, cuStreamBatchMemOp, 8000, 8000)                                                               \
  STREAM(cuStreamBatchMemOp, cuStreamBatchMemOp_v2, 11070, 11070)                                                          \
  /* Stream capture */                                                                                                     \
  STREAM(cuStreamBeginCapture, cuStreamBeginCapture, 10000, 10000)                                                         \
  STREAM(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, 10010)                                                      \
  STREAM(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, 12030)                                           \
  STREAM(cuStreamEndCapture, cuStreamEndCapture, 10000, 10000)                                                             \
  STREAM(cuStreamIsCapturing, cuStreamIsCapturing, 10000, 10000)                                                           \
  STREAM(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo, 10010, 10010)                                                     \
  STREAM(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2, 11030, 11030)                                                  \
  STREAM(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v3, 12030, 12030)                                                  \
  STREAM(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies, 11030, 11030)                               \
  STREAM(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_v2, 12030, 12030)                            \
  PLAIN(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010)                                       \
  /* Events */                                                                                                             \
  PLAIN(cuEventCreate, cuEventCreate, 2000)                                                                                \
  PLAIN(cuEventDestroy, cuEventDestroy, 2000)                                                                              \
  PLAIN(cuEventDestroy, cuEventDestroy_v2, 4000)                                                                           \
  STREAM(cuEventRecord, cuEventRecord, 2000, 7000)                                                                         \
  STREAM(cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, 11010)                                                     \
  PLAIN(cuEventQuery, cuEventQuery, 2000)                                                                                  \
  PLAIN(cuEventSynchronize, cuEventSynchronize, 2000)                                                                      \
  PLAIN(cuEventElapsedTime, cuEventElapsedTime, 2000)                                                                      \
  PLAIN(cuEventElapsedTime, cuEventElapsedTime_v2, 12080)                                                                  \
  /* Graphs */                                                                                                             \
  PLAIN(cuGraphCreate, cuGraphCreate, 10000)                                                                               \
  PLAIN(cuGraphDestroy, cuGraphDestroy, 10000)                                                                             \
  PLAIN(cuGraphClone, cuGraphClone, 10000)                                                                                 \
  PLAIN(cuGraphAddKernelNode, cuGraphAddKernelNode, 10000)                                                                 \
  PLAIN(cuGraphAddKernelNode, cuGraphAddKernelNode_v2, 12000)                                                              \
  PLAIN(cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams, 10000)                                                     \
  PLAIN(cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams_v2, 12000)                                                  \
  PLAIN(cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams, 10000)                                                     \
  PLAIN(cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams_v2, 12000)                                                  \
  PLAIN(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000)                                                                 \
  PLAIN(cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeGetParams, 10000)                                                     \
  PLAIN(cuGraphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams, 10000)                                                     \
  PLAIN(cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000)                                                                 \
  PLAIN(cuGraphMemsetNodeGetParams, cuGraphMemsetNodeGetParams, 10000)                                                     \
  PLAIN(cuGraphMemsetNodeSetParams, cuGraphMemsetNodeSetParams, 10000)                                                     \
  PLAIN(cuGraphAddHostNode, cuGraphAddHostNode, 10000)                                                                     \
  PLAIN(cuGraphHostNodeGetParams, cuGraphHostNodeGetParams, 10000)                                                         \
  PLAIN(cuGraphHostNodeSetParams, cuGraphHostNodeSetParams, 10000)                                                         \
  PLAIN(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, 10000)                                                         \
  PLAIN(cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph, 10000)                                               \
  PLAIN(cuGraphAddEmptyNode, cuGraphAddEmptyNode, 10000)                                                                   \
  PLAIN(cuGraphAddEventRecordNode, cuGraphAddEventRecordNode, 11010)                                                       \
  PLAIN(cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeGetEvent, 11010)                                             \
  PLAIN(cuGraphEventRecordNodeSetEvent, cuGraphEventRecordNodeSetEvent, 11010)                                             \
  PLAIN(cuGraphAddEventWaitNode, cuGraphAddEventWaitNode, 11010)                                                           \
  PLAIN(cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeGetEvent, 11010)                                                 \
  PLAIN(cuGraphEventWaitNodeSetEvent, cuGraphEventWaitNodeSetEvent, 11010)                                                 \
  PLAIN(cuGraphAddExternalSemaphoresSignalNode, cuGraphAddExternalSemaphoresSignalNode, 11020)                             \
  PLAIN(cuGraphExternalSemaphoresSignalNodeGetParams, cuGraphExternalSemaphoresSignalNodeGetParams, 11020)                 \
  PLAIN(cuGraphExternalSemaphoresSignalNodeSetParams, cuGraphExternalSemaphoresSignalNodeSetParams, 11020)                 \
  PLAIN(cuGraphAddExternalSemaphoresWaitNode, cuGraphAddExternalSemaphoresWaitNode, 11020)                                 \
  PLAIN(cuGraphExternalSemaphoresWaitNodeGetParams, cuGraphExternalSemaphoresWaitNodeGetParams, 11020)                     \
  PLAIN(cuGraphExternalSemaphoresWaitNodeSetParams, cuGraphExternalSemaphoresWaitNodeSetParams, 11020)                     \
  PLAIN(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040)                                                             \
  PLAIN(cuGraphMemAllocNodeGetParams, cuGraphMemAllocNodeGetParams, 11040)                                                 \
  PLAIN(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040)                                                               \
  PLAIN(cuGraphMemFreeNodeGetParams, cuGraphMemFreeNodeGetParams, 11040)                                                   \
  PLAIN(cuGraphAddBatchMemOpNode, cuGraphAddBatchMemOpNode, 11070)                                                         \
  PLAIN(cuGraphBatchMemOpNodeGetParams, cuGraphBatchMemOpNodeGetParams, 11070)                                             \
  PLAIN(cuGraphBatchMemOpNodeSetParams, cuGraphBatchMemOpNodeSetParams, 11070)                                             \
  PLAIN(cuGraphAddNode, cuGraphAddNode, 12020)                                                                             \
  PLAIN(cuGraphAddNode, cuGraphAddNode_v2, 12030)                                                                          \
  PLAIN(cuGraphNodeSetParams, cuGraphNodeSetParams, 12020)                                                                 \
  PLAIN(cuGraphConditionalHandleCreate, cuGraphConditionalHandleCreate, 12030)                                             \
  PLAIN(cuGraphNodeFindInClone, cuGraphNodeFindInClone, 10000)                                                             \
  PLAIN(cuGraphNodeGetType, cuGraphNodeGetType, 10000)                                                                     \
  PLAIN(cuGraphGetNodes, cuGraphGetNodes, 10000)                                                                           \
  PLAIN(cuGraphGetRootNodes, cuGraphGetRootNodes, 10000)                                                                   \
  PLAIN(cuGraphDestroyNode, cuGraphDestroyNode, 10000)                                                                     \
  PLAIN(cuGraphGetEdges, cuGraphGetEdges, 10000)                                                                           \
  PLAIN(cuGraphGetEdges, cuGraphGetEdges_v2, 12030)                                                                        \
  PLAIN(cuGraphNodeGetDependencies, cuGraphNodeGetDependencies, 10000)                                                     \
  PLAIN(cuGraphNodeGetDependencies, cuGraphNodeGetDependencies_v2, 12030)                                                  \
  PLAIN(cuGraphNodeGetDependentNodes, cuGraphNodeGetDependentNodes, 10000)                                                 \
  PLAIN(cuGraphNodeGetDependentNodes, cuGraphNodeGetDependentNodes_v2, 12030)                                              \
  PLAIN(cuGraphAddDependencies, cuGraphAddDependencies, 10000)                                                             \
  PLAIN(cuGraphAddDependencies, cuGraphAddDependencies_v2, 12030)                                                          \
  PLAIN(cuGraphRemoveDependencies, cuGraphRemoveDependencies, 10000)                                                       \
  PLAIN(cuGraphRemoveDependencies, cuGraphRemoveDependencies_v2, 12030)                                                    \
  PLAIN(cuGraphNodeSetEnabled, cuGraphNodeSetEnabled, 11060)                                                               \
  PLAIN(cuGraphNodeGetEnabled, cuGraphNodeGetEnabled, 11060)                                                               \
  PLAIN(cuGraphKernelNodeCopyAttributes, cuGraphKernelNodeCopyAttributes, 11000)                                           \
  PLAIN(cuGraphKernelNodeGetAttribute, cuGraphKernelNodeGetAttribute, 11000)                                               \
  PLAIN(cuGraphKernelNodeSetAttribute, cuGraphKernelNodeSetAttribute, 11000)                                               \
  PLAIN(cuGraphDebugDotPrint, cuGraphDebugDotPrint, 11030)                                                                 \
  PLAIN(cuUserObjectCreate, cuUserObjectCreate, 11030)                                                                     \
  PLAIN(cuUserObjectRetain, cuUserObjectRetain, 11030)                                                                     \
  PLAIN(cuUserObjectRelease, cuUserObjectRelease, 11030)                                                                   \
  PLAIN(cuGraphRetainUserObject, cuGraphRetainUserObject, 11030)                                                           \
  PLAIN(cuGraphReleaseUserObject, cuGraphReleaseUserObject, 11030)                                                         \
  PLAIN(cuGraphInstantiate, cuGraphInstantiate, 10000)                                                                     \
  PLAIN(cuGraphInstantiate, cuGraphInstantiate_v2, 11000)                                                                  \
  PLAIN(cuGraphInstantiate, cuGraphInstantiateWithFlags, 12000)                                                            \
  PLAIN(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040)                                                   \
  STREAM(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, 12000)                                         \
  PLAIN(cuGraphExecDestroy, cuGraphExecDestroy, 10000)                                                                     \
  PLAIN(cuGraphExecGetFlags, cuGraphExecGetFlags, 12000)                                                                   \
  PLAIN(cuGraphExecUpdate, cuGraphExecUpdate, 10020)                                                                       \
  PLAIN(cuGraphExecUpdate, cuGraphExecUpdate_v2, 12000)                                                                    \
  PLAIN(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams, 10010)                                             \
  PLAIN(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2, 12000)                                          \
  PLAIN(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 10020)                                             \
  PLAIN(cuGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, 10020)                                             \
  PLAIN(cuGraphExecHostNodeSetParams, cuGraphExecHostNodeSetParams, 10020)                                                 \
  PLAIN(cuGraphExecChildGraphNodeSetParams, cuGraphExecChildGraphNodeSetParams, 11010)                                     \
  PLAIN(cuGraphExecEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent, 11010)                                     \
  PLAIN(cuGraphExecEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent, 11010)                                         \
  PLAIN(cuGraphExecExternalSemaphoresSignalNodeSetParams, cuGraphExecExternalSemaphoresSignalNodeSetParams, 11020)         \
  PLAIN(cuGraphExecExternalSemaphoresWaitNodeSetParams, cuGraphExecExternalSemaphoresWaitNodeSetParams, 11020)             \
  PLAIN(cuGraphExecBatchMemOpNodeSetParams, cuGraphExecBatchMemOpNodeSetParams, 11070)                                     \
  PLAIN(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 12020)                                                         \
  STREAM(cuGraphUpload, cuGraphUpload, 11010, 11010)                                                                       \
  STREAM(cuGraphLaunch, cuGraphLaunch, 10000, 10000)                                                                       \
  /* Graphics interoperation */                                                                                            \
  PLAIN(cuGraphicsUnregisterResource, cuGraphicsUnregisterResource, 3000)                                                  \
  PLAIN(cuGraphicsSubResourceGetMappedArray, cuGraphicsSubResourceGetMappedArray, 3000)                                    \
  PLAIN(cuGraphicsResourceGetMappedMipmappedArray, cuGraphicsResourceGetMappedMipmappedArray, 5000)                        \
  PLAIN(cuGraphicsResourceGetMappedPointer, cuGraphicsResourceGetMappedPointer, 3000)                                      \
  PLAIN(cuGraphicsResourceGetMappedPointer, cuGraphicsResourceGetMappedPointer_v2, 3020)                                   \
  PLAIN(cuGraphicsResourceSetMapFlags, cuGraphicsResourceSetMapFlags, 3000)                                                \
  PLAIN(cuGraphicsResourceSetMapFlags, cuGraphicsResourceSetMapFlags_v2, 6050)                                             \
  STREAM(cuGraphicsMapResources, cuGraphicsMapResources, 3000, 7000)                                                       \
  STREAM(cuGraphicsUnmapResources, cuGraphicsUnmapResources, 3000, 7000)                                                   \
  PLAIN(cuGraphicsGLRegisterBuffer, cuGraphicsGLRegisterBuffer, 3000)                                                      \
  PLAIN(cuGraphicsGLRegisterImage, cuGraphicsGLRegisterImage, 3000)                                                        \
  PLAIN(cuGLGetDevices, cuGLGetDevices, 4010)                                                                              \
  PLAIN(cuGLGetDevices, cuGLGetDevices_v2, 6050)                                                                           \
  PLAIN(cuGLCtxCreate, cuGLCtxCreate, 2000)                                                                                \
  PLAIN(cuGLCtxCreate, cuGLCtxCreate_v2, 3020)                                                                             \
  PLAIN(cuGLInit, cuGLInit, 2000)                                                                                          \
  PLAIN(cuGraphicsEGLRegisterImage, cuGraphicsEGLRegisterImage, 7000)                                                      \
  PLAIN(cuEGLStreamConsumerConnect, cuEGLStreamConsumerConnect, 7000)                                                      \
  PLAIN(cuEGLStreamConsumerConnectWithFlags, cuEGLStreamConsumerConnectWithFlags, 8000)                                    \
  PLAIN(cuEGLStreamConsumerDisconnect, cuEGLStreamConsumerDisconnect, 7000)                                                \
  PLAIN(cuEGLStreamConsumerAcquireFrame, cuEGLStreamConsumerAcquireFrame, 7000)                                            \
  PLAIN(cuEGLStreamConsumerReleaseFrame, cuEGLStreamConsumerReleaseFrame, 7000)                                            \
  PLAIN(cuEGLStreamProducerConnect, cuEGLStreamProducerConnect, 7000)                                                      \
  PLAIN(cuEGLStreamProducerDisconnect, cuEGLStreamProducerDisconnect, 7000)                                                \
  PLAIN(cuEGLStreamProducerPresentFrame, cuEGLStreamProducerPresentFrame, 7000)                                            \
  PLAIN(cuEGLStreamProducerReturnFrame, cuEGLStreamProducerReturnFrame, 7000)                                              \
  PLAIN(cuGraphicsResourceGetMappedEglFrame, cuGraphicsResourceGetMappedEglFrame, 7000)                                    \
  PLAIN(cuEventCreateFromEGLSync, cuEventCreateFromEGLSync, 9000)                                                          \
  PLAIN(cuVDPAUGetDevice, cuVDPAUGetDevice, 3010)                                                                          \
  PLAIN(cuVDPAUCtxCreate, cuVDPAUCtxCreate, 3010)                                                                          \
  PLAIN(cuVDPAUCtxCreate, cuVDPAUCtxCreate_v2, 3020)                                                                       \
  PLAIN(cuGraphicsVDPAURegisterVideoSurface, cuGraphicsVDPAURegisterVideoSurface, 3010)                                    \
  PLAIN(cuGraphicsVDPAURegisterOutputSurface, cuGraphicsVDPAURegisterOutputSurface, 3010)                                  \
  /* Profiler, core dumps, logs, checkpoints */                                                                            \
  PLAIN(cuProfilerInitialize, cuProfilerInitialize, 4000)                                                                  \
  PLAIN(cuProfilerStart, cuProfilerStart, 4000)                                                                            \
  PLAIN(cuProfilerStop, cuProfilerStop, 4000)                                                                              \
  PLAIN(cuCoredumpGetAttribute, cuCoredumpGetAttribute, 12010)                                                             \
  PLAIN(cuCoredumpGetAttributeGlobal, cuCoredumpGetAttributeGlobal, 12010)                                                 \
  PLAIN(cuCoredumpSetAttribute, cuCoredumpSetAttribute, 12010)                                                             \
  PLAIN(cuCoredumpSetAttributeGlobal, cuCoredumpSetAttributeGlobal, 12010)                                                 \
  PLAIN(cuLogsRegisterCallback, cuLogsRegisterCallback, 12090)                                                             \
  PLAIN(cuLogsUnregisterCallback, cuLogsUnregisterCallback, 12090)                                                         \
  PLAIN(cuLogsCurrent, cuLogsCurrent, 12090)                                                                               \
  PLAIN(cuLogsDumpToFile, cuLogsDumpToFile, 12090)                                                                         \
  PLAIN(cuLogsDumpToMemory, cuLogsDumpToMemory, 12090)                                                                     \
  PLAIN(cuCheckpointProcessLock, cuCheckpointProcessLock, 12080)                                                           \
  PLAIN(cuCheckpointProcessCheckpoint, cuCheckpointProcessCheckpoint, 12080)                                               \
  PLAIN(cuCheckpointProcessRestore, cuCheckpointProcessRestore, 12080)                                                     \
  PLAIN(cuCheckpointProcessUnlock, cuCheckpointProcessUnlock, 12080)                                                       \
  PLAIN(cuCheckpointProcessGetState, cuCheckpointProcessGetState, 12080)                                                   \
  PLAIN(cuCheckpointProcessGetRestoreThreadId, cuCheckpointProcessGetRestoreThreadId, 12080)

// clang-format on

namespace tensor_fusion::cuda {

enum class StreamFlavour { kPlain, kPtsz, kPtds };

struct CudaSymbol {
  const char* base;      // what cuGetProcAddress is asked for
  const char* exported;  // what dlsym is asked for
  int version;
  StreamFlavour flavour;
};

#define TF_PLAIN(base, exported, version) {#base, #exported, version, StreamFlavour::kPlain},
#define TF_STREAM(base, exported, version, twin) \
  {#base, #exported, version, StreamFlavour::kPlain}, {#base, #exported "_ptsz", twin, StreamFlavour::kPtsz},
#define TF_BLOCKING(base, exported, version, twin) \
  {#base, #exported, version, StreamFlavour::kPlain}, {#base, #exported "_ptds", twin, StreamFlavour::kPtds},
inline constexpr CudaSymbol kCudaSymbols[] = {TF_CUDA_SYMBOLS(TF_PLAIN, TF_STREAM, TF_BLOCKING)};
#undef TF_PLAIN
#undef TF_STREAM
#undef TF_BLOCKING

inline constexpr std::size_t kCudaSymbolCount = sizeof(kCudaSymbols) / sizeof(kCudaSymbols[0]);
inline constexpr int kCudaTableVersion = 13000;  // the newest driver this table describes

}  // namespace tensor_fusion::cuda
