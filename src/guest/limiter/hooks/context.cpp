// Contexts: their overhead is charged, their end drops all they held, and the calling thread's current device follows.
#include "guest/limiter/core/captures.h"
#include "guest/limiter/core/log.h"
#include "guest/limiter/core/os.h"
#include "guest/limiter/hooks/charge.h"
#include "guest/limiter/hooks/physical.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kSettleNs = 100'000'000;
// What a context counts as until its real cost is known: more than those of today's drivers.
constexpr std::uint64_t kUnknownOverhead = 512ull << 20;
constexpr std::uint64_t kGuessPatienceNs = 1'000'000'000;
constexpr std::uint64_t kGuessShownNs = 50'000'000;
constexpr std::uint64_t kAwayPatienceNs = 200'000'000;  // an idle hypervisor's heartbeat is this slow to come back
constexpr std::uint64_t kLookNs = 5'000'000;

std::uint64_t word_of(CUcontext context) { return reinterpret_cast<std::uint64_t>(context); }

// The overhead of a context on this device was not known when it was made: the hypervisor reads it off the driver's own
// account, now that it has come or gone.
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

// Reserves what a new context costs. While that is not known it is a guess, so that nobody takes meanwhile what the
// driver takes for it; the first to be measured sets the others free, and with nobody to measure it stays. The first
// context of a slice smaller than the guess may have it all, a later one may not: it could cost more than is left.
Room reserve_overhead(Device& device, std::uint64_t& bytes, bool& guessed) {
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
    if (view.used == 0 && left < kUnknownOverhead) {
      for (bytes = left; bytes != 0; bytes -= (bytes + 15) / 16)
        if (room = try_reserve(device, bytes); room || room.is_unlisted()) break;
      if (room) break;
    }
    // Another's guess stands in its claim a moment after it is reserved, and becomes less only if somebody measures.
    const std::uint64_t waited = os::monotonic_ns() - begin;
    if (room.is_unlisted() || waited >= kGuessPatienceNs || (waited >= kGuessShownNs && !somebody_guesses(device)) ||
        (waited >= kAwayPatienceNs && hypervisor_away())) {
      Ledger::count_refusal(device);
      return room;
    }
    os::futex_wait(&device.grant->settled, settled, kLookNs, true);
  }
  device.mine->guessed_bytes.fetch_add(bytes, std::memory_order_acq_rel);
  return Room::fits;
}

// Of a guess, in the claim, which may be forged.
void take_back_guess(Device& device, std::uint64_t bytes) {
  std::uint64_t said = device.mine->guessed_bytes.load(std::memory_order_relaxed);
  while (!device.mine->guessed_bytes.compare_exchange_weak(said, said > bytes ? said - bytes : 0,
                                                           std::memory_order_acq_rel)) {
  }
}

void give_back_overhead(Device& device, std::uint64_t bytes, bool guessed) {
  if (guessed) take_back_guess(device, bytes);
  release(device, bytes);
}

