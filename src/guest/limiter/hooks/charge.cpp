#include "guest/limiter/hooks/charge.h"

#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kSweepPeriodNs = 20'000'000;  // of the whole tenant

// One process of the tenant at a time looks for the dead: many may be refused at once.
bool sweep_due() {
  auto& swept = g_shared.slice.claim->swept_ns;
  const std::uint64_t now = os::monotonic_ns();
  std::uint64_t last = swept.load(std::memory_order_relaxed);
  if (last <= now && now - last < kSweepPeriodNs) return false;
  return swept.compare_exchange_strong(last, now, std::memory_order_relaxed);
}

[[gnu::noinline, gnu::cold]] Room reserve_when_full(Device& device, std::uint64_t bytes) {
  Attachment* attached = attachment();
  if (g_shared.slice.grant->closed.load(std::memory_order_relaxed) != 0) return Room::full;
  bool collected = settle_pools(*attached, &device);
  collected = settle_guesses(device) || collected;
  collected = attached->sharing.settle(*attached) || collected;
  collected = (sweep_due() && attached->ledger.sweep()) || collected;
  // Where the page was overwritten, what the driver shows beyond the ledger is what this process itself holds.
  if (attached->ledger.put_right(device)) {
    ask_for_reading(device);
    collected = true;
  }
  return collected ? attached->ledger.reserve(device, bytes) : Room::full;
}

[[gnu::always_inline]] inline Room try_reserve_now(Device& device, std::uint64_t bytes) {
  const Room room = attachment()->ledger.reserve(device, bytes);
  if (__builtin_expect(static_cast<bool>(room), 1)) return room;
  return room.is_unlisted() ? room : reserve_when_full(device, bytes);
}

}  // namespace

Room try_reserve(Device& device, std::uint64_t bytes) { return try_reserve_now(device, bytes); }

Room reserve(Device& device, std::uint64_t bytes) {
  const Room room = try_reserve_now(device, bytes);
  if (__builtin_expect(!room, 0)) refuse(device, bytes, room);
  return room;
}

CUresult no_room(Room room) { return room.is_unlisted() ? refusal() : CUDA_ERROR_OUT_OF_MEMORY; }

void release(Device& device, std::uint64_t bytes) { attachment()->ledger.release(device, bytes); }

}  // namespace tensor_fusion::guest::limiter
