#include "guest/limiter/core/lease.h"

#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter::gate {
namespace {
constexpr auto kRelaxed = std::memory_order_relaxed;
}

constinit Leases g_leases[kThreads]{};
constinit Mutex g_leases_mutex;
std::atomic<std::uint32_t> g_epoch{1};
constinit thread_local std::uint32_t t_place = 0;

void take_leases() {
  if (has_leases()) return;
  const std::uint32_t me = os::thread_id();
  Guard guard(g_leases_mutex);
  for (std::uint32_t place = 1; place < kThreads; ++place) {
    if (g_leases[place].thread.load(kRelaxed) != 0) continue;
    g_leases[place].thread.store(me, kRelaxed);
    t_place = place;
    return;
  }
}

// Its lock came along with the fork, who held it did not.
void forget_leases() {
  g_epoch.fetch_add(1, kRelaxed);
  g_leases_mutex.reset();
  t_place = 0;
  for (Leases& place : g_leases) {
    for (Lease& lease : place.of_stream) lease = Lease{};
    place.thread.store(0, kRelaxed);
  }
}

}  // namespace tensor_fusion::guest::limiter::gate
