#include "sim/cuda/context.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "sim/cuda/array.h"
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/event.h"
#include "sim/cuda/green_context.h"
#include "sim/cuda/library.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/module.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/texture.h"

namespace tensor_fusion::sim::cuda {
namespace {
std::atomic<std::uint64_t> next_context_id{1};
std::mutex list_mutex;
std::vector<std::weak_ptr<Context>>& list() {
  static auto* all = new std::vector<std::weak_ptr<Context>>;
  return *all;
}

// What belongs to one thread: its stack of current contexts and its default streams, one per context. Freed with the
// thread, but only reached through a plain pointer: at process exit calls still come after thread-locals are gone, and
// then start with a fresh one.
struct ThreadState {
  std::vector<CUcontext> stack;
  std::map<std::uint64_t, std::shared_ptr<Stream>> streams;
};
thread_local ThreadState* thread_state = nullptr;
struct ThreadStateKeeper {
  ~ThreadStateKeeper() {
    if (thread_state == nullptr) return;
    for (auto& [id, stream] : thread_state->streams)
      if (!stream->context().destroyed()) stream->context().remove_stream(stream.get());
    delete thread_state;
    thread_state = nullptr;
  }
};

ThreadState& this_thread() {
  if (thread_state == nullptr) {
    thread_state = new ThreadState;
    thread_local ThreadStateKeeper keeper;
    (void)keeper;
  }
  return *thread_state;
}
}  // namespace

HandleTable<Context>& contexts() {
  static auto* table = new HandleTable<Context>;
  return *table;
}

std::vector<std::shared_ptr<Context>> all_contexts() {
  const std::lock_guard lock(list_mutex);
  std::vector<std::shared_ptr<Context>> alive;
  for (const auto& each : list())
    if (auto context = each.lock(); context && !context->destroyed()) alive.push_back(std::move(context));
  return alive;
}

Context::Context(Device& owner, device::Context timing, unsigned context_flags, bool primary)
    : flags(context_flags),
      device_(owner),
      timing_(std::move(timing)),
      id_(next_context_id.fetch_add(1)),
      primary_(primary) {
  limits[CU_LIMIT_STACK_SIZE] = 1024;
  limits[CU_LIMIT_PRINTF_FIFO_SIZE] = std::size_t{1} << 20;
  limits[CU_LIMIT_MALLOC_HEAP_SIZE] = std::size_t{8} << 20;
  limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
  limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
  limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

Context::~Context() = default;

CUresult Context::create(Device& owner, unsigned flags, bool primary, std::uint64_t known_handle,
                         std::shared_ptr<Context>& out) {
  auto timing = device::Context::create(Driver::get().machine(), owner.engine.id);
  if (!timing) {
    log_line("context: " + timing.error().message);
    return timing.error().code == device::Errc::lost ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto context = std::make_shared<Context>(owner, std::move(*timing), flags, primary);
  context->legacy_ = std::make_shared<Stream>(context, Stream::Role::legacy, CU_STREAM_DEFAULT, 0);
  context->handle_ = known_handle;
  if (known_handle != 0)
    contexts().restore(known_handle, context);
  else
    context->handle_ = contexts().insert(context);
  if (context->handle_ == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    const std::lock_guard lock(list_mutex);
    std::erase_if(list(), [](const auto& each) { return each.expired(); });
    list().push_back(context);
  }
  out = std::move(context);
  return CUDA_SUCCESS;
}

void Context::destroy() {
  if (destroyed_.exchange(true)) return;
  if (primary_)
    contexts().withdraw(handle_);  // the next primary context of the device has the same handle
  else
    contexts().remove(handle_);
  auto& driver = Driver::get();
  driver.executor().wake();
  const auto mine = streams();
  for (const auto& stream : mine) driver.executor().drain(*stream->queue());
  drop_belongings();
  free_context_memory(*this);
  while (waiting_ != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  {
    const device::Context gone = std::move(timing_);
  }  // gives back its memory overhead
  const std::lock_guard lock(mutex_);
  streams_.clear();
  retired_.clear();
  branches_.clear();
  legacy_.reset();
}

void Context::drop_belongings() {
  const auto mine = [this](const auto& object) { return object.belongs_to(*this); };
  (void)cuda::streams().remove_all(mine);
  (void)events().remove_all(mine);
  for (const auto& module : modules().remove_all(mine)) module->unload();
  forget_in_libraries(*this);
  for (const auto& green : green_contexts().all())
    if (green->belongs_to(*this)) green->forget();
  (void)textures().remove_all(mine);
  (void)surfaces().remove_all(mine);
  (void)mipmapped_arrays().remove_all(mine);
  (void)arrays().remove_all(mine);  // their memory goes with them
}

void Context::poison(CUresult error) {
  CUresult none = CUDA_SUCCESS;
  sticky_.compare_exchange_strong(none, error);
}

Stream& Context::thread_stream() {
  auto& all = this_thread().streams;
  auto& mine = all[id_];
  if (!mine) {
    std::erase_if(all, [](const auto& each) { return each.second && each.second->context().destroyed(); });
    mine = std::make_shared<Stream>(shared_from_this(), Stream::Role::per_thread, CU_STREAM_DEFAULT, 0);
    add_stream(mine);
  }
  return *mine;
}

void Context::add_stream(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
  if (stream->blocking()) ++blocking_streams_;
}

void Context::remove_stream(const Stream* stream) {
  std::vector<std::shared_ptr<Stream>> finished;  // ends behind the lock: who ends one gives its lane back under it
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(streams_.begin(), streams_.end(), [&](const auto& s) { return s.get() == stream; });
  if (found == streams_.end()) return;
  retired_.push_back(std::move(*found));
  streams_.erase(found);
  finished = take_finished();
}

std::vector<std::shared_ptr<Stream>> Context::take_finished() const {
  const auto goes_on = [&](const auto& stream) { return !destroyed() && !timing_.done(stream->last()); };
  const auto first = std::partition(retired_.begin(), retired_.end(), goes_on);
  std::vector<std::shared_ptr<Stream>> finished(std::make_move_iterator(first),
                                                std::make_move_iterator(retired_.end()));
  retired_.erase(first, retired_.end());
  for (const auto& stream : finished)
    if (stream->blocking()) --blocking_streams_;
  return finished;
}

std::vector<std::shared_ptr<Stream>> Context::streams() const {
  std::vector<std::shared_ptr<Stream>> finished;
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Stream>> all;
  if (legacy_) all.push_back(legacy_);
  all.insert(all.end(), streams_.begin(), streams_.end());
  all.insert(all.end(), retired_.begin(), retired_.end());
  finished = take_finished();
  return all;
}

std::vector<std::shared_ptr<Stream>> Context::branches(std::size_t count) {
  constexpr std::size_t kMostBranches = device::kLanes - 1;
  std::vector<std::shared_ptr<Stream>> chosen;
  {
    const std::lock_guard lock(mutex_);
    std::partition(branches_.begin(), branches_.end(),
                   [&](const auto& each) { return timing_.done(each->last()) && each->queue()->idle(); });
    std::size_t idle = 0;
    while (idle < branches_.size() && timing_.done(branches_[idle]->last())) ++idle;
    const std::size_t may_be_made = kMostBranches - branches_.size();
    const std::size_t taken = std::min(count, std::max(idle, count > may_be_made ? count - may_be_made : 0));
    chosen.assign(branches_.begin(), branches_.begin() + static_cast<std::ptrdiff_t>(taken));
    // The busiest choice for the next launch.
    std::rotate(branches_.begin(), branches_.begin() + static_cast<std::ptrdiff_t>(taken), branches_.end());
  }
  while (chosen.size() < count) {
    auto made = std::make_shared<Stream>(shared_from_this(), Stream::Role::created, CU_STREAM_NON_BLOCKING, 0);
    add_stream(made);
    const std::lock_guard lock(mutex_);
    branches_.push_back(made);
    chosen.push_back(std::move(made));
  }
  return chosen;
}

unsigned Context::pick_lane() {
  const std::lock_guard lock(mutex_);
  const auto least = std::min_element(lane_users_.begin(), lane_users_.end());
  ++*least;
  return static_cast<unsigned>(least - lane_users_.begin());
}

void Context::drop_lane(unsigned lane) {
  const std::lock_guard lock(mutex_);
  --lane_users_[lane];
}

CUresult Context::synchronize() {
  for (const auto& stream : streams()) TF_TRY(stream->synchronize());
  return sticky();
}

bool Context::may_access(const Device& other) const {
  if (&other == &device_) return true;
  const std::lock_guard lock(mutex_);
  return peers_.contains(&other);
}

CUresult Context::enable_peer(Context& peer) {
  if (&peer.device() == &device_) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(mutex_);
  return peers_.insert(&peer.device()).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult Context::disable_peer(Context& peer) {
  const std::lock_guard lock(mutex_);
  return peers_.erase(&peer.device()) != 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

CUcontext current_handle() {
  return thread_state == nullptr || thread_state->stack.empty() ? nullptr : thread_state->stack.back();
}
Context* current_context() {
  const CUcontext handle = current_handle();
  return handle != nullptr ? contexts().find(handle) : nullptr;
}

void set_current(CUcontext handle) {
  auto& stack = this_thread().stack;
  if (!stack.empty()) stack.pop_back();
  if (handle != nullptr) stack.push_back(handle);
}

void push_current(CUcontext handle) { this_thread().stack.push_back(handle); }

bool pop_current(CUcontext& out) {
  auto& stack = this_thread().stack;
  if (stack.empty()) return false;
  out = stack.back();
  stack.pop_back();
  return true;
}

}  // namespace tensor_fusion::sim::cuda
