#include "sim/cuda/executor.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "sim/cuda/context.h"

namespace tensor_fusion::sim::cuda {
namespace {
thread_local bool this_is_executor = false;
// A value in memory, or a time nobody can tell yet, is looked at again after this long; longer and longer while nothing
// else happens.
constexpr std::uint64_t kFirstPollNs = 20'000, kLastPollNs = 1'000'000;
thread_local std::uint64_t poll_ns = kFirstPollNs;
constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::uint64_t kWakeEarlyNs = 60'000;  // waking takes about that long; the rest is polled
}  // namespace

bool Executor::on_executor_thread() const { return this_is_executor; }

void Executor::push(const std::shared_ptr<WorkQueue>& queue, Operation operation) {
  bool notify = false;
  {
    const std::lock_guard lock(mutex_);
    queue->submitted.fetch_add(1, std::memory_order_relaxed);
    queue->operations.push_back(std::move(operation));
    if (!queue->active) {
      queue->active = true;
      active_.push_back(queue);
    }
    if (!started_) start();
    kicked_ = true;
    notify = sleeping_;
  }
  if (notify) wake_.notify_one();
}

void Executor::wake() {
  {
    const std::lock_guard lock(mutex_);
    kicked_ = true;
  }
  wake_.notify_one();
}

void Executor::drain(WorkQueue& queue) {
  if (this_is_executor) return;
  std::unique_lock lock(mutex_);
  ++waiters_;
  const std::uint64_t target = queue.submitted.load();
  done_.wait(lock, [&] { return queue.executed.load() >= target; });
  --waiters_;
}

void Executor::start() {
  started_ = true;
  std::thread([this] {
    this_is_executor = true;
    ::prctl(PR_SET_NAME, "cuda-executor");
    ::prctl(PR_SET_TIMERSLACK, 1);
    loop();
  }).detach();
}

// Whether the head may run now; else when to look again.
bool Executor::runnable(WorkQueue& queue, std::uint64_t& next_look_ns) {
  Operation& head = queue.operations.front();
  Context& context = *queue.context;
  if (context.destroyed()) return true;  // to be skipped
  for (const Need& need : head.needs)
    if (!need.met()) return false;  // the queue it waits for is ours too and wakes us by running
  if (context.sticky() != CUDA_SUCCESS) return true;
  if (head.at_device_time && !context.timing().poll(head.before)) {
    const std::uint64_t bound = context.timing().completion_bound(head.before);
    const std::uint64_t now = device::now_ns();
    next_look_ns = std::min(next_look_ns, bound == device::kUnknownNs || bound <= now ? now + poll_ns
                                          : bound - now > 2 * kWakeEarlyNs            ? bound - kWakeEarlyNs
                                                                                      : now + (bound - now) / 2 + 1000);
    return false;
  }
  if (head.ready && !head.ready()) {
    next_look_ns = std::min(next_look_ns, device::now_ns() + poll_ns);
    return false;
  }
  return true;
}

void Executor::run_head(std::unique_lock<std::mutex>& lock, const std::shared_ptr<WorkQueue>& queue) {
  Operation head = std::move(queue->operations.front());
  queue->operations.pop_front();
  lock.unlock();
  Context& context = *queue->context;
  const bool skip = context.destroyed() || context.sticky() != CUDA_SUCCESS;
  std::uint64_t duration = 0;
  if (head.run) duration = head.run(skip);
  if (!context.destroyed() || head.finish != Operation::Finish::none) {
    if (head.finish == Operation::Finish::publish) context.timing().publish_duration(head.ticket, duration);
    if (head.finish == Operation::Finish::open_gate) context.timing().open_gate(head.ticket, duration);
  }
  head = {};  // lets go of what it used before anybody learns that it is done
  lock.lock();
  queue->executed.fetch_add(1, std::memory_order_release);
  if (waiters_ != 0) done_.notify_all();
}

void Executor::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    kicked_ = false;
    bool ran = false;
    std::uint64_t next_look_ns = kNever;
    for (auto it = active_.begin(); it != active_.end();) {
      const auto queue = *it;
      if (queue->operations.empty()) {
        queue->active = false;
        it = active_.erase(it);
        continue;
      }
      if (runnable(*queue, next_look_ns)) {
        run_head(lock, queue);
        ran = true;
      }
      ++it;
    }
    if (ran || kicked_) {
      poll_ns = kFirstPollNs;
      continue;
    }
    sleeping_ = true;
    if (next_look_ns == kNever) {
      wake_.wait(lock, [this] { return kicked_; });
    } else if (const std::uint64_t now = device::now_ns(); next_look_ns > now) {
      wake_.wait_for(lock, std::chrono::nanoseconds(next_look_ns - now), [this] { return kicked_; });
      poll_ns = std::min(poll_ns + poll_ns / 4, kLastPollNs);
    }
    sleeping_ = false;
  }
}

}  // namespace tensor_fusion::sim::cuda
