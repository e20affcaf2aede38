#include "node/hypervisor/share_loop.h"

#include <linux/futex.h>
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
#include <climits>
#include <map>
#include <mutex>
#include <thread>

#include "node/hypervisor/share_claims.h"
#include "pool/share.h"
#include "system/clock.h"
#include "system/fd.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint64_t kHeartbeatNs = contract::kHeartbeatPeriodNs / 2;
// While no process holds a slot the only reader is one that starts: it must not find the heartbeat late, that is all.
constexpr std::uint64_t kIdleHeartbeatNs = contract::kHeartbeatLateNs / 2;
// On a node with many contended devices a wake-up costs more than a decision: they are made together, a little late.
constexpr std::size_t kManyDevices = 4;
constexpr std::uint64_t kManyGridNs = 250'000;
constexpr std::uint64_t kQuietNs = 20'000'000;  // what cannot change without a ring is read again after this
constexpr std::uint64_t kFloodWindowNs = 100'000'000;
constexpr unsigned kRingsPerWindow = 1000;     // more is a flood: that tenant's bell is deaf for the rest of it
constexpr std::uint64_t kTogetherNs = 50'000;  // devices due so soon are decided in one wake
constexpr int kEvents = 64;
constexpr std::uint64_t kWakeToken = 0, kTimerToken = 1, kFirstTenantToken = 2;

void wake_all(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

struct Place {  // one tenant on one device
  ShareTenantId tenant = 0;
  ShareDevice terms;
  contract::GrantDevice* grant = nullptr;
  const contract::ClaimPage* claim = nullptr;
  ShareClaims claims;
  pool::ShareClaim last;
  std::uint64_t read_ns = 0;
  bool admitted = false;
  bool rung = true;
};

struct Device {
  pool::Arbiter arbiter;
  std::vector<Place*> places;
  std::uint64_t due = 0;  // 0: at once
};

struct Tenant {
  ShareTenant pages;
  std::vector<std::unique_ptr<Place>> places;
  std::uint64_t token = 0;
  std::uint64_t window_ns = 0;
  unsigned rings = 0;
  bool deaf = false;
  std::uint64_t outline = 0;
};

pool::ShareTerms terms_of(const ShareDevice& device) {
  const double whole = contract::kWholeShare;
  return {std::min(1.0, device.request / whole), std::min(1.0, device.limit / whole), device.latency};
}

// What a tenant refills at while nobody decides: its floor, and never nothing.
std::uint32_t fallback_of(const ShareDevice& device) {
  const std::uint32_t least = std::min<std::uint32_t>(device.limit, contract::kWholeShare / 20);
  return std::clamp(device.request, least, std::max(least, device.limit));
}

}  // namespace

struct ShareLoop::State {
  mutable std::mutex mutex;
  std::map<ShareTenantId, Tenant> tenants;
  std::map<std::uint64_t, ShareTenantId> by_token;
  std::map<std::uint32_t, Device> devices;
  std::vector<pool::ShareStretch> stretches;
  system::Fd epoll, wake, timer;
  std::uint64_t next_token = kFirstTenantToken;
  std::uint64_t heartbeat_ns = 0;
  std::uint64_t heartbeat_period_ns = kHeartbeatNs;
  std::uint64_t passes = 0;
  bool precise_wait = true;
  std::atomic<std::uint64_t> cpu{0};
  std::atomic<bool> stopping{false};
  std::thread thread;

  void listen(int file, std::uint64_t token) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = token;
    ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, file, &event);
  }
  void place_on_device(ShareTenantId id, Tenant& tenant, const ShareDevice& terms, std::uint64_t now);
  void drop(Tenant& tenant, std::uint64_t now);
  void ring(Tenant& tenant, std::uint64_t now);
  void read(Place& place, Device& device, std::uint64_t now);
  void pass(Device& device, std::uint64_t now);
  void write(Place& place, const pool::ShareGrant& grant);
  void beat(std::uint64_t now);
  void announce(Tenant& tenant);
  void drain(std::uint64_t now);
  void handle(const epoll_event* events, int count, std::uint64_t now);
  int sleep(epoll_event* events, std::uint64_t due, std::uint64_t now);
  std::uint64_t run(std::uint64_t now);
  void loop();
};

void ShareLoop::State::place_on_device(ShareTenantId id, Tenant& tenant, const ShareDevice& terms, std::uint64_t now) {
  if (terms.slot >= contract::kMaxDevices) return;
  auto place = std::make_unique<Place>();
  place->tenant = id;
  place->terms = terms;
  place->grant = &tenant.pages.grant->devices[terms.slot];
  place->claim = tenant.pages.claim;
  Device& device = devices[terms.device];
  device.arbiter.add(id, terms_of(terms), now);
  device.places.push_back(place.get());
  device.due = 0;
  place->grant->fallback_share.store(fallback_of(terms), kRelaxed);
  tenant.places.push_back(std::move(place));
}

