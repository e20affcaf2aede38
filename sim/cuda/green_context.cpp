#include "sim/cuda/green_context.h"

#include <map>
#include <mutex>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/stream.h"

namespace tensor_fusion::sim::cuda {
namespace {
std::mutex list_mutex;
std::map<CUcontext, std::weak_ptr<GreenContext>>& by_context() {
  static auto* all = new std::map<CUcontext, std::weak_ptr<GreenContext>>;
  return *all;
}
}  // namespace

HandleTable<GreenContext>& green_contexts() {
  static auto* table = new HandleTable<GreenContext>;
  return *table;
}

std::shared_ptr<GreenContext> green_of(CUcontext handle) {
  const std::lock_guard lock(list_mutex);
  const auto found = by_context().find(handle);
  return found != by_context().end() ? found->second.lock() : nullptr;
}

std::shared_ptr<GreenContext> current_green() {
  const CUcontext handle = current_handle();
  const Context* context = current_context();
  if (context == nullptr || context->handle() == handle) [[likely]]
    return nullptr;
  return green_of(handle);
}

GreenContext::GreenContext(std::shared_ptr<Context> primary, const Multiprocessors& part)
    : context_(std::move(primary)),
      part_(part),
      count_(part.count()),
      share_(static_cast<float>(count_) / static_cast<float>(context_->device().engine.sm_count)) {}

CUresult GreenContext::create(Device& device, const Multiprocessors& part, std::shared_ptr<GreenContext>& out) {
  std::shared_ptr<Context> primary;
  TF_TRY(device.retain_primary(primary));
  auto green = std::make_shared<GreenContext>(primary, part);
  green->default_stream_ = std::make_shared<Stream>(primary, Stream::Role::created, CU_STREAM_DEFAULT, 0);
  green->default_stream_->green = green;
  primary->add_stream(green->default_stream_);
  green->handle_value = green_contexts().insert(green);
  out = std::move(green);
  return CUDA_SUCCESS;
}

std::vector<std::shared_ptr<Stream>> GreenContext::streams() const {
  auto all = context_->streams();
  std::erase_if(all, [&](const auto& each) { return each->green.get() != this; });
  return all;
}

CUresult GreenContext::add_stream(unsigned flags, int priority, CUstream& out) {
  auto stream = std::make_shared<Stream>(context_, Stream::Role::created, flags, priority);
  stream->green = shared_from_this();
  stream->handle_value = cuda::streams().insert(stream);
  if (stream->handle_value == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  context_->add_stream(stream);
  out = as_handle<CUstream>(stream->handle_value);
  return CUDA_SUCCESS;
}

CUcontext GreenContext::as_context() {
  const std::lock_guard lock(mutex_);
  if (as_context_ == nullptr) {
    as_context_ = as_handle<CUcontext>(contexts().insert(context_));
    const std::lock_guard list_lock(list_mutex);
    by_context()[as_context_] = weak_from_this();
  }
  return as_context_;
}

void GreenContext::forget() {
  green_contexts().remove(handle_value);
  const std::lock_guard lock(mutex_);
  default_stream_.reset();  // it holds us
  if (as_context_ == nullptr) return;
  contexts().remove(as_context_);
  const std::lock_guard list_lock(list_mutex);
  by_context().erase(as_context_);
  as_context_ = nullptr;
}

CUresult GreenContext::destroy() {
  const auto self = shared_from_this();
  const auto mine = streams();
  for (const auto& stream : mine) TF_TRY(stream->synchronize());
  forget();
  for (const auto& stream : mine) {
    if (stream->handle_value != 0) cuda::streams().remove(stream->handle_value);
    context_->remove_stream(stream.get());
  }
  return context_->destroyed() ? CUDA_SUCCESS : context_->device().release_primary();
}

}  // namespace tensor_fusion::sim::cuda
