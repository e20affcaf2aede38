#include "guest/limiter/hooks/overhead.h"

#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kSettleNs = 100'000'000;
// What a context counts as until its real cost is known: more than those of today's drivers.
constexpr std::uint64_t kUnknownOverhead = 512ull << 20;
constexpr std::uint64_t kGuessPatienceNs = 1'000'000'000;
constexpr std::uint64_t kGuessShownNs = 50'000'000;
constexpr std::uint64_t kAwayPatienceNs = 200'000'000;  // an idle hypervisor's heartbeat is this slow to come back
constexpr std::uint64_t kLookNs = 5'000'000;

std::atomic<std::uint32_t>& guesses_on(const Device& device) {
  Attachment& attached = *attachment();
  return attached.guesses[&device - attached.devices];
}

bool somebody_guesses(const Device& device) {
  const contract::ClaimPage& page = *g_shared.slice.claim;
  for (std::uint32_t slot = 0; slot < contract::kMaxProcesses && slot < page.process_high.load(); ++slot)
    if (page.processes[slot].state.load() == contract::kSlotLive &&
        page.processes[slot].devices[device.index].guessed_bytes.load() != 0)
      return true;
  return false;
}

// A shared server, one pid for many: no reading will ever say what a context of ours costs.
bool nobody_can_tell(const Device& device) {
  return device.grant->reading_done.load(std::memory_order_acquire) != 0 && device.grant->observed_bytes.load() == 0;
}

// Of a guess, in the claim, which may be forged.
void take_back_guess(Device& device, std::uint64_t bytes) {
  std::uint64_t said = device.mine->guessed_bytes.load(std::memory_order_relaxed);
  while (!device.mine->guessed_bytes.compare_exchange_weak(said, said > bytes ? said - bytes : 0,
                                                           std::memory_order_acq_rel)) {
  }
}

bool book_guesses(Device& device, std::uint64_t known) {
  Attachment& attached = *attachment();
  std::uint64_t guessed = 0;
  std::uint32_t count = 0;
  attached.holdings.remove_if([&](Holding& holding) {
    if (holding.kind != Kind::context || !holding.guessed || &attached.devices[holding.device] != &device) return false;
    guessed += holding.bytes;
    ++count;
    holding.bytes = known;
    holding.guessed = false;
    return false;
  });
  if (count == 0) return false;
  guesses_on(device).fetch_sub(count, std::memory_order_relaxed);
  take_back_guess(device, guessed);
  const std::uint64_t cost = known * count;
  if (cost > guessed) attached.ledger.charge(device, cost - guessed);
  if (cost < guessed) attached.ledger.release(device, guessed - cost);
  return true;
}

// Of a context that was just made. The guess stays charged where the driver's account does not tell, until it does.
void settle_new_guess(Device& device, std::uint64_t guess) {
  const std::uint32_t begun = device.grant->reading_begun.load(std::memory_order_acquire);
  for (int attempt = 0; attempt < 3 && guesses_on(device).load(std::memory_order_relaxed) != 0; ++attempt) {
    ask_for_overhead(device);
    settle_guesses(device);
  }
  if (guesses_on(device).load(std::memory_order_relaxed) == 0) return;
  // The driver was read since, the slice has this context and nothing else, and nothing is shown for it.
  const bool read = static_cast<std::int32_t>(device.grant->reading_done.load(std::memory_order_acquire) - begun) > 0;
  if (read && device.claim->used_bytes.load() == guess && device.grant->observed_bytes.load() <= 1)
    book_guesses(device, 0);
}

// What was learned of contexts on this device may be too much: it may come from a program that hid memory of its own in
// it. While a process holds nothing but contexts, and is the only one of its slice, they cost no more than the driver
// shows for the slice.
void bound_overhead(Device& device, std::uint64_t context) {
  Attachment& attached = *attachment();
  std::uint64_t of_contexts = 0;
  attached.holdings.remove_if([&](const Holding& holding) {
    if (holding.kind == Kind::context && &attached.devices[holding.device] == &device) of_contexts += holding.bytes;
    return false;
  });
  if (attached.ledger.holds(device) != of_contexts || attached.ledger.is_one_of_several(device) ||
      !ask_for_reading(device))
    return;
  std::uint64_t surplus = attached.ledger.surplus(device);
  attached.holdings.update(Kind::context, context, [&](Holding& holding) {
    if (surplus > holding.bytes) surplus = holding.bytes;
    holding.bytes -= surplus;
  });
  attached.ledger.release(device, surplus);
}

}  // namespace