std::atomic<std::uint32_t>& guesses_on(const Device& device) {
  Attachment& attached = *attachment();
  return attached.guesses[&device - attached.devices];
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

void context_made(Device& device, CUcontext context, std::uint64_t overhead, bool guessed) {
  Attachment& attached = *attachment();
  Holding holding;
  holding.kind = Kind::context;
  holding.key = word_of(context);
  holding.context = word_of(context);
  holding.bytes = overhead;
  holding.device = static_cast<std::uint32_t>(&device - attached.devices);
  holding.guessed = guessed;
  if (guessed) guesses_on(device).fetch_add(1, std::memory_order_relaxed);
  const bool booked = attached.holdings.insert(holding);
  device.mine->contexts.fetch_add(1, std::memory_order_relaxed);
  if (!booked) {
    if (guessed) guesses_on(device).fetch_sub(1, std::memory_order_relaxed);
    give_back_overhead(device, overhead, guessed);
  } else if (guessed) {
    settle_new_guess(device, overhead);
  } else if (overhead == 0) {
    ask_for_overhead(device);
  }
}

// Everything made in this context goes with it.
void context_gone(CUcontext context) {
  Attachment* attached = attachment();
  if (attached == nullptr || context == nullptr) return;
  if (gate::g_captures.any()) gate::g_captures.context_gone(word_of(context));
  constexpr std::size_t kArrays = 64;  // at once: as many rounds as it takes
  std::uint64_t arrays[kArrays];
  std::uint64_t bytes[contract::kMaxDevices] = {};
  bool was_ours = false;
  bool unbooked = false;
  std::uint32_t home = 0;
  for (std::size_t array_count = kArrays; array_count == kArrays;) {
    array_count = 0;
    attached->holdings.remove_if([&](const Holding& holding) {
      if (holding.context != word_of(context)) return false;
      switch (holding.kind) {
        case Kind::physical:
        case Kind::mapping:
        case Kind::tile:
        case Kind::record:
        case Kind::exec:
          return false;  // these belong to no context
        default:
          break;
      }
      if (holding.kind == Kind::context) {
        was_ours = true;
        unbooked = holding.bytes == 0;
        home = holding.device;
        if (holding.guessed) {
          guesses_on(attached->devices[home]).fetch_sub(1, std::memory_order_relaxed);
          take_back_guess(attached->devices[home], holding.bytes);
        }
      }
      const bool array = holding.kind == Kind::array || holding.kind == Kind::mipmap;
      if (array && any_tiles()) {
        if (array_count == kArrays) return false;
        arrays[array_count++] = holding.key;
      }
      bytes[holding.device] += holding.bytes;
      return true;
    });
    for (std::size_t i = 0; i < array_count; ++i) forget_tiles(arrays[i]);
  }
  for (std::uint32_t index = 0; index < attached->device_count; ++index)
    attached->ledger.release(attached->devices[index], bytes[index]);
  if (was_ours) {
    auto& contexts = attached->devices[home].mine->contexts;
    if (contexts.load(std::memory_order_relaxed) != 0) contexts.fetch_sub(1, std::memory_order_relaxed);
    settle_pools(*attached, &attached->devices[home]);
    if (unbooked) ask_for_overhead(attached->devices[home]);
  }
  g_fork->epoch.fetch_add(1, std::memory_order_release);
}

void tell_gate(CUcontext context) {
  Attachment* attached = attachment();
  Holding holding;
  if (attached != nullptr && attached->holdings.find(Kind::context, word_of(context), holding))
    gate::context_destroyed(attached->devices[holding.device], context);
}

template <class Call>
CUresult create(CUcontext* context, CUdevice ordinal, Call call) {
  if (registered() == nullptr) return must_refuse() ? refusal() : call();
  Device* device = device_of(ordinal);
  // A device outside the slice is none to this program. (A number that is no device gives the driver's own answer.)
  if (device == nullptr) return ordinal >= 0 && ordinal < kMaxOrdinals ? CUDA_ERROR_INVALID_DEVICE : call();
  if (g_shared.slice.grant->closed.load(std::memory_order_relaxed) != 0) return refusal();
  Guard guard(attachment()->context_mutex);
  std::uint64_t overhead = 0;
  bool guessed = false;
  if (const Room room = reserve_overhead(*device, overhead, guessed); !room) return no_room(room);
  fault(FaultPoint::reserved);
  const CUresult result = call();
  forget_current();
  if (result != CUDA_SUCCESS) {
    give_back_overhead(*device, overhead, guessed);
    return result;
  }
  context_made(*device, *context, overhead, guessed);
  return result;
}

template <class Call>
CUresult destroy(CUcontext context, Call call) {
  tell_gate(context);
  const CUresult result = call();
  if (result == CUDA_SUCCESS) context_gone(context);
  return result;
}

bool primary_active(CUdevice ordinal) {
  unsigned flags = 0;
  int active = 0;
  return TF_REAL(cuDevicePrimaryCtxGetState)(ordinal, &flags, &active) == CUDA_SUCCESS && active != 0;
}

template <class Call>
CUresult leave_primary(CUdevice ordinal, bool always, Call call) {
  Device* device = device_of(ordinal);
  if (device == nullptr) return must_refuse() ? refusal() : call();
  Attachment& attached = *attachment();
  Guard guard(attached.context_mutex);
  std::uint64_t& primary = attached.primary[device - attached.devices];
  const auto context = reinterpret_cast<CUcontext>(primary);
  if (always && primary != 0) tell_gate(context);
  const CUresult result = call();
  if (result == CUDA_SUCCESS && primary != 0 && (always || !primary_active(ordinal))) {
    if (!always) tell_gate(context);
    context_gone(context);
    primary = 0;
  }
  return result;
}

}  // namespace

