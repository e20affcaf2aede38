// Created contexts and the thread's stack of them.
#include "sim/cuda/capture.h"
#include "sim/cuda/context.h"
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/event.h"
#include "sim/cuda/green_context.h"
#include "sim/cuda/pool.h"
#include "sim/cuda/stream.h"

namespace tensor_fusion::sim::cuda {
namespace {

CUresult create(CUcontext* out, unsigned flags, CUdevice ordinal) {
  TF_TRY(enter("cuCtxCreate"));
  if (out == nullptr || (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
  const unsigned sched = flags & CU_CTX_SCHED_MASK;
  if (sched != 0 && (sched & (sched - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  std::shared_ptr<Context> context;
  TF_TRY(Context::create(*device, flags | CU_CTX_MAP_HOST, false, 0, context));
  push_current(context->handle());
  *out = context->handle();
  return CUDA_SUCCESS;
}

CUresult destroy(CUcontext handle) {
  TF_TRY(enter("cuCtxDestroy"));
  const auto context = contexts().share(handle);
  if (!context || context->primary()) return CUDA_ERROR_INVALID_CONTEXT;
  if (current_handle() == handle) {
    CUcontext popped = nullptr;
    (void)pop_current(popped);
  }
  context->destroy();
  return CUDA_SUCCESS;
}

CUresult push(CUcontext handle) {
  TF_TRY(enter("cuCtxPushCurrent"));
  if (contexts().find(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  push_current(handle);
  return CUDA_SUCCESS;
}

CUresult pop(CUcontext* out) {
  TF_TRY(enter("cuCtxPopCurrent"));
  CUcontext popped = nullptr;
  if (!pop_current(popped)) return CUDA_ERROR_INVALID_CONTEXT;
  if (out != nullptr) *out = popped;
  return CUDA_SUCCESS;
}

// The named context, or the current one for null.
CUresult named_or_current(const char* symbol, CUcontext handle, Context*& context, std::string_view site = {}) {
  if (handle == nullptr) return enter(symbol, site, context);
  TF_TRY(enter(symbol, site));
  context = contexts().find(handle);
  return context != nullptr ? check_context(*context) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult synchronize(CUcontext handle) {
  Context* context = nullptr;
  TF_TRY(named_or_current("cuCtxSynchronize", handle, context, "sync"));
  TF_TRY(check_capture_unsafe());
  for (const auto& stream : context->streams()) TF_TRY(forbid_capture(*stream));
  if (const auto green = handle != nullptr ? green_of(handle) : current_green()) {
    for (const auto& stream : green->streams()) TF_TRY(stream->synchronize());
    return CUDA_SUCCESS;
  }
  TF_TRY(context->synchronize());
  Pool::trim_all(context->device());
  return CUDA_SUCCESS;
}

}  // namespace

TF_API(cuCtxCreate_v2, (CUcontext * out, unsigned flags, CUdevice device)) { return create(out, flags, device); }
TF_API(cuCtxCreate, (CUcontext * out, unsigned flags, CUdevice device)) { return create(out, flags, device); }
TF_API(cuCtxCreate_v3, (CUcontext * out, CUexecAffinityParam* affinity, int count, unsigned flags, CUdevice device)) {
  if (count < 0 || (count > 0 && affinity == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (count > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(out, flags, device);
}
TF_API(cuCtxCreate_v4, (CUcontext * out, CUctxCreateParams* params, unsigned flags, CUdevice device)) {
  if (params != nullptr && params->cigParams != nullptr) return refuse_once("cuCtxCreate for graphics");
  if (params != nullptr && params->numExecAffinityParams > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(out, flags, device);
}
TF_API(cuCtxDestroy_v2, (CUcontext handle)) { return destroy(handle); }
TF_API(cuCtxDestroy, (CUcontext handle)) { return destroy(handle); }

TF_API(cuCtxAttach, (CUcontext * out, unsigned flags)) {
  Context* context = nullptr;
  TF_TRY(enter("cuCtxAttach", {}, context));
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  ++context->attach_count;
  *out = context->handle();
  return CUDA_SUCCESS;
}
TF_API(cuCtxDetach, (CUcontext handle)) {
  TF_TRY(enter("cuCtxDetach"));
  Context* context = contexts().find(handle);
  if (context == nullptr || handle != current_handle()) return CUDA_ERROR_INVALID_CONTEXT;
  return --context->attach_count == 0 ? destroy(handle) : CUDA_SUCCESS;
}

TF_API(cuCtxPushCurrent_v2, (CUcontext handle)) { return push(handle); }
TF_API(cuCtxPushCurrent, (CUcontext handle)) { return push(handle); }
TF_API(cuCtxPopCurrent_v2, (CUcontext * out)) { return pop(out); }
TF_API(cuCtxPopCurrent, (CUcontext * out)) { return pop(out); }
TF_API(cuCtxSetCurrent, (CUcontext handle)) {
  TF_TRY(enter("cuCtxSetCurrent"));
  if (handle != nullptr && contexts().find(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  set_current(handle);
  return CUDA_SUCCESS;
}
TF_API(cuCtxGetCurrent, (CUcontext * out)) {
  TF_TRY(enter("cuCtxGetCurrent"));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = current_handle();
  return CUDA_SUCCESS;
}

TF_API(cuCtxGetDevice, (CUdevice * out)) {
  TF_TRY(enter("cuCtxGetDevice"));
  Context* context = current_context();
  if (context == nullptr)
    return current_handle() != nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = context->device().ordinal;
  return CUDA_SUCCESS;
}
TF_API(cuCtxGetDevice_v2, (CUdevice * out, CUcontext handle)) {
  Context* context = nullptr;
  TF_TRY(named_or_current("cuCtxGetDevice", handle, context));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = context->device().ordinal;
  return CUDA_SUCCESS;
}
TF_API(cuCtxSynchronize, ()) { return synchronize(nullptr); }
TF_API(cuCtxSynchronize_v2, (CUcontext handle)) { return synchronize(handle); }

TF_API(cuCtxGetFlags, (unsigned* out)) {
  Context* context = nullptr;
  TF_TRY(enter("cuCtxGetFlags", {}, context));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = context->flags;
  return CUDA_SUCCESS;
}
TF_API(cuCtxSetFlags, (unsigned flags)) {
  Context* context = nullptr;
  TF_TRY(enter("cuCtxSetFlags", {}, context));
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags;
  return CUDA_SUCCESS;
}
TF_API(cuCtxGetId, (CUcontext handle, unsigned long long* out)) {
  Context* context = nullptr;
  TF_TRY(named_or_current("cuCtxGetId", handle, context));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = context->id();
  return CUDA_SUCCESS;
}
TF_API(cuCtxGetApiVersion, (CUcontext handle, unsigned* out)) {
  Context* context = nullptr;
  TF_TRY(named_or_current("cuCtxGetApiVersion", handle, context));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = 3020;
  return CUDA_SUCCESS;
}

TF_API(cuCtxSetLimit, (CUlimit limit, std::size_t value)) {
  Context* context = nullptr;
  TF_TRY(enter("cuCtxSetLimit", {}, context));
  if (limit < 0 || limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE && context->device().profile().capability_major < 8)
    return CUDA_ERROR_UNSUPPORTED_LIMIT;
  context->limits[static_cast<std::size_t>(limit)] = value;
  return CUDA_SUCCESS;
}
TF_API(cuCtxGetLimit, (std::size_t* out, CUlimit limit)) {
  Context* context = nullptr;
  TF_TRY(enter("cuCtxGetLimit", {}, context));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit < 0 || limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *out = context->limits[static_cast<std::size_t>(limit)];
  return CUDA_SUCCESS;
}

namespace {
CUresult setting(const char* symbol, std::atomic<int> Context::* member, int* out, int value, int most) {
  Context* context = nullptr;
  TF_TRY(enter(symbol, {}, context));
  if (out != nullptr) {
    *out = context->*member;
    return CUDA_SUCCESS;
  }
  if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
  context->*member = value;
  return CUDA_SUCCESS;
}
}  // namespace

TF_API(cuCtxGetCacheConfig, (int* out)) {
  return out == nullptr ? CUDA_ERROR_INVALID_VALUE : setting("cuCtxGetCacheConfig", &Context::cache_config, out, 0, 0);
}
TF_API(cuCtxSetCacheConfig, (int value)) {
  return setting("cuCtxSetCacheConfig", &Context::cache_config, nullptr, value, 3);
}
TF_API(cuCtxGetSharedMemConfig, (int* out)) {
  return out == nullptr ? CUDA_ERROR_INVALID_VALUE
                        : setting("cuCtxGetSharedMemConfig", &Context::shared_config, out, 0, 0);
}
TF_API(cuCtxSetSharedMemConfig, (int value)) {
  return setting("cuCtxSetSharedMemConfig", &Context::shared_config, nullptr, value, 2);
}
TF_API(cuCtxResetPersistingL2Cache, ()) {
  Context* context = nullptr;
  return enter("cuCtxResetPersistingL2Cache", {}, context);
}
TF_API(cuCtxGetExecAffinity, (CUexecAffinityParam*, int)) {
  Context* context = nullptr;
  TF_TRY(enter("cuCtxGetExecAffinity", {}, context));
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

TF_API(cuCtxEnablePeerAccess, (CUcontext handle, unsigned flags)) {
  Context* context = nullptr;
  TF_TRY(enter("cuCtxEnablePeerAccess", {}, context));
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* peer = contexts().find(handle);
  if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->device().is_mig() || context->device().is_mig()) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return context->enable_peer(*peer);
}
TF_API(cuCtxDisablePeerAccess, (CUcontext handle)) {
  Context* context = nullptr;
  TF_TRY(enter("cuCtxDisablePeerAccess", {}, context));
  Context* peer = contexts().find(handle);
  if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return context->disable_peer(*peer);
}

}  // namespace tensor_fusion::sim::cuda
