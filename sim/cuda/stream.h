#pragma once
// A stream: work in order. It has a lane of the device's clock (for when things end) and a queue of the executor (for
// what they do). Whoever submits holds mutex(); waiting holds nothing. A blocking stream and the legacy default stream
// of its context order themselves after each other, as the API wants.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/context.h"
#include "sim/cuda/executor.h"

namespace tensor_fusion::sim::cuda {

struct Capture;
class GreenContext;

// A point in a stream's work: for the clock, and for what has to have happened.
struct StreamPoint {
  device::Ticket ticket = 0;
  Need need;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  static constexpr HandleKind kHandleKind = HandleKind::stream;
  enum class Role : std::uint8_t { legacy, per_thread, created };

  Stream(const std::shared_ptr<Context>& owner, Role stream_role, unsigned stream_flags, int stream_priority);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] Context& context() const { return *context_; }
  [[nodiscard]] bool belongs_to(const Context& context) const { return context_.get() == &context; }
  [[nodiscard]] std::recursive_mutex& mutex() const { return context_->lane_mutex(lane_); }
  [[nodiscard]] bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
  [[nodiscard]] const std::shared_ptr<WorkQueue>& queue() const { return queue_; }
  [[nodiscard]] device::Ticket last() const { return last_.load(std::memory_order_acquire); }
  [[nodiscard]] Need everything() const { return {queue_, queue_->submitted.load(std::memory_order_relaxed)}; }

  // The following by the holder of mutex(). order() puts the stream behind what the default-stream rules say and
  // collects the queues that have not done their part yet; submit() adds a timing item.
  void order(std::vector<Need>& needs);
  device::Ticket submit(const device::Work& work);
  void push(Operation operation);
  // An item without effect on memory: only timing, unless something earlier must still happen.
  void submit_effect_free(const device::Work& work);

  // Puts the stream behind points of streams of its context.
  void wait_for(const std::vector<StreamPoint>& points);

  [[nodiscard]] StreamPoint here() const { return {last(), everything()}; }  // with or without the lock
  // The part of the device's multiprocessors that so many blocks fill, at most the stream's own.
  [[nodiscard]] float width_of(std::uint64_t blocks) const;
  [[nodiscard]] unsigned multiprocessors() const;
  [[nodiscard]] bool done();  // advances the clock
  CUresult synchronize();     // sleeps
  CUresult query();

  const Role role;
  const unsigned flags;
  const int priority;
  const std::uint64_t id;
  std::uint64_t handle_value = 0;       // 0 for default streams
  std::shared_ptr<GreenContext> green;  // whose multiprocessors it has; null: all. Set before others see the stream
  const GreenContext* lent = nullptr;   // of a branch: the part of the stream it works for, under mutex()
  std::shared_ptr<Capture> capture;     // set while recording into a graph, under mutex()
  std::atomic<bool> capturing{false};

 private:
  std::shared_ptr<Context> context_;
  const unsigned lane_;
  std::shared_ptr<WorkQueue> queue_;
  std::atomic<device::Ticket> last_{0};
  device::Ticket legacy_seen_ = 0;  // newest item of the legacy stream that this one is behind
};

[[nodiscard]] HandleTable<Stream>& streams();

[[nodiscard]] int clamped_priority(int wish);

// What the handle means for the calling thread; INVALID_CONTEXT, INVALID_HANDLE or CONTEXT_IS_DESTROYED otherwise.
// The context's sticky error comes first.
CUresult find_stream(CUstream handle, Flavour flavour, Stream*& out);
// The same for calls that give a stream work: they want a live current context besides.
CUresult find_work_stream(CUstream handle, Flavour flavour, Stream*& out);

}  // namespace tensor_fusion::sim::cuda
