#pragma once
// One epoll loop: descriptors, timers and signals of one thread. Callbacks run on that thread, one after another, and
// may add, change and remove anything, themselves included. stop() and wake()
// may be called from any thread. A timer that is late fires once, not once per missed period.
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "system/fd.h"

namespace tensor_fusion::system {

class Loop {
 public:
  using Handler = std::function<void(std::uint32_t events)>;  // EPOLLIN …
  using Task = std::function<void()>;
  using TimerId = std::uint64_t;

  static base::Result<std::unique_ptr<Loop>> make();
  ~Loop();

  base::Result<void> watch(int fd, std::uint32_t events, Handler handler);
  void change(int fd, std::uint32_t events);
  void forget(int fd);

  TimerId after(std::uint64_t delay_ns, Task task);
  TimerId every(std::uint64_t period_ns, Task task);
  void cancel(TimerId timer);

  base::Result<void> on_signal(int signal_number, Task task);  // blocks the signal for the thread and reads it here

  void run();                                // until stop()
  void run_once(std::uint64_t max_wait_ns);  // at most one wait; for tests and benchmarks
  void stop();
  void wake();  // any thread

 private:
  struct Watch;
  struct Timer;
  Loop() = default;
  void fire_timers();
  void arm(std::uint64_t max_wait_ns);

  Fd epoll_;
  Fd wake_;
  Fd timer_fd_;
  Fd signals_;
  std::unordered_map<int, std::shared_ptr<Watch>> watches_;
  std::multimap<std::uint64_t, std::shared_ptr<Timer>> timers_;  // by due time
  std::unordered_map<TimerId, std::shared_ptr<Timer>> timer_by_id_;
  std::unordered_map<int, Task> signal_tasks_;
  TimerId next_timer_ = 1;
  std::uint64_t next_watch_ = 0;
  std::uint64_t armed_for_ = 0;
  std::atomic<bool> stopping_ = false;
};

}  // namespace tensor_fusion::system