bool settle_guesses(Device& device) {
  if (__builtin_expect(guesses_on(device).load(std::memory_order_relaxed) == 0, 1)) return false;
  const std::uint64_t known = device.grant->context_overhead_bytes.load(std::memory_order_acquire);
  return (known != 0 || nobody_can_tell(device)) && book_guesses(device, known);
}

TF_ENTRY(cuCtxCreate, (CUcontext * context, unsigned flags, CUdevice device)) {
  return create(context, device, [&] { return TF_REAL(cuCtxCreate)(context, flags, device); });
}
TF_ENTRY(cuCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice device)) {
  return create(context, device, [&] { return TF_REAL(cuCtxCreate_v2)(context, flags, device); });
}
TF_ENTRY(cuCtxCreate_v3,
         (CUcontext * context, CUexecAffinityParam* affinity, int count, unsigned flags, CUdevice device)) {
  return create(context, device, [&] { return TF_REAL(cuCtxCreate_v3)(context, affinity, count, flags, device); });
}
TF_ENTRY(cuCtxCreate_v4, (CUcontext * context, CUctxCreateParams* params, unsigned flags, CUdevice device)) {
  return create(context, device, [&] { return TF_REAL(cuCtxCreate_v4)(context, params, flags, device); });
}
TF_ENTRY(cuCtxDestroy, (CUcontext context)) {
  return destroy(context, [&] { return TF_REAL(cuCtxDestroy)(context); });
}
TF_ENTRY(cuCtxDestroy_v2, (CUcontext context)) {
  return destroy(context, [&] { return TF_REAL(cuCtxDestroy_v2)(context); });
}
// A context counts its users: only when the last lets go is it gone, with what was made in it.
TF_ENTRY(cuCtxAttach, (CUcontext * context, unsigned flags)) {
  const CUresult result = TF_FORWARD(cuCtxAttach, context, flags);
  if (result == CUDA_SUCCESS && attachment() != nullptr)
    attachment()->holdings.update(Kind::context, word_of(*context), [](Holding& holding) { ++holding.extra; });
  return result;
}
TF_ENTRY(cuCtxDetach, (CUcontext context)) {
  const CUresult result = TF_REAL(cuCtxDetach)(context);
  if (result != CUDA_SUCCESS) return result;
  bool last = true;
  if (Attachment* attached = attachment(); attached != nullptr)
    attached->holdings.update(Kind::context, word_of(context), [&](Holding& holding) {
      last = holding.extra == 0;
      if (!last) --holding.extra;
    });
  if (!last) return result;
  tell_gate(context);
  context_gone(context);
  return result;
}

TF_ENTRY(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice ordinal)) {
  if (registered() == nullptr) return TF_FORWARD(cuDevicePrimaryCtxRetain, context, ordinal);
  Device* device = device_of(ordinal);
  if (device == nullptr)
    return ordinal >= 0 && ordinal < kMaxOrdinals ? CUDA_ERROR_INVALID_DEVICE
                                                  : TF_REAL(cuDevicePrimaryCtxRetain)(context, ordinal);
  if (g_shared.slice.grant->closed.load(std::memory_order_relaxed) != 0) return refusal();
  Attachment& attached = *attachment();
  Guard guard(attached.context_mutex);
  std::uint64_t& primary = attached.primary[device - attached.devices];
  if (primary != 0 && primary_active(ordinal)) return TF_REAL(cuDevicePrimaryCtxRetain)(context, ordinal);
  std::uint64_t overhead = 0;
  bool guessed = false;
  if (const Room room = reserve_overhead(*device, overhead, guessed); !room) return no_room(room);
  fault(FaultPoint::reserved);
  const CUresult result = TF_REAL(cuDevicePrimaryCtxRetain)(context, ordinal);
  if (result != CUDA_SUCCESS) {
    give_back_overhead(*device, overhead, guessed);
    return result;
  }
  primary = word_of(*context);
  context_made(*device, *context, overhead, guessed);
  return result;
}
TF_ENTRY(cuDevicePrimaryCtxRelease, (CUdevice device)) {
  return leave_primary(device, false, [&] { return TF_REAL(cuDevicePrimaryCtxRelease)(device); });
}
TF_ENTRY(cuDevicePrimaryCtxRelease_v2, (CUdevice device)) {
  return leave_primary(device, false, [&] { return TF_REAL(cuDevicePrimaryCtxRelease_v2)(device); });
}
TF_ENTRY(cuDevicePrimaryCtxReset, (CUdevice device)) {
  return leave_primary(device, true, [&] { return TF_REAL(cuDevicePrimaryCtxReset)(device); });
}
TF_ENTRY(cuDevicePrimaryCtxReset_v2, (CUdevice device)) {
  return leave_primary(device, true, [&] { return TF_REAL(cuDevicePrimaryCtxReset_v2)(device); });
}