bool ask_for_overhead(Device& device) {
  if (hypervisor_away()) return false;
  const std::uint32_t before = device.grant->settled.load(std::memory_order_relaxed);
  device.mine->settle_request.fetch_add(1, std::memory_order_release);
  ring(g_shared.slice);
  const std::uint64_t end = os::monotonic_ns() + kSettleNs;
  while (device.grant->settled.load(std::memory_order_acquire) == before) {
    const std::uint64_t now = os::monotonic_ns();
    if (now >= end) return false;
    os::futex_wait(&device.grant->settled, before, end - now, true);
  }
  return true;
}

// Reserves what a new context costs. While that is not known it is a guess, so that nobody takes meanwhile what the
// driver takes for it; the first to be measured sets the others free, and with nobody to measure it stays. The first
// context of a slice no larger than the guess may have it all, a later one may not: it could cost more than is left.
Room reserve_overhead(Device& device, Overhead& overhead) {
  auto& [bytes, guessed] = overhead;
  const std::uint64_t begin = os::monotonic_ns();
  for (;;) {
    const std::uint32_t settled = device.grant->settled.load(std::memory_order_acquire);
    bytes = device.grant->context_overhead_bytes.load(std::memory_order_acquire);
    guessed = bytes == 0 && !nobody_can_tell(device);
    if (!guessed) return reserve(device, bytes);
    const Ledger::View view = Ledger::view(device);
    const std::uint64_t left = view.limit - view.used;
    bytes = kUnknownOverhead;
    Room room = view.unlimited || left >= bytes ? try_reserve(device, bytes) : Room::full;
    if (room) break;
    // The driver's account may leave a little less than the ledger does.
    if (view.used == 0 && left <= kUnknownOverhead) {
      for (bytes = left; bytes != 0; bytes -= (bytes + 15) / 16)
        if (room = try_reserve(device, bytes); room || room.is_unlisted()) break;
      if (room) break;
    }
    // Another's guess stands in its claim a moment after it is reserved, and becomes less only if somebody measures.
    const std::uint64_t waited = os::monotonic_ns() - begin;
    if (room.is_unlisted() || waited >= kGuessPatienceNs || (waited >= kGuessShownNs && !somebody_guesses(device)) ||
        (waited >= kAwayPatienceNs && hypervisor_away())) {
      refuse(device, kUnknownOverhead, room);
      return room;
    }
    os::futex_wait(&device.grant->settled, settled, kLookNs, true);
  }
  device.mine->guessed_bytes.fetch_add(bytes, std::memory_order_acq_rel);
  return Room::fits;
}

void give_back_overhead(Device& device, const Overhead& overhead) {
  if (overhead.guessed) take_back_guess(device, overhead.bytes);
  release(device, overhead.bytes);
}

void book_overhead(Device& device, CUcontext context, const Overhead& overhead) {
  Attachment& attached = *attachment();
  const auto word = reinterpret_cast<std::uint64_t>(context);
  Holding holding;
  holding.kind = Kind::context;
  holding.key = word;
  holding.context = word;
  holding.bytes = overhead.bytes;
  holding.device = static_cast<std::uint32_t>(&device - attached.devices);
  holding.guessed = overhead.guessed;
  if (overhead.guessed) guesses_on(device).fetch_add(1, std::memory_order_relaxed);
  const bool booked = attached.holdings.insert(holding);
  device.mine->contexts.fetch_add(1, std::memory_order_relaxed);
  if (!booked) {
    if (overhead.guessed) guesses_on(device).fetch_sub(1, std::memory_order_relaxed);
    give_back_overhead(device, overhead);
  } else if (overhead.guessed) {
    settle_new_guess(device, overhead.bytes);
  } else if (overhead.bytes == 0) {
    ask_for_overhead(device);
  } else {
    bound_overhead(device, word);
  }
}

void forget_guess(Device& device, std::uint64_t bytes) {
  guesses_on(device).fetch_sub(1, std::memory_order_relaxed);
  take_back_guess(device, bytes);
}

bool settle_guesses(Device& device) {
  if (__builtin_expect(guesses_on(device).load(std::memory_order_relaxed) == 0, 1)) return false;
  const std::uint64_t known = device.grant->context_overhead_bytes.load(std::memory_order_acquire);
  return (known != 0 || nobody_can_tell(device)) && book_guesses(device, known);
}

}  // namespace tensor_fusion::guest::limiter
