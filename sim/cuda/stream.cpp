#include "sim/cuda/stream.h"

#include <algorithm>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/green_context.h"

namespace tensor_fusion::sim::cuda {
namespace {
std::atomic<std::uint64_t> next_stream_id{1};
constexpr std::uint64_t kLookAgainNs =
    50'000'000;  // how long one sleep may last before the context's state is asked again
}  // namespace

HandleTable<Stream>& streams() {
  static auto* table = new HandleTable<Stream>;
  return *table;
}

Stream::Stream(const std::shared_ptr<Context>& owner, Role stream_role, unsigned stream_flags, int stream_priority)
    : role(stream_role),
      flags(stream_flags),
      priority(stream_priority),
      id(next_stream_id.fetch_add(1)),
      context_(owner),
      lane_(owner->pick_lane()),
      queue_(std::make_shared<WorkQueue>()) {
  queue_->context = owner;
}

Stream::~Stream() { context_->drop_lane(lane_); }

void Stream::order(std::vector<Need>& needs) {
  auto& timing = context_->timing();
  const auto behind = [&](Stream& other) {
    const device::Ticket last = other.last();
    if (!timing.done(last)) {
      device::Work wait;
      wait.kind = device::WorkKind::wait;
      wait.after = {timing.id(), last};
      submit(wait);
    }
    if (Need need = other.everything(); !need.met()) needs.push_back(std::move(need));
  };
  if (role == Role::legacy) {
    if (!context_->has_blocking_streams()) return;
    for (const auto& other : context_->streams())
      if (other.get() != this && other->blocking()) behind(*other);
  } else if (blocking()) {
    Stream& legacy = context_->legacy_stream();
    if (const device::Ticket last = legacy.last(); last != legacy_seen_ || !legacy.queue()->idle()) {
      legacy_seen_ = last;
      behind(legacy);
    }
  }
}

device::Ticket Stream::submit(const device::Work& work) {
  const device::Ticket ticket = context_->timing().submit(lane_, work);
  last_.store(ticket, std::memory_order_release);
  return ticket;
}

void Stream::push(Operation operation) { Driver::get().executor().push(queue_, std::move(operation)); }

void Stream::submit_effect_free(const device::Work& work) {
  std::vector<Need> needs;
  order(needs);
  submit(work);
  if (needs.empty()) [[likely]]
    return;
  Operation join;
  join.needs = std::move(needs);
  push(std::move(join));
}

void Stream::wait_for(const std::vector<StreamPoint>& points) {
  auto& timing = context_->timing();
  Operation join;
  for (const StreamPoint& point : points) {
    if (!timing.done(point.ticket)) {
      device::Work wait;
      wait.kind = device::WorkKind::wait;
      wait.after = {timing.id(), point.ticket};
      submit(wait);
    }
    if (!point.need.met()) join.needs.push_back(point.need);
  }
  if (!join.needs.empty()) push(std::move(join));
}

float Stream::width_of(std::uint64_t blocks) const {
  const float width = context_->device().width_of(blocks);
  const GreenContext* part = lent != nullptr ? lent : green.get();
  return part != nullptr ? std::min(width, part->share()) : width;
}

unsigned Stream::multiprocessors() const {
  const GreenContext* part = lent != nullptr ? lent : green.get();
  return part != nullptr ? part->count() : context_->device().engine.sm_count;
}

bool Stream::done() { return context_->timing().poll(last()); }

CUresult Stream::synchronize() {
  const std::shared_ptr<Context> keeper = context_;
  const Context::Waiting waiting(*keeper);
  if (keeper->destroyed()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const device::Ticket ticket = last();
  auto& timing = keeper->timing();
  while (!timing.done(ticket)) {
    if (keeper->destroyed()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (timing.wait(ticket, device::now_ns() + kLookAgainNs)) break;
    TF_TRY(check_context(*keeper));
  }
  if (keeper->destroyed()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return keeper->sticky();
}

CUresult Stream::query() {
  const Context::Waiting waiting(*context_);
  if (context_->destroyed()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  TF_TRY(context_->sticky());
  if (done()) return context_->sticky();
  return CUDA_ERROR_NOT_READY;
}

CUresult find_work_stream(CUstream handle, Flavour flavour, Stream*& out) {
  if (current_context() == nullptr) [[unlikely]]
    return current_handle() != nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
  return find_stream(handle, flavour, out);
}

CUresult find_stream(CUstream handle, Flavour flavour, Stream*& out) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value > kStreamPerThread) [[likely]] {
    out = streams().find(value);
    return out != nullptr ? check_context(out->context()) : CUDA_ERROR_INVALID_HANDLE;
  }
  Context* context = current_context();
  if (context == nullptr)
    return current_handle() != nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
  TF_TRY(check_context(*context));
  if (context->handle() != current_handle()) [[unlikely]] {
    if (const auto green = green_of(current_handle())) {
      out = &green->default_stream();
      return CUDA_SUCCESS;
    }
  }
  const bool per_thread = value == kStreamPerThread || (value == 0 && flavour == Flavour::per_thread);
  out = per_thread ? &context->thread_stream() : &context->legacy_stream();
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
