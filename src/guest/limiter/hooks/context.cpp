// Contexts: their overhead is charged, their end drops all they held, and the calling thread's current device follows.
#include "guest/limiter/core/captures.h"
#include "guest/limiter/hooks/charge.h"
#include "guest/limiter/hooks/overhead.h"
#include "guest/limiter/hooks/physical.h"

namespace tensor_fusion::guest::limiter {
namespace {

std::uint64_t word_of(CUcontext context) { return reinterpret_cast<std::uint64_t>(context); }

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
        case Kind::trace:
        case Kind::origin:
        case Kind::orphan:
        case Kind::exec:
          return false;  // these belong to no context
        case Kind::opened:
          return false;  // forgotten below
        case Kind::shared:
          attached->shared_pointers.fetch_sub(1, std::memory_order_relaxed);
          if (!attached->sharing.keep(*attached, {.mark = holding.extra}, holding.device, holding.bytes))
            bytes[holding.device] += holding.bytes;
          return true;
        default:
          break;
      }
      if (holding.kind == Kind::context) {
        was_ours = true;
        unbooked = holding.bytes == 0;
        home = holding.device;
        if (holding.guessed) forget_guess(attached->devices[home], holding.bytes);
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
  if (attached->opened_pointers.load(std::memory_order_relaxed) != 0) forget_opened(*attached, word_of(context));
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

CUresult refuse_ended() {
  explain("this slice has ended; start the program with tensor-fusion run");
  return refusal();
}

template <class Call>
CUresult create(CUcontext* context, CUdevice ordinal, Call call) {
  if (registered() == nullptr) return must_refuse() ? refusal() : call();
  Device* device = device_of(ordinal);
  // A device outside the slice is none to this program. (A number that is no device gives the driver's own answer.)
  if (device == nullptr) return ordinal >= 0 && ordinal < kMaxOrdinals ? CUDA_ERROR_INVALID_DEVICE : call();
  if (g_shared.slice.grant->closed.load(std::memory_order_relaxed) != 0) return refuse_ended();
  Guard guard(attachment()->context_mutex);
  Overhead overhead;
  if (const Room room = reserve_overhead(*device, overhead); !room) return no_room(room);
  fault(FaultPoint::reserved);
  const CUresult result = call();
  forget_current();
  if (result != CUDA_SUCCESS) {
    give_back_overhead(*device, overhead);
    return result;
  }
  book_overhead(*device, *context, overhead);
  return result;
}

// The end of a context may report what went wrong in it before, and is its end all the same.
bool is_of_earlier_work(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

template <class Call>
CUresult destroy(CUcontext context, Call call) {
  tell_gate(context);
  const CUresult result = call();
  if (result == CUDA_SUCCESS || is_of_earlier_work(result)) context_gone(context);
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
  const bool done = result == CUDA_SUCCESS || is_of_earlier_work(result);
  if (done && primary != 0 && (always || !primary_active(ordinal))) {
    if (!always) tell_gate(context);
    context_gone(context);
    primary = 0;
  }
  return result;
}

}  // namespace

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
  if (result != CUDA_SUCCESS && !is_of_earlier_work(result)) return result;
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
  if (g_shared.slice.grant->closed.load(std::memory_order_relaxed) != 0) return refuse_ended();
  Attachment& attached = *attachment();
  Guard guard(attached.context_mutex);
  std::uint64_t& primary = attached.primary[device - attached.devices];
  if (primary != 0 && primary_active(ordinal)) return TF_REAL(cuDevicePrimaryCtxRetain)(context, ordinal);
  Overhead overhead;
  if (const Room room = reserve_overhead(*device, overhead); !room) return no_room(room);
  fault(FaultPoint::reserved);
  const CUresult result = TF_REAL(cuDevicePrimaryCtxRetain)(context, ordinal);
  if (result != CUDA_SUCCESS) {
    give_back_overhead(*device, overhead);
    return result;
  }
  primary = word_of(*context);
  book_overhead(*device, *context, overhead);
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
