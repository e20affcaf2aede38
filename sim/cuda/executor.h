#pragma once
// Makes work happen in stream order: one thread of this process takes the heads of the streams' queues that may run
// now, runs them, and tells the device's clock how long they took. What a kernel or copy *does* happens here, as early
// as its order allows; when it *ends* is the clock's business. A stream whose head must wait (for a value in memory,
// for another stream, for the device time of a host function) holds nobody else up.
//
// push() by the holder of the stream's lock; the rest from any thread. Lives for ever: nothing is joined at exit.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/device/work.h"

namespace tensor_fusion::sim::cuda {

class Context;
struct WorkQueue;

// Another queue's work that has to have happened first.
struct Need {
  std::shared_ptr<WorkQueue> queue;
  std::uint64_t number = 0;
  [[nodiscard]] bool met() const;
};

struct Operation {
  enum class Finish : std::uint8_t { none, publish, open_gate };
  Finish finish = Finish::none;
  bool at_device_time = false;  // not before the device has reached it
  device::Ticket ticket = 0;    // its timing item
  device::Ticket before = 0;    // the item in front of it, when at_device_time
  std::vector<Need> needs;
  std::move_only_function<bool()> ready;  // may be empty; polled
  std::move_only_function<std::uint64_t(bool skip)>
      run;  // may be empty; skip: context failed or gone. Answers nanoseconds.
};

// The functional side of one stream.
struct WorkQueue {
  std::shared_ptr<Context> context;
  std::atomic<std::uint64_t> submitted{0};
  std::atomic<std::uint64_t> executed{0};
  std::deque<Operation> operations;  // under the executor's lock
  bool active = false;               // in the executor's list
  bool running = false;              // its head is being run
  [[nodiscard]] bool idle() const {
    return executed.load(std::memory_order_acquire) == submitted.load(std::memory_order_relaxed);
  }
};

inline bool Need::met() const { return !queue || queue->executed.load(std::memory_order_acquire) >= number; }

class Executor {
 public:
  void push(const std::shared_ptr<WorkQueue>& queue, Operation operation);
  // Sleeps until everything pushed to the queue so far has run.
  void drain(WorkQueue& queue);
  void wake();  // something a head may wait for has changed
  [[nodiscard]] bool on_executor_thread() const;

 private:
  void start();
  void loop();
  bool runnable(WorkQueue& queue, std::uint64_t& next_look_ns);
  void run_head(std::unique_lock<std::mutex>& lock, const std::shared_ptr<WorkQueue>& queue);

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::list<std::shared_ptr<WorkQueue>> active_;
  bool started_ = false, sleeping_ = false, kicked_ = false;
  unsigned waiters_ = 0;
};

}  // namespace tensor_fusion::sim::cuda
