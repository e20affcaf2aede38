// Device resources (sets of multiprocessors) and green contexts made of them; events over all of a context's streams.
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/event.h"
#include "sim/cuda/green_context.h"
#include "sim/cuda/multiprocessors.h"
#include "sim/cuda/stream.h"

namespace tensor_fusion::sim::cuda {
namespace {

// What a resource description names. The API has no call that gives one back.
struct Description {
  static constexpr HandleKind kHandleKind = HandleKind::resource_description;
  Multiprocessors part;
};
HandleTable<Description>& descriptions() {
  static auto* table = new HandleTable<Description>;
  return *table;
}

CUresult find_green(const char* symbol, CUgreenCtx handle, std::shared_ptr<GreenContext>& green) {
  TF_TRY(enter(symbol));
  green = green_contexts().share(handle);
  if (!green) return CUDA_ERROR_INVALID_CONTEXT;
  return check_context(green->context());
}

CUresult answer(CUdevResource* out, CUdevResourceType type, const Multiprocessors& part) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *out = part.as_resource();
  return CUDA_SUCCESS;
}

using Streams = std::vector<std::shared_ptr<Stream>>;

CUresult refuse_capturing(const Streams& streams) {
  for (const auto& stream : streams)
    if (stream->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return CUDA_SUCCESS;
}

// The event stands for all that the streams have been given so far. It is recorded beside them: none waits for it.
CUresult record_behind(Context& context, const Streams& streams, CUevent handle) {
  const auto event = events().share(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (!event->belongs_to(context)) return CUDA_ERROR_INVALID_HANDLE;
  TF_TRY(refuse_capturing(streams));
  std::vector<StreamPoint> points;
  for (const auto& stream : streams) points.push_back(stream->here());
  const auto beside = context.branches(1).front();
  const std::lock_guard lock(beside->mutex());
  beside->wait_for(points);
  return event->record(*beside);
}

CUresult wait_before(const Streams& streams, CUevent handle) {
  const auto event = events().share(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  TF_TRY(refuse_capturing(streams));
  for (const auto& stream : streams) {
    const std::lock_guard lock(stream->mutex());
    TF_TRY(event->make_wait(*stream));
  }
  return CUDA_SUCCESS;
}

// The context that the handle names, and the streams that are its own: of a green one its part's, else the others.
CUresult find_streams(const char* symbol, CUcontext handle, Context*& context, Streams& streams) {
  TF_TRY(enter(symbol));
  context = contexts().find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  TF_TRY(check_context(*context));
  if (const auto green = green_of(handle)) {
    streams = green->streams();
    return CUDA_SUCCESS;
  }
  streams = context->streams();
  std::erase_if(streams, [](const auto& each) { return each->green != nullptr; });
  return CUDA_SUCCESS;
}

}  // namespace

TF_API(cuDeviceGetDevResource, (CUdevice ordinal, CUdevResource* out, CUdevResourceType type)) {
  TF_TRY(enter("cuDeviceGetDevResource"));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  return answer(out, type, Multiprocessors::all_of(*device));
}
TF_API(cuCtxGetDevResource, (CUcontext handle, CUdevResource* out, CUdevResourceType type)) {
  TF_TRY(enter("cuCtxGetDevResource"));
  const Context* context = contexts().find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const auto green = green_of(handle);
  return answer(out, type, green ? green->part() : Multiprocessors::all_of(context->device()));
}
TF_API(cuGreenCtxGetDevResource, (CUgreenCtx handle, CUdevResource* out, CUdevResourceType type)) {
  std::shared_ptr<GreenContext> green;
  TF_TRY(find_green("cuGreenCtxGetDevResource", handle, green));
  return answer(out, type, green->part());
}

TF_API(cuDevSmResourceSplitByCount, (CUdevResource * result, unsigned* groups, const CUdevResource* input,
                                     CUdevResource* remaining, unsigned flags, unsigned least)) {
  TF_TRY(enter("cuDevSmResourceSplitByCount"));
  if (groups == nullptr || input == nullptr || flags > 3) return CUDA_ERROR_INVALID_VALUE;
  Multiprocessors rest;
  TF_TRY(Multiprocessors::from(*input, rest));
  const unsigned size = group_size(*Driver::get().device(rest.ordinal()), least, flags);
  const unsigned possible = rest.count() / size;
  if (possible == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (result == nullptr) {  // only asked how many there could be
    *groups = possible;
    return CUDA_SUCCESS;
  }
  *groups = std::min(*groups, possible);
  for (unsigned i = 0; i < *groups; ++i) result[i] = rest.take(size).as_resource();
  if (remaining != nullptr) *remaining = rest.as_resource();
  return CUDA_SUCCESS;
}

TF_API(cuDevResourceGenerateDesc, (CUdevResourceDesc * out, CUdevResource* resources, unsigned count)) {
  TF_TRY(enter("cuDevResourceGenerateDesc"));
  if (out == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  auto description = std::make_shared<Description>();
  for (unsigned i = 0; i < count; ++i) {
    Multiprocessors part;
    TF_TRY(Multiprocessors::from(resources[i], part));
    TF_TRY(description->part.add(part));
  }
  *out = as_handle<CUdevResourceDesc>(descriptions().insert(description));
  return CUDA_SUCCESS;
}

TF_API(cuGreenCtxCreate, (CUgreenCtx * out, CUdevResourceDesc handle, CUdevice ordinal, unsigned flags)) {
  TF_TRY(enter("cuGreenCtxCreate"));
  const auto description = descriptions().share(handle);
  if (out == nullptr || !description || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  if (description->part.ordinal() != ordinal) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<GreenContext> green;
  TF_TRY(GreenContext::create(*device, description->part, green));
  *out = as_handle<CUgreenCtx>(green->handle_value);
  return CUDA_SUCCESS;
}
TF_API(cuGreenCtxDestroy, (CUgreenCtx handle)) {
  std::shared_ptr<GreenContext> green;
  TF_TRY(find_green("cuGreenCtxDestroy", handle, green));
  return green->destroy();
}
TF_API(cuCtxFromGreenCtx, (CUcontext * out, CUgreenCtx handle)) {
  std::shared_ptr<GreenContext> green;
  TF_TRY(find_green("cuCtxFromGreenCtx", handle, green));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = green->as_context();
  return CUDA_SUCCESS;
}
TF_API(cuGreenCtxStreamCreate, (CUstream * out, CUgreenCtx handle, unsigned flags, int priority)) {
  std::shared_ptr<GreenContext> green;
  TF_TRY(find_green("cuGreenCtxStreamCreate", handle, green));
  if (out == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  return green->add_stream(flags, clamped_priority(priority), *out);
}
TF_API(cuGreenCtxGetId, (CUgreenCtx handle, unsigned long long* out)) {
  std::shared_ptr<GreenContext> green;
  TF_TRY(find_green("cuGreenCtxGetId", handle, green));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = green->default_stream().id;  // numbers of streams are never used twice
  return CUDA_SUCCESS;
}
TF_API(cuStreamGetGreenCtx, (CUstream handle, CUgreenCtx* out)) {
  TF_TRY(enter("cuStreamGetGreenCtx"));
  Stream* stream = nullptr;
  TF_TRY(find_stream(handle, Flavour::legacy, stream));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = as_handle<CUgreenCtx>(stream->green ? stream->green->handle_value : 0);
  return CUDA_SUCCESS;
}

TF_API(cuGreenCtxRecordEvent, (CUgreenCtx handle, CUevent event)) {
  std::shared_ptr<GreenContext> green;
  TF_TRY(find_green("cuGreenCtxRecordEvent", handle, green));
  return record_behind(green->context(), green->streams(), event);
}
TF_API(cuGreenCtxWaitEvent, (CUgreenCtx handle, CUevent event)) {
  std::shared_ptr<GreenContext> green;
  TF_TRY(find_green("cuGreenCtxWaitEvent", handle, green));
  return wait_before(green->streams(), event);
}
TF_API(cuCtxRecordEvent, (CUcontext handle, CUevent event)) {
  Context* context = nullptr;
  Streams streams;
  TF_TRY(find_streams("cuCtxRecordEvent", handle, context, streams));
  return record_behind(*context, streams, event);
}
TF_API(cuCtxWaitEvent, (CUcontext handle, CUevent event)) {
  Context* context = nullptr;
  Streams streams;
  TF_TRY(find_streams("cuCtxWaitEvent", handle, context, streams));
  return wait_before(streams, event);
}

}  // namespace tensor_fusion::sim::cuda
