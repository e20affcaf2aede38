// Names and descriptions of result codes.
#include "sim/cuda/abi.h"

namespace tensor_fusion::sim::cuda {
namespace {

struct Text {
  CUresult code;
  const char* name;
  const char* what;
};

#define TF_CODE(name, what) {name, #name, what}
constexpr Text kTexts[] = {
    TF_CODE(CUDA_SUCCESS, "no error"),
    TF_CODE(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    TF_CODE(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    TF_CODE(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    TF_CODE(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    TF_CODE(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled while using external profiling tool"),
    TF_CODE(CUDA_ERROR_PROFILER_NOT_INITIALIZED, "profiler not initialized"),
    TF_CODE(CUDA_ERROR_PROFILER_ALREADY_STARTED, "profiler already started"),
    TF_CODE(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped"),
    TF_CODE(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    TF_CODE(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    TF_CODE(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    TF_CODE(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    TF_CODE(CUDA_ERROR_DEVICE_NOT_LICENSED, "device doesn't have valid Grid license"),
    TF_CODE(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    TF_CODE(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    TF_CODE(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current"),
    TF_CODE(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    TF_CODE(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed"),
    TF_CODE(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped"),
    TF_CODE(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped"),
    TF_CODE(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    TF_CODE(CUDA_ERROR_ALREADY_ACQUIRED, "resource already acquired"),
    TF_CODE(CUDA_ERROR_NOT_MAPPED, "resource not mapped"),
    TF_CODE(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "resource not mapped as array"),
    TF_CODE(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "resource not mapped as pointer"),
    TF_CODE(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    TF_CODE(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture"),
    TF_CODE(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "exclusive-thread device already in use by a different thread"),
    TF_CODE(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    TF_CODE(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    TF_CODE(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid OpenGL or DirectX context"),
    TF_CODE(CUDA_ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution"),
    TF_CODE(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "PTX JIT compiler library not found"),
    TF_CODE(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain."),
    TF_CODE(CUDA_ERROR_JIT_COMPILATION_DISABLED, "PTX JIT compilation was disabled"),
    TF_CODE(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "the provided execution affinity is not supported"),
    TF_CODE(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC, "the provided PTX contains unsupported call to cudaDeviceSynchronize"),
    TF_CODE(CUDA_ERROR_CONTAINED, "Invalid access error which has been contained"),
    TF_CODE(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid"),
    TF_CODE(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    TF_CODE(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found"),
    TF_CODE(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object initialization failed"),
    TF_CODE(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    TF_CODE(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    TF_CODE(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    TF_CODE(CUDA_ERROR_LOSSY_QUERY, "attempted introspection would be semantically lossy"),
    TF_CODE(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    TF_CODE(CUDA_ERROR_NOT_READY, "device not ready"),
    TF_CODE(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    TF_CODE(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    TF_CODE(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    TF_CODE(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, "launch uses incompatible texturing mode"),
    TF_CODE(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    TF_CODE(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    TF_CODE(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process"),
    TF_CODE(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    TF_CODE(CUDA_ERROR_ASSERT, "device-side assert triggered"),
    TF_CODE(CUDA_ERROR_TOO_MANY_PEERS, "peer mapping resources exhausted"),
    TF_CODE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped"),
    TF_CODE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    TF_CODE(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    TF_CODE(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    TF_CODE(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    TF_CODE(CUDA_ERROR_INVALID_ADDRESS_SPACE, "operation not supported on global/shared address space"),
    TF_CODE(CUDA_ERROR_INVALID_PC, "invalid program counter"),
    TF_CODE(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    TF_CODE(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"),
    TF_CODE(CUDA_ERROR_TENSOR_MEMORY_LEAK, "tensor memory not completely freed"),
    TF_CODE(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    TF_CODE(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    TF_CODE(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    TF_CODE(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination"),
    TF_CODE(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "forward compatibility was attempted on non supported HW"),
    TF_CODE(CUDA_ERROR_MPS_CONNECTION_FAILED,
            "MPS client failed to connect to the MPS control daemon or the MPS server"),
    TF_CODE(CUDA_ERROR_MPS_RPC_FAILURE, "the remote procedural call between the MPS server and the MPS client failed"),
    TF_CODE(CUDA_ERROR_MPS_SERVER_NOT_READY, "MPS server is not ready to accept new MPS client requests"),
    TF_CODE(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
            "the hardware resources required to create MPS client have been exhausted"),
    TF_CODE(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
            "the hardware resources required to device connections have been exhausted"),
    TF_CODE(CUDA_ERROR_MPS_CLIENT_TERMINATED, "the MPS client has been terminated by the server"),
    TF_CODE(CUDA_ERROR_CDP_NOT_SUPPORTED, "the module uses device-side launches, which are not supported"),
    TF_CODE(CUDA_ERROR_CDP_VERSION_MISMATCH, "the module was linked with another version of device-side launches"),
    TF_CODE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    TF_CODE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    TF_CODE(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
    TF_CODE(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    TF_CODE(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    TF_CODE(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    TF_CODE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
            "operation would make the legacy stream depend on a capturing blocking stream"),
    TF_CODE(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
    TF_CODE(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
            "attempt to terminate a thread-local capture sequence from another thread"),
    TF_CODE(CUDA_ERROR_TIMEOUT, "wait operation timed out"),
    TF_CODE(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
            "the graph update was not performed because it included changes which violated constraints"),
    TF_CODE(CUDA_ERROR_EXTERNAL_DEVICE, "an async error has occured in external entity outside of CUDA"),
    TF_CODE(CUDA_ERROR_INVALID_CLUSTER_SIZE, "a kernel launch error has occurred due to cluster misconfiguration"),
    TF_CODE(CUDA_ERROR_FUNCTION_NOT_LOADED, "the function handle is not loaded"),
    TF_CODE(CUDA_ERROR_INVALID_RESOURCE_TYPE, "the resource type is not valid for the operation"),
    TF_CODE(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "the resource configuration is not valid"),
    TF_CODE(CUDA_ERROR_KEY_ROTATION, "the operation failed while an encryption key was exchanged"),
    TF_CODE(CUDA_ERROR_UNKNOWN, "unknown error"),
};

const Text* find(CUresult code) {
  for (const Text& text : kTexts)
    if (text.code == code) return &text;
  return nullptr;
}

}  // namespace

TF_API(cuGetErrorString, (CUresult code, const char** out)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Text* text = find(code);
  *out = text != nullptr ? text->what : nullptr;
  return text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

TF_API(cuGetErrorName, (CUresult code, const char** out)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Text* text = find(code);
  *out = text != nullptr ? text->name : nullptr;
  return text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tensor_fusion::sim::cuda
