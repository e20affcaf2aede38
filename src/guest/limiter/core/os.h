#pragma once
// The limiter's own door to the kernel: bare system calls. They touch no errno, need no libc symbol of any version and
// work in a signal handler or a child of vfork, so a hook leaves the program's state exactly as the driver would have.
// A negative result is -errno.
#include <cstddef>
#include <cstdint>

namespace tensor_fusion::guest::limiter::os {

long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0);

int open_file(const char* path, int flags);
long read_file(int file, void* buffer, std::size_t size);
long write_file(int file, const void* buffer, std::size_t size);
void close_file(int file);
long file_size(int file);  // -errno when it is no regular file
bool exists(const char* path);

void* map_memory(std::size_t size);                         // private, zeroed; null when refused
void* map_file(int file, std::size_t size, bool writable);  // shared; null when refused
void unmap(void* address, std::size_t size);
bool wipe_on_fork(void* address, std::size_t size);  // zero in a child; false on kernels before 4.14

std::uint32_t process_id();
std::uint32_t thread_id();
bool thread_lives(std::uint32_t thread);  // of this process
std::uint64_t pid_namespace();            // inode of the pid namespace, 0 when unknown

std::uint64_t monotonic_ns();
std::uint64_t realtime_us();

// Waits while *word == expected, at most timeout_ns. `shared`: the word lies in memory of several processes.
void futex_wait(const void* word, std::uint32_t expected, std::uint64_t timeout_ns, bool shared);
void futex_wake(const void* word, int count, bool shared);

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace tensor_fusion::guest::limiter::os
