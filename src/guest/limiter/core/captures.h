#pragma once
// The streams of this process that are in capture, each by where its capture began. A call of the limiter's own (a
// marker, a look at an event, a wait) may become part of what is captured, or spoil it, whoever makes it: while there
// is a capture, none is made but by a thread that has said that it does not (BesideCaptures). Counted before the driver
// is asked to begin one, so that no call is on its way by then. Any thread. What has no place here is counted all the
// same, and then taken for ended with whichever ends.
#include <atomic>
#include <cstdint>
#include <optional>

#include "guest/limiter/core/device.h"
#include "guest/limiter/core/mutex.h"

namespace tensor_fusion::guest::limiter::gate {

class Captures {
 public:
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }

  // A call of the limiter's own outside of the gate's locks: where it may be made, a capture begins when it is left.
  bool enter();
  void leave();
  // By who has counted a capture and is about to begin it. A call may wait for this very thread, or have ended with its
  // own: who has waited in vain begins, and is kept by those calls no more. False: in vain.
  bool await_calls(std::uint64_t patience_ns = kPatienceNs);
  static constexpr std::uint64_t kPatienceNs = 1'000'000'000;

  void count() { count_.fetch_add(1, std::memory_order_seq_cst); }  // one that is about to begin
  void drop();                                                      // ... and did not
  // It began on this stream, or it ended there. `own` as in gate.h: a null stream is the thread's own then.
  void began(CUstream stream, bool own, std::uint64_t context);
  void ended(CUstream stream, bool own);
  bool began_on(CUstream stream, bool own);

  // What went with it is in capture no more.
  void stream_gone(CUstream stream);
  void context_gone(std::uint64_t context);
  void thread_gone(std::uint32_t thread);  // its own stream
  void clear();                            // in a child of fork: who held the lock is not there

 private:
  // Of the stream that a thread has of its own each thread knows another one by the same name.
  struct Origin {
    std::uint64_t stream = 0;  // 0: no capture
    std::uint32_t thread = 0;  // of a stream of its own, else 0
    std::uint64_t context = 0;
  };
  static Origin origin_of(CUstream stream, bool own, std::uint64_t context);
  template <class Match>
  bool remove_if(Match match);  // true: there was one

  static constexpr std::size_t kPlaces = 64;
  std::atomic<std::uint32_t> count_{0};
  std::atomic<std::uint32_t> calls_{0};
  std::atomic<std::uint32_t> stuck_{0};  // so many of them have been waited for in vain
  Mutex mutex_;
  Origin origins_[kPlaces];
  std::uint32_t unplaced_ = 0;
};

extern Captures g_captures;

// One such call, or a few: short, since who begins a capture waits for it. False: a stream is in capture.
class OwnCall {
 public:
  OwnCall() : may_(g_captures.enter()) {}
  ~OwnCall() {
    if (may_) g_captures.leave();
  }
  OwnCall(const OwnCall&) = delete;
  OwnCall& operator=(const OwnCall&) = delete;
  explicit operator bool() const { return may_; }

 private:
  bool may_;
};

// Calls of the gate's own beside a capture. Each thread may say of itself that what it calls is safe then, and on a
// stream that is itself in no capture it is: of those alone a marker falls into nothing. Taken back when this goes.
class BesideCaptures {
 public:
  BesideCaptures() = default;
  ~BesideCaptures();
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;
  bool forbid_calls();  // now: a stream is in capture, and this driver does not let a thread say so

 private:
  bool relaxed_ = false;
  CUstreamCaptureMode before_{};
};

// Waits for all that is on the stream; no longer than till a capture begins.
void wait_unless_captured(CUstream stream, bool own);

// What the driver says of the stream; nothing where it does not.
std::optional<bool> driver_captures(CUstream stream, bool own);

// Whether what is put on this stream now would be captured.
bool capturing(CUstream stream, bool own);

}  // namespace tensor_fusion::guest::limiter::gate
