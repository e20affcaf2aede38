#include "sim/cuda/event.h"

#include "sim/cuda/driver.h"
#include "sim/cuda/ipc.h"

namespace tensor_fusion::sim::cuda {
namespace {
constexpr std::uint64_t kLookAgainNs = 50'000'000;
}

HandleTable<Event>& events() {
  static auto* table = new HandleTable<Event>;
  return *table;
}

Event::~Event() {
  if (slot_ != device::kNoEvent && !context_->destroyed()) context_->timing().free_event(slot_);
}

CUresult Event::record(Stream& stream) {
  Context& context = stream.context();
  if (&context != context_.get()) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(mutex_);
  if (timed() && slot_ == device::kNoEvent) {
    const auto slot = context.timing().allocate_event();
    if (!slot) return CUDA_ERROR_OUT_OF_MEMORY;
    slot_ = *slot;
  }
  device::Work marker;
  marker.kind = device::WorkKind::marker;
  marker.event = slot_;
  stream.submit_effect_free(marker);
  record_ = {{context.timing().id(), stream.last()}, stream.everything(), true};
  if (record_.need.met()) record_.need = {};
  if (shared) shared->store(record_.what);
  return CUDA_SUCCESS;
}

void Event::share_by(std::shared_ptr<SharedEvent> page) {
  const std::lock_guard lock(mutex_);
  if (record_.recorded) page->store(record_.what);
  shared = std::move(page);
}

Event::Record Event::last() const {
  const std::lock_guard lock(mutex_);
  if (!shared) return record_;
  // The record of any process counts; work of another one has no queue here, only its time.
  Record known = record_;
  const device::Dependency newest = shared->load();
  if (newest.context != known.what.context || newest.ticket != known.what.ticket)
    known = {newest, {}, newest.context != 0};
  return known;
}

CUresult Event::make_wait(Stream& stream) {
  const Record record = last();
  if (!record.recorded) return CUDA_SUCCESS;
  Context& context = stream.context();
  const bool own = record.what.context == context.timing().id();
  if (own && context.timing().done(record.what.ticket)) return CUDA_SUCCESS;
  device::Work wait;
  wait.kind = device::WorkKind::wait;
  wait.after = record.what;
  std::vector<Need> needs;
  stream.order(needs);
  stream.submit(wait);
  const bool foreign = shared && !own;
  if (record.need.met() && needs.empty() && !foreign) return CUDA_SUCCESS;
  Operation join;
  join.needs = std::move(needs);
  if (!record.need.met()) join.needs.push_back(record.need);
  if (foreign) join.ready = [what = record.what] { return device::remote_done(Driver::get().machine(), what); };
  stream.push(std::move(join));
  return CUDA_SUCCESS;
}

CUresult Event::query() {
  const Context::Waiting waiting(*context_);
  TF_TRY(check_context(*context_));
  const Record record = last();
  if (!record.recorded) return CUDA_SUCCESS;
  const bool done = record.what.context == context_->timing().id()
                        ? context_->timing().poll(record.what.ticket)
                        : device::remote_done(Driver::get().machine(), record.what);
  if (!done) return CUDA_ERROR_NOT_READY;
  return context_->sticky();
}

CUresult Event::synchronize() {
  const Context::Waiting waiting(*context_);
  TF_TRY(check_context(*context_));
  const Record record = last();
  if (!record.recorded) return CUDA_SUCCESS;
  auto& timing = context_->timing();
  const bool own = record.what.context == timing.id();
  while (!(own && timing.done(record.what.ticket))) {
    const std::uint64_t until = device::now_ns() + kLookAgainNs;
    if (own ? timing.wait(record.what.ticket, until) : device::remote_wait(Driver::get().machine(), record.what, until))
      break;
    TF_TRY(check_context(*context_));
  }
  return context_->sticky();
}

CUresult Event::elapsed_ms(const Event& start, const Event& end, float& milliseconds) {
  if (!start.timed() || !end.timed()) return CUDA_ERROR_INVALID_HANDLE;
  if (start.context_ != end.context_) return CUDA_ERROR_INVALID_HANDLE;
  TF_TRY(check_context(*start.context_));
  auto& timing = start.context_->timing();
  const Record first = start.last(), second = end.last();
  if (!first.recorded || !second.recorded) return CUDA_ERROR_INVALID_HANDLE;
  if (!timing.poll(first.what.ticket) || !timing.poll(second.what.ticket)) return CUDA_ERROR_NOT_READY;
  const auto from = static_cast<std::int64_t>(timing.event_time_ns(start.slot_));
  const auto to = static_cast<std::int64_t>(timing.event_time_ns(end.slot_));
  milliseconds = static_cast<float>(static_cast<double>(to - from) / 1e6);
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
