#pragma once
// An event: a point in a stream's work. It remembers the last record only. One made for timing owns a slot on the
// device's clock, taken at its first record. An inter-process event keeps its last record where other processes see it.
// Thread-safe.
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/executor.h"
#include "sim/cuda/stream.h"
#include "sim/device/context.h"

namespace tensor_fusion::sim::cuda {

struct SharedEvent;  // ipc.h
struct GraphNode;
struct Capture;

class Event {
 public:
  static constexpr HandleKind kHandleKind = HandleKind::event;
  Event(std::shared_ptr<Context> owner, unsigned event_flags) : flags(event_flags), context_(std::move(owner)) {}
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  CUresult record(Stream& stream);     // by the holder of the stream's lock
  CUresult make_wait(Stream& stream);  // the stream waits for the last record; likewise
  CUresult query();
  CUresult synchronize();
  static CUresult elapsed_ms(const Event& start, const Event& end, float& milliseconds);

  [[nodiscard]] Context& context() const { return *context_; }
  [[nodiscard]] bool belongs_to(const Context& context) const { return context_.get() == &context; }
  [[nodiscard]] bool timed() const { return (flags & CU_EVENT_DISABLE_TIMING) == 0; }
  const unsigned flags;
  std::uint64_t handle_value = 0;
  std::shared_ptr<SharedEvent> shared;  // inter-process, once a handle to it was made or opened
  void share_by(std::shared_ptr<SharedEvent> page);

  // While the last record was inside a capture: where.
  std::mutex capture_mutex;
  std::weak_ptr<Capture> captured_in;
  std::vector<std::shared_ptr<GraphNode>> captured_after;

 private:
  struct Record {
    device::Dependency what;
    Need need;
    bool recorded = false;
  };
  [[nodiscard]] Record last() const;
  const std::shared_ptr<Context> context_;
  mutable std::mutex mutex_;
  Record record_;
  std::uint32_t slot_ = device::kNoEvent;
};

[[nodiscard]] HandleTable<Event>& events();

}  // namespace tensor_fusion::sim::cuda
