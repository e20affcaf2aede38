#include "guest/limiter/core/captures.h"

#include "guest/limiter/core/driver.h"
#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter::gate {
namespace {
constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint64_t kBetweenLooksNs = 50'000;
}  // namespace

constinit Captures g_captures{};

Captures::Origin Captures::origin_of(CUstream stream, bool own, std::uint64_t context) {
  constexpr std::uint64_t kPerThread = 2;
  const auto handle = reinterpret_cast<std::uint64_t>(stream);
  const bool threads_own = handle == kPerThread || (handle == 0 && own);
  return {threads_own ? kPerThread : handle, threads_own ? os::thread_id() : 0, context};
}

// Each tells of itself before it looks at the other (await_calls), so that one of the two sees it.
bool Captures::enter() {
  calls_.fetch_add(1, std::memory_order_seq_cst);
  if (count_.load(std::memory_order_seq_cst) == 0) return true;
  leave();
  return false;
}

void Captures::leave() {
  const std::uint32_t left = calls_.fetch_sub(1, std::memory_order_release) - 1;
  for (std::uint32_t stuck = stuck_.load(kRelaxed); stuck > left;)
    if (stuck_.compare_exchange_weak(stuck, left, kRelaxed)) return;
}

bool Captures::await_calls(std::uint64_t patience_ns) {
  const std::uint32_t word = 0;
  const std::uint64_t end_ns = os::monotonic_ns() + patience_ns;
  for (std::uint32_t calls; (calls = calls_.load(std::memory_order_seq_cst)) > stuck_.load(kRelaxed);) {
    if (os::monotonic_ns() >= end_ns) {
      stuck_.store(calls, kRelaxed);
      return false;
    }
    os::futex_wait(&word, 0, kBetweenLooksNs, false);
  }
  return true;
}

void Captures::drop() {
  std::uint32_t now = count_.load(kRelaxed);
  while (now != 0 && !count_.compare_exchange_weak(now, now - 1, kRelaxed)) {
  }
}

template <class Match>
bool Captures::remove_if(Match match) {
  Guard guard(mutex_);
  bool any = false;
  for (Origin& origin : origins_) {
    if (origin.stream == 0 || !match(origin)) continue;
    origin = {};
    drop();
    any = true;
  }
  return any;
}

void Captures::began(CUstream stream, bool own, std::uint64_t context) {
  const Origin begun = origin_of(stream, own, context);
  Guard guard(mutex_);
  for (Origin& origin : origins_) {
    if (origin.stream != 0) continue;
    origin = begun;
    return;
  }
  ++unplaced_;
}

void Captures::ended(CUstream stream, bool own) {
  const Origin from = origin_of(stream, own, 0);
  if (remove_if([&](const Origin& origin) { return origin.stream == from.stream && origin.thread == from.thread; }))
    return;
  Guard guard(mutex_);
  if (unplaced_ == 0) return;
  --unplaced_;
  drop();
}

bool Captures::began_on(CUstream stream, bool own) {
  const Origin asked = origin_of(stream, own, 0);
  Guard guard(mutex_);
  for (const Origin& origin : origins_)
    if (origin.stream == asked.stream && origin.thread == asked.thread) return true;
  return unplaced_ != 0;
}

void Captures::stream_gone(CUstream stream) {
  const auto handle = reinterpret_cast<std::uint64_t>(stream);
  remove_if([&](const Origin& origin) { return origin.stream == handle && origin.thread == 0; });
}

void Captures::context_gone(std::uint64_t context) {
  remove_if([&](const Origin& origin) { return origin.context == context; });
}

void Captures::thread_gone(std::uint32_t thread) {
  remove_if([&](const Origin& origin) { return origin.thread == thread; });
}

void Captures::clear() {
  mutex_.reset();
  for (Origin& origin : origins_) origin = {};
  unplaced_ = 0;
  count_.store(0, kRelaxed);
  calls_.store(0, kRelaxed);
  stuck_.store(0, kRelaxed);
}

bool BesideCaptures::forbid_calls() {
  if (relaxed_ || !g_captures.any()) return false;
  before_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  relaxed_ = driver().cuThreadExchangeStreamCaptureMode != nullptr &&
             driver().cuThreadExchangeStreamCaptureMode(&before_) == CUDA_SUCCESS;
  return !relaxed_;
}

BesideCaptures::~BesideCaptures() {
  if (relaxed_) driver().cuThreadExchangeStreamCaptureMode(&before_);
}

std::optional<bool> driver_captures(CUstream stream, bool own) {
  const auto ask = own && driver().cuStreamIsCapturing_ptsz != nullptr ? driver().cuStreamIsCapturing_ptsz
                                                                       : driver().cuStreamIsCapturing;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (ask == nullptr || ask(stream, &status) != CUDA_SUCCESS) return std::nullopt;
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void wait_unless_captured(CUstream stream, bool own) {
  const auto query = own ? driver().cuStreamQuery_ptsz : driver().cuStreamQuery;
  const std::uint32_t word = 0;
  for (;; os::futex_wait(&word, 0, kBetweenLooksNs, false)) {
    const OwnCall call;
    if (!call || query == nullptr || query(stream) != CUDA_ERROR_NOT_READY) return;
  }
}

bool capturing(CUstream stream, bool own) { return g_captures.any() && driver_captures(stream, own).value_or(false); }

}  // namespace tensor_fusion::guest::limiter::gate