void ShareLoop::State::drop(Tenant& tenant, std::uint64_t now) {
  for (const auto& place : tenant.places) {
    const auto found = devices.find(place->terms.device);
    if (found == devices.end()) continue;
    Device& device = found->second;
    std::erase(device.places, place.get());
    device.arbiter.remove(place->tenant, now);
    device.due = 0;
    if (device.places.empty()) devices.erase(found);
  }
  tenant.places.clear();
}

void ShareLoop::State::write(Place& place, const pool::ShareGrant& grant) {
  contract::GrantDevice& page = *place.grant;
  const auto store = [](auto& word, auto value) {
    if (word.load(kRelaxed) != value) word.store(value, kRelaxed);
  };
  store(page.window_ns, grant.window_ns);
  store(page.granted_ns, grant.service_ns);
  store(page.estimate_scale, static_cast<std::uint32_t>(grant.scale * 65536));
  const std::uint32_t flags = page.flags.load(kRelaxed);
  const bool was_open = (flags & contract::kComputeUnlimited) != 0;
  if (grant.unlimited && !was_open) page.flags.fetch_or(contract::kComputeUnlimited, kRelaxed);
  if (!grant.unlimited && was_open) page.flags.fetch_and(~std::uint32_t{contract::kComputeUnlimited}, kRelaxed);
  const std::uint32_t before = page.gate.load(kRelaxed);
  std::uint32_t bits = 0;
  if (grant.admitted) bits |= contract::kGateAdmitted;
  if (grant.known) bits |= contract::kGateKnown;
  if (grant.contended) bits |= contract::kGateContended;
  constexpr std::uint32_t kBits = contract::kGateStep - 1;
  if ((before & kBits) != bits) {
    page.gate.store(((before & ~kBits) + contract::kGateStep) | bits, std::memory_order_release);
    const bool opened = grant.admitted && (before & contract::kGateAdmitted) == 0;
    if (opened || (grant.unlimited && !was_open)) wake_all(page.gate);
  }
  place.admitted = grant.admitted;
}

void ShareLoop::State::read(Place& place, Device& device, std::uint64_t now) {
  const pool::ShareClaim& last = place.last;
  // A tenant that waits with nothing on the device, or has nothing to do, rings before that changes.
  const bool quiet = !place.rung && !place.admitted && last.open_since_ns == pool::kNever && last.progress_ns <= now &&
                     now < place.read_ns + kQuietNs;
  if (quiet) return;
  place.rung = false;
  place.read_ns = now;
  place.last = place.claims.read(*place.claim, place.terms.slot, now, stretches);
  device.arbiter.observe(place.tenant, place.last, stretches, now);
}

void ShareLoop::State::pass(Device& device, std::uint64_t now) {
  ++passes;
  for (Place* place : device.places) read(*place, device, now);
  device.due = device.arbiter.decide(now);
  for (Place* place : device.places) write(*place, device.arbiter.grant(place->tenant));
}

void ShareLoop::State::beat(std::uint64_t now) {
  heartbeat_ns = now;
  heartbeat_period_ns = kIdleHeartbeatNs;
  for (auto& [id, tenant] : tenants) {
    tenant.pages.grant->heartbeat_ns.store(now, std::memory_order_release);
    if (tenant.deaf && now > tenant.window_ns + kFloodWindowNs) {
      tenant.deaf = false;
      listen(tenant.pages.bell, tenant.token);
      for (const auto& place : tenant.places) {
        place->rung = true;
        devices[place->terms.device].due = 0;
      }
    }
    announce(tenant);  // processes come and go without a ring, too
    for (const auto& place : tenant.places)
      if (place->claims.anyone()) heartbeat_period_ns = kHeartbeatNs;
  }
}

void ShareLoop::State::announce(Tenant& tenant) {
  if (tenant.pages.notify < 0) return;
  std::uint64_t outline = 0;
  for (const auto& place : tenant.places) outline = outline * 31 + place->claims.outline();
  if (outline == tenant.outline) return;
  tenant.outline = outline;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(tenant.pages.notify, &one, sizeof one));
}

void ShareLoop::State::ring(Tenant& tenant, std::uint64_t now) {
  char sink[4096];
  static_cast<void>(!::read(tenant.pages.bell, sink, sizeof sink));
  heartbeat_period_ns = kHeartbeatNs;
  if (now > tenant.window_ns + kFloodWindowNs) {
    tenant.window_ns = now;
    tenant.rings = 0;
  }
  if (++tenant.rings > kRingsPerWindow && !tenant.deaf) {
    tenant.deaf = true;
    ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, tenant.pages.bell, nullptr);
  }
  for (const auto& place : tenant.places) {
    place->rung = true;
    Device& device = devices[place->terms.device];
    device.due = 0;
    if (tenant.pages.notify >= 0) read(*place, device, now);
  }
  announce(tenant);
}

