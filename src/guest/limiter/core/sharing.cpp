#include "guest/limiter/core/sharing.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#include "guest/limiter/core/attachment.h"
#include "guest/limiter/core/elf.h"
#include "guest/limiter/core/file_mark.h"
#include "guest/limiter/core/log.h"
#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kLookNs = 20'000'000;
constexpr std::uint64_t kRest = 20;  // times as long as looking takes

// An open file of the slice's claim page, for its marks only.
int open_claim() {
  Text<512> path;
  path.add(g_shared.slice.directory.letters).add("/").add(contract::kClaimFile);
  return path.cut ? -1 : os::open_file(path.letters, O_RDONLY);
}

// The C library's own thread: this library has none to link with, and every program that has CUDA has threads.
bool start_thread([[maybe_unused]] void* (*body)(void*), [[maybe_unused]] void* argument) {
#if defined(__SANITIZE_THREAD__)
  return false;  // it must know of every thread
#else
  Object object;
  void* create = nullptr;
  void* detach = nullptr;
  for (const char* library : {"libc.so", "libpthread.so"}) {
    if (create != nullptr || !find_object(library, 0, object)) continue;
    create = find_symbol(object, "pthread_create");
    detach = find_symbol(object, "pthread_detach");
  }
  if (create == nullptr || detach == nullptr) return false;
  // The program's signals are not for it; those of the C library, which reach all threads, are.
  const std::uint64_t blocked = ~(std::uint64_t{3} << 31);
  std::uint64_t before = 0;
  os::call(SYS_rt_sigprocmask, SIG_BLOCK, reinterpret_cast<long>(&blocked), reinterpret_cast<long>(&before),
           sizeof blocked);
  pthread_t thread{};
  const bool started = reinterpret_cast<decltype(&pthread_create)>(create)(&thread, nullptr, body, argument) == 0;
  if (started) reinterpret_cast<decltype(&pthread_detach)>(detach)(thread);
  os::call(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&before), 0, sizeof before);
  return started;
#endif
}

}  // namespace

template <class Item>
Item* Sharing::List<Item>::add() {
  if (count == room) {
    const std::uint32_t wider = room == 0 ? 64 : room * 2;
    auto* more = static_cast<Item*>(os::map_memory(wider * sizeof(Item)));
    if (more == nullptr) return nullptr;
    for (std::uint32_t i = 0; i < count; ++i) more[i] = items[i];
    if (items != nullptr) os::unmap(items, room * sizeof(Item));
    items = more;
    room = wider;
  }
  return &items[count++];
}

bool Sharing::mark(int file, Trace& trace) {
  if (trace.mark == 0) trace.mark = fresh_mark();
  if (set_mark(file, trace.mark) != 0) {
    say("a descriptor of memory cannot be marked: it is not seen who holds that once it is released here");
    return false;
  }
  const std::uint64_t identity = identity_of(file);
  if (trace.probe != Trace::kNoFile) {
    if (identity == trace.identity) return true;
    forget(trace);  // this driver makes one of its own for each: no single one can be asked
    trace.probe = Trace::kUnknown;
    return true;
  }
  trace.identity = identity;
  const bool device = is_device_file(file);
  Guard guard(device_mutex_);
  if (device && device_probe_ != 0 && device_identity_ == identity) {
    trace.probe = device_probe_ - 1;
    return true;
  }
  const int probe = open_again(file, O_RDWR);
  trace.probe = probe >= 0 ? probe : Trace::kUnknown;
  if (device && probe >= 0 && device_probe_ == 0) {
    device_probe_ = probe + 1;
    device_identity_ = identity;
  }
  return true;
}

void Sharing::forget(const Trace& trace) {
  if (const int file = ask_file(); trace.paid && file >= 0) clear_own_mark(file, trace.mark + 1);
  if (trace.probe < 0) return;
  {
    Guard guard(device_mutex_);
    if (device_probe_ == trace.probe + 1) return;
  }
  if (identity_of(trace.probe) == trace.identity) os::close_file(trace.probe);
}

// The program may have closed our descriptors: what has their numbers now says nothing.
bool Sharing::is_held(const Trace& trace) {
  if (trace.probe == Trace::kUnknown) return true;
  if (trace.probe >= 0 && (identity_of(trace.probe) != trace.identity || has_mark(trace.probe, trace.mark)))
    return true;
  const int claim = ask_file();
  return claim >= 0 && has_mark(claim, trace.mark);
}

