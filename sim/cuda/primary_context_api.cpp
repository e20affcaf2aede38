// The primary context of each device: shared by everybody in the process who retains it.
#include "sim/cuda/context.h"
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {
namespace {

CUresult release(CUdevice ordinal) {
  TF_TRY(enter("cuDevicePrimaryCtxRelease"));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  return device->release_primary();
}

CUresult reset(CUdevice ordinal) {
  TF_TRY(enter("cuDevicePrimaryCtxReset"));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  return device->reset_primary();
}

CUresult set_flags(CUdevice ordinal, unsigned flags) {
  TF_TRY(enter("cuDevicePrimaryCtxSetFlags"));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
  return device->set_primary_flags(flags);
}

}  // namespace

TF_API(cuDevicePrimaryCtxRetain, (CUcontext * out, CUdevice ordinal)) {
  TF_TRY(enter("cuDevicePrimaryCtxRetain"));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  std::shared_ptr<Context> context;
  TF_TRY(device->retain_primary(context));
  *out = context->handle();
  return CUDA_SUCCESS;
}
TF_API(cuDevicePrimaryCtxRelease, (CUdevice device)) { return release(device); }
TF_API(cuDevicePrimaryCtxRelease_v2, (CUdevice device)) { return release(device); }
TF_API(cuDevicePrimaryCtxReset, (CUdevice device)) { return reset(device); }
TF_API(cuDevicePrimaryCtxReset_v2, (CUdevice device)) { return reset(device); }
TF_API(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned flags)) { return set_flags(device, flags); }
TF_API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned flags)) { return set_flags(device, flags); }
TF_API(cuDevicePrimaryCtxGetState, (CUdevice ordinal, unsigned* flags, int* active)) {
  TF_TRY(enter("cuDevicePrimaryCtxGetState"));
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  *flags = device->primary_flags();
  *active = device->primary() != nullptr;
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
