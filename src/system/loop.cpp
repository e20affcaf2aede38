#include "system/loop.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "system/clock.h"
#include "system/file.h"

namespace tensor_fusion::system {

struct Loop::Watch {
  std::uint64_t key = 0;  // number of the watch and descriptor: what is left in a batch for a closed one is not for the
                          // next that gets its number
  Handler handler;
};

struct Loop::Timer {
  TimerId id = 0;
  std::uint64_t due_ns = 0;
  std::uint64_t period_ns = 0;
  Task task;
  bool gone = false;
};

base::Result<std::unique_ptr<Loop>> Loop::make() {
  auto loop = std::unique_ptr<Loop>(new Loop);
  loop->epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  loop->wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  loop->timer_fd_ = Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!loop->epoll_ || !loop->wake_ || !loop->timer_fd_)
    return std::unexpected(error_of("make", "an event loop", errno));
  Loop* self = loop.get();
  const auto drain = [](int fd) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(fd, &count, sizeof count);
  };
  if (auto ok = loop->watch(loop->wake_.get(), EPOLLIN, [=](std::uint32_t) { drain(self->wake_.get()); }); !ok)
    return std::unexpected(ok.error());
  // The timer only ends the wait; fire_timers() looks at the clock itself.
  if (auto ok = loop->watch(loop->timer_fd_.get(), EPOLLIN,
                            [=](std::uint32_t) {
                              drain(self->timer_fd_.get());
                              self->armed_for_ = 0;
                            });
      !ok)
    return std::unexpected(ok.error());
  return loop;
}

Loop::~Loop() = default;

base::Result<void> Loop::watch(int fd, std::uint32_t events, Handler handler) {
  auto watch = std::make_shared<Watch>();
  watch->key = next_watch_++ << 32 | static_cast<std::uint32_t>(fd);
  watch->handler = std::move(handler);
  epoll_event event{};
  event.events = events;
  event.data.u64 = watch->key;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return std::unexpected(error_of("watch", "a descriptor", errno));
  watches_[fd] = std::move(watch);
  return {};
}

void Loop::change(int fd, std::uint32_t events) {
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = found->second->key;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Loop::forget(int fd) {
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  watches_.erase(found);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

Loop::TimerId Loop::after(std::uint64_t delay_ns, Task task) {
  auto timer = std::make_shared<Timer>();
  timer->id = next_timer_++;
  timer->due_ns = monotonic_ns() + delay_ns;
  timer->task = std::move(task);
  timers_.emplace(timer->due_ns, timer);
  timer_by_id_[timer->id] = timer;
  return timer->id;
}

Loop::TimerId Loop::every(std::uint64_t period_ns, Task task) {
  const TimerId id = after(period_ns, std::move(task));
  timer_by_id_[id]->period_ns = period_ns;
  return id;
}

void Loop::cancel(TimerId id) {
  const auto found = timer_by_id_.find(id);
  if (found == timer_by_id_.end()) return;
  const auto timer = found->second;
  timer->gone = true;
  timer_by_id_.erase(found);
  for (auto [at, end] = timers_.equal_range(timer->due_ns); at != end; ++at) {
    if (at->second != timer) continue;
    timers_.erase(at);
    return;
  }
}

base::Result<void> Loop::on_signal(int signal_number, Task task) {
  signal_tasks_[signal_number] = std::move(task);
  sigset_t set;
  sigemptyset(&set);
  for (const auto& [number, unused] : signal_tasks_) sigaddset(&set, number);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const bool first = !signals_.valid();
  const int fd = ::signalfd(signals_.get(), &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return std::unexpected(error_of("watch", "signals", errno));
  if (!first) return {};
  signals_ = Fd(fd);
  return watch(fd, EPOLLIN, [this](std::uint32_t) {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      const auto found = signal_tasks_.find(static_cast<int>(info.ssi_signo));
      if (found != signal_tasks_.end()) found->second();
    }
  });
}

void Loop::run() {
  while (!stopping_) run_once(~0ull);
  stopping_ = false;
}

void Loop::run_once(std::uint64_t max_wait_ns) {
  constexpr int kBatch = 64;
  std::array<epoll_event, kBatch> events{};
  arm(max_wait_ns);
  const int count = ::epoll_wait(epoll_.get(), events.data(), kBatch, max_wait_ns == 0 ? 0 : -1);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const auto found = watches_.find(static_cast<int>(event.data.u64 & 0xffffffff));
    if (found == watches_.end() || found->second->key != event.data.u64) continue;
    const auto watch = found->second;  // keeps the handler alive while it removes itself
    watch->handler(event.events);
  }
  fire_timers();
}

// timerfd rather than epoll's own timeout: that one counts whole milliseconds, and shares are handed over in less.
void Loop::arm(std::uint64_t max_wait_ns) {
  std::uint64_t due = timers_.empty() ? ~0ull : timers_.begin()->first;
  if (max_wait_ns != ~0ull && max_wait_ns != 0) due = std::min(due, monotonic_ns() + max_wait_ns);
  if (due == armed_for_ || max_wait_ns == 0) return;
  itimerspec when{};
  if (due != ~0ull) {
    when.it_value.tv_sec = static_cast<time_t>(due / 1'000'000'000);
    when.it_value.tv_nsec = static_cast<long>(due % 1'000'000'000);
    if (due == 0) when.it_value.tv_nsec = 1;
  }
  ::timerfd_settime(timer_fd_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
  armed_for_ = due;
}

void Loop::fire_timers() {
  const std::uint64_t now = monotonic_ns();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const auto timer = timers_.begin()->second;
    timers_.erase(timers_.begin());
    if (timer->period_ns == 0) {
      timer_by_id_.erase(timer->id);
    } else {
      timer->due_ns = std::max(timer->due_ns + timer->period_ns, now + timer->period_ns / 2);
      timers_.emplace(timer->due_ns, timer);
    }
    if (!timer->gone) timer->task();
  }
}

void Loop::stop() {
  stopping_ = true;
  wake();
}

void Loop::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

}  // namespace tensor_fusion::system