int Sharing::ask_file() {
  if (const int known = ask_file_.load(std::memory_order_acquire); known != 0) return known - 1;
  Guard guard(held_mutex_);
  if (ask_file_.load(std::memory_order_relaxed) == 0) {
    if (const int file = open_claim(); file >= 0) ask_file_.store(file + 1, std::memory_order_release);
  }
  return ask_file_.load(std::memory_order_relaxed) - 1;
}

// Beside the mark itself, which importers bear on the same file.
void Sharing::vouch(Trace& trace) {
  if (const int file = ask_file(); file >= 0) trace.paid = set_own_mark(file, trace.mark + 1) == 0;
}

bool Sharing::is_vouched_for(std::uint64_t mark) {
  const int file = ask_file();
  return file < 0 || has_mark(file, mark + 1);
}

bool Sharing::keep(Attachment& attached, const Trace& trace, std::uint32_t device, std::uint64_t bytes) {
  if (!is_held(trace)) {
    forget(trace);
    return false;
  }
  Guard guard(mutex_);
  Kept* kept = kept_.add();
  if (kept == nullptr) return true;  // charged for good, then
  *kept = {trace, bytes, device};
  kept_count_.store(kept_.count, std::memory_order_relaxed);
  watch(attached);
  return true;
}

bool Sharing::settle(Attachment& attached) {
  if (kept_count_.load(std::memory_order_relaxed) == 0) return false;
  bool any = false;
  Guard guard(mutex_);
  for (std::uint32_t index = 0; index < kept_.count;) {
    const Kept kept = kept_.items[index];
    if (is_held(kept.trace)) {
      ++index;
      continue;
    }
    kept_.remove(index);
    forget(kept.trace);
    attached.ledger.release(attached.devices[kept.device], kept.bytes);
    any = true;
  }
  kept_count_.store(kept_.count, std::memory_order_relaxed);
  return any;
}

void Sharing::watch(Attachment& attached) {  // under mutex_
  if (!watched_) watched_ = start_thread(&watch_thread, &attached);
}

void* Sharing::watch_thread(void* argument) {
  auto& attached = *static_cast<Attachment*>(argument);
  Sharing& sharing = attached.sharing;
  const std::uint32_t word = 0;
  for (std::uint64_t rest = kLookNs;;) {
    const std::uint64_t end = os::monotonic_ns() + rest;
    for (std::uint64_t now = 0; (now = os::monotonic_ns()) < end;) os::futex_wait(&word, 0, end - now, false);
    sharing.settle(attached);
    rest = kLookNs + (os::monotonic_ns() - end) * kRest;
    Guard guard(sharing.mutex_);
    if (sharing.kept_.count != 0) continue;
    sharing.watched_ = false;
    return nullptr;
  }
}

int Sharing::claim_file() {  // under held_mutex_
  if (held_file_ != 0 && identity_of(held_file_ - 1) == held_identity_) return held_file_ - 1;
  const int file = open_claim();
  if (file < 0) return -1;
  held_file_ = file + 1;
  held_identity_ = identity_of(file);
  for (std::uint32_t index = 0; index < held_.count; ++index) set_mark(file, held_.items[index].mark);
  return file;
}

void Sharing::hold(std::uint64_t mark) {
  if (mark == 0) return;
  Guard guard(held_mutex_);
  const int file = claim_file();
  for (std::uint32_t index = 0; index < held_.count; ++index)
    if (held_.items[index].mark == mark) {
      ++held_.items[index].count;
      return;
    }
  Held* held = held_.add();
  if (held != nullptr) *held = {mark, 1};
  if (file >= 0) set_mark(file, mark);
}

bool Sharing::let_go(std::uint64_t mark) {
  if (mark == 0) return false;
  Guard guard(held_mutex_);
  for (std::uint32_t index = 0; index < held_.count; ++index) {
    if (held_.items[index].mark != mark) continue;
    if (--held_.items[index].count != 0) return true;
    held_.remove(index);
    if (const int file = claim_file(); file >= 0) clear_mark(file, mark);
    return false;
  }
  return false;
}

}  // namespace tensor_fusion::guest::limiter