void ShareLoop::State::drain(std::uint64_t now) {
  epoll_event events[kEvents];
  handle(events, ::epoll_wait(epoll.get(), events, kEvents, 0), now);
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
      ring(tenants[id->second], now);
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
  for (auto& [ordinal, device] : devices) {
    if (device.due <= now + kTogetherNs) pass(device, now);
  }
  if (now >= heartbeat_ns + heartbeat_period_ns) beat(now);
  std::uint64_t due = heartbeat_ns + heartbeat_period_ns;
  for (const auto& [ordinal, device] : devices) due = std::min(due, device.due);
  if (devices.size() < kManyDevices) return due;
  return due > now ? (due + kManyGridNs - 1) / kManyGridNs * kManyGridNs : due;
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
  const std::uint64_t one = 1;
  static_cast<void>(!::write(state_->wake.get(), &one, sizeof one));
  state_->thread.join();
}

void ShareLoop::add_tenant(ShareTenantId id, ShareTenant pages) {
  remove_tenant(id);
  if (pages.grant == nullptr || pages.claim == nullptr) return;
  const std::lock_guard lock(state_->mutex);
  const std::uint64_t now = system::monotonic_ns();
  Tenant& tenant = state_->tenants[id];
  tenant.pages = std::move(pages);
  tenant.token = state_->next_token++;
  state_->by_token[tenant.token] = id;
  for (const ShareDevice& device : tenant.pages.devices) state_->place_on_device(id, tenant, device, now);
  tenant.pages.grant->heartbeat_ns.store(now, std::memory_order_release);
  if (tenant.pages.bell >= 0) state_->listen(tenant.pages.bell, tenant.token);
  const std::uint64_t one = 1;
  static_cast<void>(!::write(state_->wake.get(), &one, sizeof one));
}

void ShareLoop::update_tenant(ShareTenantId id, const std::vector<ShareDevice>& devices) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->tenants.find(id);
  if (found == state_->tenants.end()) return;
  Tenant& tenant = found->second;
  const std::uint64_t now = system::monotonic_ns();
  for (const ShareDevice& terms : devices) {
    const auto known = std::find_if(tenant.places.begin(), tenant.places.end(),
                                    [&](const auto& place) { return place->terms.slot == terms.slot; });
    if (known != tenant.places.end() && (*known)->terms.device == terms.device) {
      (*known)->terms = terms;
      (*known)->grant->fallback_share.store(fallback_of(terms), kRelaxed);
      Device& device = state_->devices[terms.device];
      device.arbiter.change(id, terms_of(terms), now);
      device.due = 0;
    } else if (known == tenant.places.end()) {
      state_->place_on_device(id, tenant, terms, now);
    }
  }
  const std::uint64_t one = 1;
  static_cast<void>(!::write(state_->wake.get(), &one, sizeof one));
}

void ShareLoop::remove_tenant(ShareTenantId id) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->tenants.find(id);
  if (found == state_->tenants.end()) return;
  Tenant& tenant = found->second;
  if (tenant.pages.bell >= 0 && !tenant.deaf)
    ::epoll_ctl(state_->epoll.get(), EPOLL_CTL_DEL, tenant.pages.bell, nullptr);
  state_->drop(tenant, system::monotonic_ns());
  state_->by_token.erase(tenant.token);
  state_->tenants.erase(found);
  const std::uint64_t one = 1;
  static_cast<void>(!::write(state_->wake.get(), &one, sizeof one));
}

void ShareLoop::observe_utilisation(ShareTenantId id, std::uint32_t device, double percent, std::uint64_t window_ns) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->devices.find(device);
  if (found != state_->devices.end())
    found->second.arbiter.observe_utilisation(id, percent, window_ns, system::monotonic_ns());
}

ShareUsage ShareLoop::usage(ShareTenantId id, std::uint32_t device) const {
  const std::lock_guard lock(state_->mutex);
  ShareUsage usage;
  const auto found = state_->devices.find(device);
  if (found == state_->devices.end()) return usage;
  for (const Place* place : found->second.places) {
    if (place->tenant != id) continue;
    const pool::ShareAccount account = found->second.arbiter.account(id);
    usage.service_ns = static_cast<std::uint64_t>(std::max(0.0, account.service_ns));
    usage.estimated_ns = static_cast<std::uint64_t>(std::max(0.0, account.estimated_ns));
    usage.held_ns = place->claims.held_ns();
    usage.launches = place->claims.launches();
    usage.scale = account.scale;
    usage.admitted = place->admitted;
    usage.wanting = account.wanting;
    usage.bypass_suspected = account.bypass_suspected;
  }
  return usage;
}

std::uint64_t ShareLoop::cpu_ns() const { return state_->cpu.load(kRelaxed); }

std::uint64_t ShareLoop::passes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->passes;
}

int ShareLoop::wait_fd() const { return state_->epoll.get(); }

std::uint64_t ShareLoop::run_once(std::uint64_t now_ns) {
  const std::lock_guard lock(state_->mutex);
  state_->drain(now_ns);
  return state_->run(now_ns);
}

}  // namespace tensor_fusion::node::hypervisor
