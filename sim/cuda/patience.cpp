#include "sim/cuda/patience.h"

#include <utility>

#include "sim/cuda/context.h"
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/device/long_run.h"

namespace tensor_fusion::sim::cuda {
namespace {
constexpr std::uint64_t kAgainNs = 2'000'000, kAheadNs = 20'000'000;
}

Patience::Patience(Context& context, std::shared_ptr<Place> place)
    : context_(context),
      place_(std::move(place)),
      next_ns_(device::now_ns() + static_cast<std::uint64_t>(context.device().profile().stall_ms * 1e6 / 4)) {}

void Patience::look() {
  const std::uint64_t now = device::now_ns();
  std::uint64_t next = next_ns_.load(std::memory_order_relaxed);
  if (now < next || !next_ns_.compare_exchange_strong(next, now + kAgainNs)) return;
  if (const device::Ticket ticket = place_->load(); ticket != 0)
    device::keep_running(Driver::get().machine(), context_.timing(), ticket, kAheadNs);
}

}  // namespace tensor_fusion::sim::cuda
