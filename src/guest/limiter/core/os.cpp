#include "guest/limiter/core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

namespace tensor_fusion::guest::limiter::os {

long call(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
#else
#error "the limiter knows the system calls of x86-64 and aarch64"
#endif
}

namespace {
long address_of(const void* pointer) { return reinterpret_cast<long>(pointer); }
void* pointer_or_null(long result) { return result < 0 && result > -4096 ? nullptr : reinterpret_cast<void*>(result); }
}  // namespace

int open_file(const char* path, int flags) {
  return static_cast<int>(call(SYS_openat, AT_FDCWD, address_of(path), flags | O_CLOEXEC, 0));
}
long read_file(int file, void* buffer, std::size_t size) {
  return call(SYS_read, file, address_of(buffer), static_cast<long>(size));
}
long write_file(int file, const void* buffer, std::size_t size) {
  return call(SYS_write, file, address_of(buffer), static_cast<long>(size));
}
void close_file(int file) { call(SYS_close, file); }

long file_size(int file) {
  struct stat status;
  const long result = call(SYS_fstat, file, address_of(&status));
  if (result < 0) return result;
  return S_ISREG(status.st_mode) ? static_cast<long>(status.st_size) : -1;
}
bool exists(const char* path) { return call(SYS_faccessat, AT_FDCWD, address_of(path), 0) == 0; }

#if defined(__SANITIZE_THREAD__)
// It knows the owners of memory from its own allocator only, and takes the next one of a page for a racing one. Whole
// pages, since a fork may wipe them.
void* map_memory(std::size_t size) {
  constexpr std::size_t kPage = 4096;
  const std::size_t whole = (size + kPage - 1) / kPage * kPage;
  void* memory = aligned_alloc(kPage, whole);
  return memory == nullptr ? nullptr : memset(memory, 0, whole);
}
void unmap(void* address, std::size_t) { free(address); }
#else
void* map_memory(std::size_t size) {
  return pointer_or_null(
      call(SYS_mmap, 0, static_cast<long>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}
void unmap(void* address, std::size_t size) { call(SYS_munmap, address_of(address), static_cast<long>(size)); }
#endif
void* map_file(int file, std::size_t size, bool writable) {
  return pointer_or_null(
      call(SYS_mmap, 0, static_cast<long>(size), writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file, 0));
}
bool wipe_on_fork(void* address, std::size_t size) {
  constexpr long kWipeOnFork = 18;  // MADV_WIPEONFORK, absent from old headers
  return call(SYS_madvise, address_of(address), static_cast<long>(size), kWipeOnFork) == 0;
}

std::uint32_t process_id() { return static_cast<std::uint32_t>(call(SYS_getpid)); }
std::uint32_t thread_id() { return static_cast<std::uint32_t>(call(SYS_gettid)); }
bool thread_lives(std::uint32_t thread) { return call(SYS_tgkill, call(SYS_getpid), thread, 0) != -ESRCH; }

std::uint64_t pid_namespace() {
  struct stat status;
  const char* path = "/proc/self/ns/pid";
#if defined(SYS_newfstatat)
  const long result = call(SYS_newfstatat, AT_FDCWD, address_of(path), address_of(&status), 0);
#else
  const long result = call(SYS_fstatat, AT_FDCWD, address_of(path), address_of(&status), 0);
#endif
  return result < 0 ? 0 : static_cast<std::uint64_t>(status.st_ino);
}

std::uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t realtime_us() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

void futex_wait(const void* word, std::uint32_t expected, std::uint64_t timeout_ns, bool shared) {
  timespec timeout;
  timeout.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000);
  timeout.tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000);
  call(SYS_futex, address_of(word), shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, static_cast<long>(expected),
       address_of(&timeout));
}
void futex_wake(const void* word, int count, bool shared) {
  call(SYS_futex, address_of(word), shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, count);
}

}  // namespace tensor_fusion::guest::limiter::os
