#include "node/hypervisor/share_loop.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>

#include "node/hypervisor/share_table.h"
#include "system/clock.h"
#include "system/fd.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint64_t kHeartbeatNs = contract::kHeartbeatPeriodNs / 2;
// While no process holds a slot nobody reads it. One that takes a slot rings, and waits for the beat that this brings.
constexpr std::uint64_t kIdleHeartbeatNs = 1'000'000'000;
constexpr std::uint64_t kFloodWindowNs = 100'000'000;
constexpr unsigned kRingsPerWindow = 1000;  // more is a flood: that tenant's bell is deaf for the rest of it
constexpr int kEvents = 64;
constexpr std::uint64_t kWakeToken = 0, kTimerToken = 1, kFirstBellToken = 2;

struct Bell {
  int file = -1;
  std::uint64_t token = 0;
  std::uint64_t window_ns = 0;
  unsigned rings = 0;
  bool deaf = false;
};

}  // namespace

struct ShareLoop::State {
  mutable std::mutex mutex;
  ShareTable table;
  std::map<ShareTenantId, Bell> bells;
  std::map<std::uint64_t, ShareTenantId> by_token;
  system::Fd epoll, wake, timer;
  std::uint64_t next_token = kFirstBellToken;
  std::uint64_t heartbeat_ns = 0;
  std::uint64_t heartbeat_period_ns = kHeartbeatNs;
  bool precise_wait = true;
  std::atomic<std::uint64_t> cpu{0};
  std::atomic<bool> stopping{false};
  std::thread thread;

  void listen(int file, std::uint64_t token) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = token;
    ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, file, &event);
  }
  void stop_listening(int file) const { ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, file, nullptr); }
  void wake_up() const {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(wake.get(), &one, sizeof one));
  }
  void ring(ShareTenantId id, std::uint64_t now);
  bool beat(std::uint64_t now);  // true: a bell is heard again
  void handle(const epoll_event* events, int count, std::uint64_t now);
  int sleep(epoll_event* events, std::uint64_t due, std::uint64_t now);
  std::uint64_t run(std::uint64_t now);
  void forget(ShareTenantId id, std::uint64_t now);
  void loop();
};

void ShareLoop::State::ring(ShareTenantId id, std::uint64_t now) {
  Bell& bell = bells[id];
  char sink[4096];
  static_cast<void>(!::read(bell.file, sink, sizeof sink));
  heartbeat_period_ns = kHeartbeatNs;
  if (now > bell.window_ns + kFloodWindowNs) {
    bell.window_ns = now;
    bell.rings = 0;
  }
  if (++bell.rings > kRingsPerWindow && !bell.deaf) {
    bell.deaf = true;
    stop_listening(bell.file);
  }
  table.ring(id, now);
}

bool ShareLoop::State::beat(std::uint64_t now) {
  bool heard = false;
  heartbeat_ns = now;
  table.beat(now);
  heartbeat_period_ns = table.anyone() ? kHeartbeatNs : kIdleHeartbeatNs;
  for (auto& [id, bell] : bells) {
    if (!bell.deaf || now <= bell.window_ns + kFloodWindowNs) continue;
    bell.deaf = false;
    listen(bell.file, bell.token);
    table.ring(id, now);
    heard = true;
  }
  return heard;
}

void ShareLoop::State::handle(const epoll_event* events, int count, std::uint64_t now) {
  for (int i = 0; i < count; ++i) {
    const std::uint64_t token = events[i].data.u64;
    std::uint64_t sink = 0;
    if (token == kWakeToken) {
      static_cast<void>(!::read(wake.get(), &sink, sizeof sink));
    } else if (token == kTimerToken) {
      static_cast<void>(!::read(timer.get(), &sink, sizeof sink));
    } else if (const auto id = by_token.find(token); id != by_token.end()) {
      ring(id->second, now);
    }
  }
}