TF_ENTRY(cuCtxSetCurrent, (CUcontext context)) {
  forget_current();
  return TF_REAL(cuCtxSetCurrent)(context);
}
TF_ENTRY(cuCtxPushCurrent, (CUcontext context)) {
  forget_current();
  return TF_REAL(cuCtxPushCurrent)(context);
}
TF_ENTRY(cuCtxPushCurrent_v2, (CUcontext context)) {
  forget_current();
  return TF_REAL(cuCtxPushCurrent_v2)(context);
}
TF_ENTRY(cuCtxPopCurrent, (CUcontext * context)) {
  forget_current();
  return TF_REAL(cuCtxPopCurrent)(context);
}
TF_ENTRY(cuCtxPopCurrent_v2, (CUcontext * context)) {
  forget_current();
  return TF_REAL(cuCtxPopCurrent_v2)(context);
}

// Memory that a context lets its kernels have without asking again: what goes beyond that of a new context is charged
// when it is allowed, since it is taken at some later launch.
TF_ENTRY(cuCtxSetLimit, (CUlimit limit, std::size_t value)) {
  Device* device = current_device();
  if (device == nullptr || (limit != CU_LIMIT_MALLOC_HEAP_SIZE && limit != CU_LIMIT_PRINTF_FIFO_SIZE))
    return TF_FORWARD(cuCtxSetLimit, limit, value);
  Attachment& attached = *attachment();
  Guard guard(attached.context_mutex);
  Holding setting;
  const std::uint64_t key = t_current.context ^ (static_cast<std::uint64_t>(limit) << 56);
  if (!attached.holdings.find(Kind::setting, key, setting)) {
    std::size_t first = 0;
    TF_REAL(cuCtxGetLimit)(&first, limit);
    setting.kind = Kind::setting;
    setting.key = key;
    setting.context = t_current.context;
    setting.extra = first;
    setting.device = static_cast<std::uint32_t>(device - attached.devices);
  }
  const std::uint64_t beyond = value > setting.extra ? rounded(value - setting.extra) : 0;
  const std::uint64_t more = beyond > setting.bytes ? beyond - setting.bytes : 0;
  if (more != 0)
    if (const Room room = reserve(*device, more); !room) return no_room(room);
  const CUresult result = TF_REAL(cuCtxSetLimit)(limit, value);
  if (result != CUDA_SUCCESS) {
    release(*device, more);
    return result;
  }
  if (beyond < setting.bytes) release(*device, setting.bytes - beyond);
  setting.bytes = beyond;
  attached.holdings.insert(setting);
  return result;
}

TF_ENTRY(cuGreenCtxCreate, (CUgreenCtx * context, void* description, CUdevice ordinal, unsigned flags)) {
  // Lies within the primary context of its device and costs no context of its own; only the device is checked.
  if (registered() != nullptr && ordinal >= 0 && ordinal < kMaxOrdinals && device_of(ordinal) == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  return TF_FORWARD(cuGreenCtxCreate, context, description, ordinal, flags);
}

}  // namespace tensor_fusion::guest::limiter
