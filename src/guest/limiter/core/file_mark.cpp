#include "guest/limiter/core/file_mark.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "guest/limiter/core/os.h"
#include "guest/limiter/core/words.h"

namespace tensor_fusion::guest::limiter {
namespace {

// Of open files, not of processes (Linux 3.15). The C library declares them to some programs only.
constexpr int kGetLock = 36, kSetLock = 37;

long lock_call(int file, int command, short type, std::uint64_t mark, struct flock& lock) {
  lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(mark);
  lock.l_len = 1;
  return os::call(SYS_fcntl, file, command, reinterpret_cast<long>(&lock));
}

int change(int file, int command, short type, std::uint64_t mark) {
  struct flock lock;
  return static_cast<int>(lock_call(file, command, type, mark, lock));
}

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 33)) * 0xff51afd7ed558ccd;
  value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53;
  return value ^ (value >> 33);
}

std::uint64_t as_mark(std::uint64_t value) { return kFirstMark | (value & (kFirstMark - 2)); }

Text<64> path_of(const char* directory, int file) {
  Text<64> path;
  path.add(directory).add_number(static_cast<std::uint64_t>(file));
  return path;
}

// The number that ends before `end`, which goes to its first digit.
std::uint64_t number_before(const char* begin, const char*& end) {
  std::uint64_t number = 0, unit = 1;
  for (; end != begin && end[-1] >= '0' && end[-1] <= '9'; --end, unit *= 10)
    number += static_cast<std::uint64_t>(end[-1] - '0') * unit;
  return number;
}

bool stat_of(int file, struct stat& status) { return os::call(SYS_fstat, file, reinterpret_cast<long>(&status)) == 0; }

}  // namespace

std::uint64_t fresh_mark() {
  std::uint64_t value = 0;
  if (os::call(SYS_getrandom, reinterpret_cast<long>(&value), sizeof value, 0) != static_cast<long>(sizeof value))
    value = mixed(os::monotonic_ns() ^ (std::uint64_t{os::thread_id()} << 40));
  return as_mark(value);
}

std::uint64_t mark_of(const void* bytes, std::size_t size) {
  const auto* byte = static_cast<const unsigned char*>(bytes);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < size; ++i) sum = mixed(sum + byte[i] + 1);
  return as_mark(sum);
}

int set_mark(int file, std::uint64_t mark) { return change(file, kSetLock, F_RDLCK, mark); }
void clear_mark(int file, std::uint64_t mark) { change(file, kSetLock, F_UNLCK, mark); }
int set_own_mark(int file, std::uint64_t mark) { return change(file, F_SETLK, F_RDLCK, mark); }
void clear_own_mark(int file, std::uint64_t mark) { change(file, F_SETLK, F_UNLCK, mark); }

bool has_mark(int other, std::uint64_t mark) {
  struct flock lock;
  return lock_call(other, kGetLock, F_WRLCK, mark, lock) == 0 && lock.l_type == F_RDLCK &&
         lock.l_start == static_cast<off_t>(mark) && lock.l_len == 1;
}

// The kernel lists an open file's own locks: "lock:	1: OFDLCK ADVISORY  READ -1 00:01:7 FIRST LAST".
std::uint64_t mark_on(int file) {
  const int list = os::open_file(path_of("/proc/self/fdinfo/", file).letters, O_RDONLY);
  if (list < 0) return 0;
  char text[4096];
  const long length = os::read_file(list, text, sizeof text);
  os::close_file(list);
  const char* line = text;
  for (const char* at = text; at < text + length; ++at) {
    if (*at != '\n') continue;
    const char* end = at;
    const std::uint64_t last = number_before(line, end);
    if (end != line) --end;
    const bool is_mark = last >= kFirstMark && last < 2 * kFirstMark && number_before(line, end) == last;
    if (is_mark && starts_with(line, "lock:")) return last;
    line = at + 1;
  }
  return 0;
}

int open_again(int file, int flags) { return os::open_file(path_of("/proc/self/fd/", file).letters, flags); }

std::uint64_t identity_of(int file) {
  struct stat status;
  return stat_of(file, status) ? mixed(mixed(status.st_dev) ^ status.st_ino) | 1 : 0;
}

bool is_device_file(int file) {
  struct stat status;
  return stat_of(file, status) && S_ISCHR(status.st_mode);
}

}  // namespace tensor_fusion::guest::limiter