// Sleeps until something rings or `due` has come; returns what rang. One system call where the kernel can (5.11).
int ShareLoop::State::sleep(epoll_event* events, std::uint64_t due, std::uint64_t now) {
  const std::uint64_t wait = due > now ? due - now : 0;
  if (precise_wait) {
    const timespec time{static_cast<time_t>(wait / 1'000'000'000), static_cast<long>(wait % 1'000'000'000)};
    const long count = ::syscall(SYS_epoll_pwait2, epoll.get(), events, kEvents, &time, nullptr, 0);
    if (count >= 0 || errno == EINTR) return count < 0 ? 0 : static_cast<int>(count);
    precise_wait = false;
  }
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(due / 1'000'000'000);
  when.it_value.tv_nsec = static_cast<long>(due % 1'000'000'000);
  ::timerfd_settime(timer.get(), TFD_TIMER_ABSTIME, &when, nullptr);
  return ::epoll_wait(epoll.get(), events, kEvents, 1000);
}

std::uint64_t ShareLoop::State::run(std::uint64_t now) {
  std::uint64_t due = table.run(now);
  if (now >= heartbeat_ns + heartbeat_period_ns && beat(now)) due = now;
  return std::min(due, heartbeat_ns + heartbeat_period_ns);
}

void ShareLoop::State::loop() {
  ::pthread_setname_np(::pthread_self(), "share");
  ::prctl(PR_SET_TIMERSLACK, 1000UL);
  // Short passes, long sleeps, and tenants that wait for it: ahead of what merely computes. Without the right to, go
  // on.
  const sched_param parameters{1};
  if (::pthread_setschedparam(::pthread_self(), SCHED_RR, &parameters) != 0) {
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), -11);
  }
  epoll_event events[kEvents];
  int count = 0;
  for (unsigned turn = 0; !stopping.load(); ++turn) {
    std::uint64_t due = 0, now = 0;
    {
      const std::lock_guard lock(mutex);
      now = system::monotonic_ns();
      handle(events, count, now);
      due = run(now);
    }
    if (turn % 64 == 0) cpu.store(system::thread_cpu_ns(), kRelaxed);
    count = sleep(events, due, system::monotonic_ns());
  }
}

ShareLoop::ShareLoop() : state_(std::make_unique<State>()) {
  state_->epoll = system::Fd(::epoll_create1(EPOLL_CLOEXEC));
  state_->wake = system::Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  state_->timer = system::Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  state_->listen(state_->wake.get(), kWakeToken);
  state_->listen(state_->timer.get(), kTimerToken);
}

ShareLoop::~ShareLoop() { stop(); }

void ShareLoop::start() {
  if (state_->thread.joinable()) return;
  state_->stopping = false;
  state_->thread = std::thread([this] { state_->loop(); });
}

void ShareLoop::stop() {
  if (!state_->thread.joinable()) return;
  state_->stopping = true;
  state_->wake_up();
  state_->thread.join();
}

void ShareLoop::State::forget(ShareTenantId id, std::uint64_t now) {
  if (const auto found = bells.find(id); found != bells.end()) {
    if (!found->second.deaf) stop_listening(found->second.file);
    by_token.erase(found->second.token);
    bells.erase(found);
  }
  table.remove(id, now);
}

void ShareLoop::add_tenant(ShareTenantId id, ShareTenant pages) {
  const std::lock_guard lock(state_->mutex);
  const std::uint64_t now = system::monotonic_ns();
  state_->forget(id, now);
  if (pages.grant == nullptr || pages.claim == nullptr) return;
  if (pages.bell >= 0) {
    const Bell& bell = state_->bells[id] = {.file = pages.bell, .token = state_->next_token++};
    state_->by_token[bell.token] = id;
    state_->listen(bell.file, bell.token);
  }
  state_->table.add(id, std::move(pages), now);
  state_->wake_up();
}

void ShareLoop::update_tenant(ShareTenantId id, const std::vector<ShareDevice>& devices) {
  const std::lock_guard lock(state_->mutex);
  state_->table.update(id, devices, system::monotonic_ns());
  state_->wake_up();
}

void ShareLoop::remove_tenant(ShareTenantId id) {
  const std::lock_guard lock(state_->mutex);
  state_->forget(id, system::monotonic_ns());
  state_->wake_up();
}

void ShareLoop::look(ShareTenantId id) {
  const std::lock_guard lock(state_->mutex);
  state_->table.ring(id, system::monotonic_ns());
  state_->wake_up();
}

void ShareLoop::observe_utilisation(ShareTenantId id, std::uint32_t device, double percent, std::uint64_t window_ns) {
  const std::lock_guard lock(state_->mutex);
  state_->table.observe_utilisation(id, device, percent, window_ns, system::monotonic_ns());
}

ShareUsage ShareLoop::usage(ShareTenantId id, std::uint32_t device) const {
  const std::lock_guard lock(state_->mutex);
  return state_->table.usage(id, device);
}

std::uint64_t ShareLoop::cpu_ns() const { return state_->cpu.load(kRelaxed); }

std::uint64_t ShareLoop::passes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->table.passes();
}

int ShareLoop::wait_fd() const { return state_->epoll.get(); }

std::uint64_t ShareLoop::run_once(std::uint64_t now_ns) {
  const std::lock_guard lock(state_->mutex);
  epoll_event events[kEvents];
  state_->handle(events, ::epoll_wait(state_->epoll.get(), events, kEvents, 0), now_ns);
  return state_->run(now_ns);
}

}  // namespace tensor_fusion::node::hypervisor
