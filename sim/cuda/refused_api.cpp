// What this driver does not have: each of these exists, answers NOT_SUPPORTED, and says so once in the log.
#include <mutex>
#include <set>
#include <string>

#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {

CUresult refuse_once(std::string_view what) {
  static std::mutex mutex;
  static auto* const said = new std::set<std::string, std::less<>>;
  const std::lock_guard lock(mutex);
  if (said->emplace(what).second) log_line(std::string(what) + ": not supported by this driver");
  return CUDA_ERROR_NOT_SUPPORTED;
}

// Arguments are not looked at: in the C calling convention of x86-64 and arm64 a callee may ignore them.
#define TF_REFUSE(name) \
  TF_API(name, ()) { return refuse_once(#name); }
#define TF_REFUSE_STREAM(name) TF_REFUSE(name) TF_REFUSE(name##_ptsz)

TF_REFUSE(cuDeviceGetNvSciSyncAttributes)
TF_REFUSE(cuFlushGPUDirectRDMAWrites)
TF_REFUSE(cuDeviceRegisterAsyncNotification)
TF_REFUSE(cuDeviceUnregisterAsyncNotification)

TF_REFUSE(cuModuleGetTexRef)
TF_REFUSE(cuModuleGetSurfRef)
TF_REFUSE(cuParamSetTexRef)
TF_REFUSE(cuLaunchCooperativeKernelMultiDevice)

TF_REFUSE(cuTexRefCreate)
TF_REFUSE(cuTexRefDestroy)
TF_REFUSE(cuTexRefSetAddress)
TF_REFUSE(cuTexRefSetAddress_v2)
TF_REFUSE(cuTexRefSetAddress2D)
TF_REFUSE(cuTexRefSetAddress2D_v2)
TF_REFUSE(cuTexRefSetAddress2D_v3)
TF_REFUSE(cuTexRefGetAddress)
TF_REFUSE(cuTexRefGetAddress_v2)
TF_REFUSE(cuTexRefSetArray)
TF_REFUSE(cuTexRefGetArray)
TF_REFUSE(cuTexRefSetAddressMode)
TF_REFUSE(cuTexRefGetAddressMode)
TF_REFUSE(cuTexRefSetFilterMode)
TF_REFUSE(cuTexRefGetFilterMode)
TF_REFUSE(cuTexRefSetFlags)
TF_REFUSE(cuTexRefGetFlags)
TF_REFUSE(cuTexRefSetFormat)
TF_REFUSE(cuTexRefGetFormat)
TF_REFUSE(cuTexRefSetMipmappedArray)
TF_REFUSE(cuTexRefGetMipmappedArray)
TF_REFUSE(cuTexRefSetMipmapFilterMode)
TF_REFUSE(cuTexRefGetMipmapFilterMode)
TF_REFUSE(cuTexRefSetMipmapLevelBias)
TF_REFUSE(cuTexRefGetMipmapLevelBias)
TF_REFUSE(cuTexRefSetMipmapLevelClamp)
TF_REFUSE(cuTexRefGetMipmapLevelClamp)
TF_REFUSE(cuTexRefSetMaxAnisotropy)
TF_REFUSE(cuTexRefGetMaxAnisotropy)
TF_REFUSE(cuTexRefSetBorderColor)
TF_REFUSE(cuTexRefGetBorderColor)
TF_REFUSE(cuSurfRefSetArray)
TF_REFUSE(cuSurfRefGetArray)

TF_REFUSE(cuGraphAddExternalSemaphoresSignalNode)
TF_REFUSE(cuGraphExternalSemaphoresSignalNodeGetParams)
TF_REFUSE(cuGraphExternalSemaphoresSignalNodeSetParams)
TF_REFUSE(cuGraphAddExternalSemaphoresWaitNode)
TF_REFUSE(cuGraphExternalSemaphoresWaitNodeGetParams)
TF_REFUSE(cuGraphExternalSemaphoresWaitNodeSetParams)
TF_REFUSE(cuGraphExecExternalSemaphoresSignalNodeSetParams)
TF_REFUSE(cuGraphExecExternalSemaphoresWaitNodeSetParams)

TF_REFUSE(cuGraphicsUnregisterResource)
TF_REFUSE(cuGraphicsSubResourceGetMappedArray)
TF_REFUSE(cuGraphicsResourceGetMappedMipmappedArray)
TF_REFUSE(cuGraphicsResourceGetMappedPointer)
TF_REFUSE(cuGraphicsResourceGetMappedPointer_v2)
TF_REFUSE(cuGraphicsResourceSetMapFlags)
TF_REFUSE(cuGraphicsResourceSetMapFlags_v2)
TF_REFUSE(cuGraphicsGLRegisterBuffer)
TF_REFUSE(cuGraphicsGLRegisterImage)
TF_REFUSE(cuGLGetDevices)
TF_REFUSE(cuGLGetDevices_v2)
TF_REFUSE(cuGLCtxCreate)
TF_REFUSE(cuGLCtxCreate_v2)
TF_REFUSE(cuGLInit)
TF_REFUSE(cuGraphicsEGLRegisterImage)
TF_REFUSE(cuEGLStreamConsumerConnect)
TF_REFUSE(cuEGLStreamConsumerConnectWithFlags)
TF_REFUSE(cuEGLStreamConsumerDisconnect)
TF_REFUSE(cuEGLStreamConsumerAcquireFrame)
TF_REFUSE(cuEGLStreamConsumerReleaseFrame)
TF_REFUSE(cuEGLStreamProducerConnect)
TF_REFUSE(cuEGLStreamProducerDisconnect)
TF_REFUSE(cuEGLStreamProducerPresentFrame)
TF_REFUSE(cuEGLStreamProducerReturnFrame)
TF_REFUSE(cuGraphicsResourceGetMappedEglFrame)
TF_REFUSE(cuEventCreateFromEGLSync)
TF_REFUSE(cuVDPAUGetDevice)
TF_REFUSE(cuVDPAUCtxCreate)
TF_REFUSE(cuVDPAUCtxCreate_v2)
TF_REFUSE(cuGraphicsVDPAURegisterVideoSurface)
TF_REFUSE(cuGraphicsVDPAURegisterOutputSurface)

TF_REFUSE(cuLogsRegisterCallback)
TF_REFUSE(cuLogsUnregisterCallback)
TF_REFUSE(cuLogsCurrent)
TF_REFUSE(cuLogsDumpToFile)
TF_REFUSE(cuLogsDumpToMemory)

TF_REFUSE_STREAM(cuGraphicsMapResources)
TF_REFUSE_STREAM(cuGraphicsUnmapResources)

// From before CUDA 3.2: what these hand out has no address of 32 bits.
TF_REFUSE(cuModuleGetGlobal)
TF_REFUSE(cuMemHostGetDevicePointer)

}  // namespace tensor_fusion::sim::cuda
