// Streams: making, asking, waiting.
#include "sim/cuda/capture.h"
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/green_context.h"
#include "sim/cuda/pool.h"
#include "sim/cuda/stream.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr int kLowestPriority = 0, kHighestPriority = -5;

CUresult create(const char* symbol, CUstream* out, unsigned flags, int priority) {
  Context* context = nullptr;
  TF_TRY(enter(symbol, {}, context));
  if (out == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const auto green = current_green()) return green->add_stream(flags, clamped_priority(priority), *out);
  auto stream =
      std::make_shared<Stream>(context->shared_from_this(), Stream::Role::created, flags, clamped_priority(priority));
  stream->handle_value = streams().insert(stream);
  if (stream->handle_value == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  context->add_stream(stream);
  *out = as_handle<CUstream>(stream->handle_value);
  return CUDA_SUCCESS;
}

CUresult destroy(CUstream handle) {
  TF_TRY(enter("cuStreamDestroy"));
  const auto stream = streams().share(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  TF_TRY(forbid_capture(*stream));
  streams().remove(handle);
  stream->context().remove_stream(stream.get());  // what is queued still runs: its queue and lane live on in it
  return CUDA_SUCCESS;
}

// The stream, or nothing and the error, for questions that do not touch the device.
CUresult ask(const char* symbol, CUstream handle, Flavour flavour, const void* out, Stream*& stream) {
  TF_TRY(enter(symbol));
  TF_TRY(find_stream(handle, flavour, stream));
  return out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

int clamped_priority(int wish) { return std::clamp(wish, kHighestPriority, kLowestPriority); }

TF_API(cuStreamCreate, (CUstream * out, unsigned flags)) { return create("cuStreamCreate", out, flags, 0); }
TF_API(cuStreamCreateWithPriority, (CUstream * out, unsigned flags, int priority)) {
  return create("cuStreamCreateWithPriority", out, flags, priority);
}
TF_API(cuStreamDestroy_v2, (CUstream handle)) { return destroy(handle); }
TF_API(cuStreamDestroy, (CUstream handle)) { return destroy(handle); }

TF_STREAM_API(cuStreamGetPriority, (CUstream handle, int* out), {
  Stream* stream = nullptr;
  TF_TRY(ask("cuStreamGetPriority", handle, kFlavour, out, stream));
  *out = stream->priority;
  return CUDA_SUCCESS;
})
TF_STREAM_API(cuStreamGetFlags, (CUstream handle, unsigned* out), {
  Stream* stream = nullptr;
  TF_TRY(ask("cuStreamGetFlags", handle, kFlavour, out, stream));
  *out = stream->flags;
  return CUDA_SUCCESS;
})
TF_STREAM_API(cuStreamGetId, (CUstream handle, unsigned long long* out), {
  Stream* stream = nullptr;
  TF_TRY(ask("cuStreamGetId", handle, kFlavour, out, stream));
  *out = stream->id;
  return CUDA_SUCCESS;
})
TF_STREAM_API(cuStreamGetCtx, (CUstream handle, CUcontext* out), {
  Stream* stream = nullptr;
  TF_TRY(ask("cuStreamGetCtx", handle, kFlavour, out, stream));
  *out = stream->green ? stream->green->as_context() : stream->context().handle();
  return CUDA_SUCCESS;
})
TF_STREAM_API(cuStreamGetCtx_v2, (CUstream handle, CUcontext* out, CUgreenCtx* green), {
  Stream* stream = nullptr;
  TF_TRY(ask("cuStreamGetCtx", handle, kFlavour, out, stream));
  // Of a green context's stream only that one is told.
  *out = stream->green ? nullptr : stream->context().handle();
  if (green != nullptr) *green = as_handle<CUgreenCtx>(stream->green ? stream->green->handle_value : 0);
  return CUDA_SUCCESS;
})
TF_STREAM_API(cuStreamGetDevice, (CUstream handle, CUdevice* out), {
  Stream* stream = nullptr;
  TF_TRY(ask("cuStreamGetDevice", handle, kFlavour, out, stream));
  *out = stream->context().device().ordinal;
  return CUDA_SUCCESS;
})

TF_STREAM_API(cuStreamQuery, (CUstream handle), {
  TF_TRY(enter("cuStreamQuery", "sync"));
  Stream* stream = nullptr;
  TF_TRY(find_stream(handle, kFlavour, stream));
  TF_TRY(forbid_capture(*stream));
  TF_TRY(check_capture_conflict(*stream));
  return stream->query();
})

TF_STREAM_API(cuStreamSynchronize, (CUstream handle), {
  TF_TRY(enter("cuStreamSynchronize", "sync"));
  Stream* stream = nullptr;
  TF_TRY(find_stream(handle, kFlavour, stream));
  TF_TRY(forbid_capture(*stream));
  TF_TRY(check_capture_conflict(*stream));
  const CUresult result = stream->synchronize();
  if (result == CUDA_SUCCESS) Pool::trim_all(stream->context().device());
  return result;
})

TF_STREAM_API(cuStreamCopyAttributes, (CUstream to, CUstream from), {
  Stream* stream = nullptr;
  TF_TRY(ask("cuStreamCopyAttributes", to, kFlavour, &stream, stream));
  return find_stream(from, kFlavour, stream);
})

// Access-policy windows and synchronisation policies are hints: remembered nowhere, read back as their default.
TF_STREAM_API(cuStreamGetAttribute, (CUstream handle, CUlaunchAttributeID attribute, CUlaunchAttributeValue* out), {
  Stream* stream = nullptr;
  TF_TRY(ask("cuStreamGetAttribute", handle, kFlavour, out, stream));
  *out = {};
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      out->priority = stream->priority;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      out->word = 1;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
})
TF_STREAM_API(cuStreamSetAttribute,
              (CUstream handle, CUlaunchAttributeID attribute, const CUlaunchAttributeValue* value), {
                Stream* stream = nullptr;
                TF_TRY(ask("cuStreamSetAttribute", handle, kFlavour, value, stream));
                switch (attribute) {
                  case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
                  case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
                  case CU_LAUNCH_ATTRIBUTE_PRIORITY:
                  case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
                  case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
                    return CUDA_SUCCESS;
                  default:
                    return CUDA_ERROR_INVALID_VALUE;
                }
              })

TF_API(cuCtxGetStreamPriorityRange, (int* least, int* greatest)) {
  Context* context = nullptr;
  TF_TRY(enter("cuCtxGetStreamPriorityRange", {}, context));
  if (least != nullptr) *least = kLowestPriority;
  if (greatest != nullptr) *greatest = kHighestPriority;
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
