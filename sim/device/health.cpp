#include "sim/device/health.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "sim/device/robust_lock.h"
#include "sim/device/state.h"

namespace tensor_fusion::sim::device {

void report_xid(Machine& machine, unsigned device, std::uint32_t xid, std::uint32_t pid, std::int32_t gpu_instance,
                std::int32_t compute_instance) {
  State& state = machine.state();
  DeviceRecord& card = state.devices[device];
  {
    RobustLock lock(state.admin, [] {});
    const std::uint64_t number = card.health_count.load(std::memory_order_relaxed) + 1;
    HealthRecord& record = card.health[number % kHealthEvents];
    record.number.store(0, std::memory_order_relaxed);
    record.time_ns = now_ns();
    record.xid = xid;
    record.pid = pid;
    record.gpu_instance = gpu_instance;
    record.compute_instance = compute_instance;
    record.number.store(number, std::memory_order_release);
    card.health_count.store(number, std::memory_order_release);
  }
  state.health_stir.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &state.health_stir, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::uint64_t last_health_event(Machine& machine, unsigned device) {
  return machine.state().devices[device].health_count.load(std::memory_order_acquire);
}

std::vector<HealthEvent> health_events(Machine& machine, unsigned device, std::uint64_t after) {
  State& state = machine.state();
  DeviceRecord& card = state.devices[device];
  RobustLock lock(state.admin, [] {});
  const std::uint64_t count = card.health_count.load(std::memory_order_acquire);
  std::vector<HealthEvent> list;
  const std::uint64_t oldest = count - std::min<std::uint64_t>(count, kHealthEvents);
  for (std::uint64_t n = std::max(after, oldest) + 1; n <= count; ++n) {
    const HealthRecord& r = card.health[n % kHealthEvents];
    if (r.number.load(std::memory_order_acquire) != n) continue;
    list.push_back({n, r.time_ns, r.xid, r.pid, r.gpu_instance, r.compute_instance});
  }
  return list;
}

bool wait_health_event(Machine& machine, const std::vector<std::uint64_t>& seen, std::uint32_t timeout_ms) {
  State& state = machine.state();
  const std::uint64_t deadline = now_ns() + std::uint64_t{timeout_ms} * 1'000'000;
  for (;;) {
    const std::uint32_t stirred = state.health_stir.load(std::memory_order_seq_cst);
    for (unsigned d = 0; d < machine.device_count() && d < seen.size(); ++d) {
      if (last_health_event(machine, d) > seen[d]) return true;
    }
    const std::uint64_t now = now_ns();
    if (now >= deadline) return false;
    const std::uint64_t left = deadline - now;
    const timespec timeout{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    ::syscall(SYS_futex, &state.health_stir, FUTEX_WAIT, stirred, &timeout, nullptr, 0);
  }
}

}  // namespace tensor_fusion::sim::device
