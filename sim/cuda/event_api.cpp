// Events: making, recording, waiting, timing.
#include "sim/cuda/capture.h"
#include "sim/cuda/command.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/event.h"

namespace tensor_fusion::sim::cuda {
namespace {

CUresult record(const char* symbol, Flavour flavour, CUevent handle, CUstream stream_handle, unsigned flags) {
  TF_TRY(enter(symbol));
  if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  TF_TRY(find_stream(stream_handle, flavour, stream));
  const auto event = events().share(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (&event->context() != &stream->context()) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(stream->mutex());
  if (stream->capturing && flags == CU_EVENT_RECORD_DEFAULT) return capture_record(*stream, event);
  if (stream->capturing) return capture_command(*stream, std::make_shared<const RecordCommand>(RecordCommand{event}));
  TF_TRY(check_capture_conflict(*stream));
  {
    const std::lock_guard event_lock(event->capture_mutex);
    event->captured_in.reset();
    event->captured_after.clear();
  }
  return event->record(*stream);
}

CUresult destroy(CUevent handle) {
  TF_TRY(enter("cuEventDestroy"));
  return events().remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult check_not_captured(Event& event) {
  const std::lock_guard lock(event.capture_mutex);
  const auto capture = event.captured_in.lock();
  if (!capture) return CUDA_SUCCESS;
  capture->invalid = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult elapsed(float* out, CUevent start, CUevent end) {
  TF_TRY(enter("cuEventElapsedTime"));
  const auto first = events().share(start), second = events().share(end);
  if (!first || !second) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Event::elapsed_ms(*first, *second, *out);
}

}  // namespace

TF_API(cuEventCreate, (CUevent * out, unsigned flags)) {
  Context* context = nullptr;
  TF_TRY(enter("cuEventCreate", {}, context));
  if (out == nullptr || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  auto event = std::make_shared<Event>(context->shared_from_this(), flags);
  event->handle_value = events().insert(event);
  if (event->handle_value == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = as_handle<CUevent>(event->handle_value);
  return CUDA_SUCCESS;
}
TF_API(cuEventDestroy_v2, (CUevent handle)) { return destroy(handle); }
TF_API(cuEventDestroy, (CUevent handle)) { return destroy(handle); }

TF_STREAM_API(cuEventRecord, (CUevent event, CUstream stream),
              { return record("cuEventRecord", kFlavour, event, stream, 0); })
TF_STREAM_API(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags),
              { return record("cuEventRecordWithFlags", kFlavour, event, stream, flags); })

TF_STREAM_API(cuStreamWaitEvent, (CUstream stream_handle, CUevent handle, unsigned flags), {
  TF_TRY(enter("cuStreamWaitEvent"));
  if ((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  TF_TRY(find_stream(stream_handle, kFlavour, stream));
  const auto event = events().share(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(stream->mutex());
  if (stream->capturing && (flags & CU_EVENT_WAIT_EXTERNAL) != 0)
    return capture_command(*stream, std::make_shared<const WaitCommand>(WaitCommand{event}));
  bool captured = false;
  TF_TRY(capture_wait(*stream, event, captured));
  return captured ? CUDA_SUCCESS : event->make_wait(*stream);
})

TF_API(cuEventQuery, (CUevent handle)) {
  TF_TRY(enter("cuEventQuery", "sync"));
  const auto event = events().share(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  TF_TRY(check_not_captured(*event));
  TF_TRY(check_capture_unsafe());
  return event->query();
}

TF_API(cuEventSynchronize, (CUevent handle)) {
  TF_TRY(enter("cuEventSynchronize", "sync"));
  const auto event = events().share(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  TF_TRY(check_not_captured(*event));
  TF_TRY(check_capture_unsafe());
  return event->synchronize();
}

TF_API(cuEventElapsedTime, (float* out, CUevent start, CUevent end)) { return elapsed(out, start, end); }
TF_API(cuEventElapsedTime_v2, (float* out, CUevent start, CUevent end)) { return elapsed(out, start, end); }

}  // namespace tensor_fusion::sim::cuda
