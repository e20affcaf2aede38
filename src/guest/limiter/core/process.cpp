#include "guest/limiter/core/process.h"

#include <fcntl.h>

#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr int kNoEntry = -2;    // -ENOENT
constexpr int kNoProcess = -3;  // -ESRCH

}  // namespace

ProcessStatus parse_stat(const char* text, long size) {
  ProcessStatus status;
  long position = size;
  while (position > 0 && text[position - 1] != ')') --position;  // the name may hold spaces and brackets
  if (position <= 0) return status;
  int field = 3;
  char state = 0;
  std::uint64_t number = 0;
  std::uint64_t threads = 0;
  for (++position; position <= size; ++position) {
    const char letter = position < size ? text[position] : ' ';
    if (letter == ' ' || letter == '\n' || letter == 0) {
      if (field == 20) threads = number;
      if (field == 22) {
        status.start_ticks = number;
        status.found = true;
        break;
      }
      ++field;
      number = 0;
    } else if (letter >= '0' && letter <= '9') {
      number = number * 10 + static_cast<std::uint64_t>(letter - '0');
    } else if (field == 3) {
      state = letter;
    }
  }
  status.dead = status.found && (state == 'X' || (state == 'Z' && threads <= 1));
  return status;
}

ProcessStatus process_status(std::uint32_t pid) {
  char path[32] = "/proc/";
  char digits[12];
  int count = 0;
  for (std::uint32_t rest = pid; count == 0 || rest != 0; rest /= 10)
    digits[count++] = static_cast<char>('0' + rest % 10);
  int length = 6;
  while (count > 0) path[length++] = digits[--count];
  for (const char* tail = "/stat"; *tail != 0; ++tail) path[length++] = *tail;
  path[length] = 0;

  ProcessStatus status;
  const int file = os::open_file(path, O_RDONLY);
  if (file == kNoEntry || file == kNoProcess) {
    // Without a mounted /proc nothing is certain.
    status.dead = os::exists("/proc/self/stat");
    return status;
  }
  if (file < 0) return status;
  char text[1024];
  const long size = os::read_file(file, text, sizeof text);
  os::close_file(file);
  if (size == kNoProcess) {
    status.dead = true;
    return status;
  }
  return size > 0 ? parse_stat(text, size) : status;
}

bool may_be_alive(std::uint32_t pid, std::uint64_t start_ticks) {
  const ProcessStatus status = process_status(pid);
  if (status.dead) return false;
  return !status.found || status.start_ticks == start_ticks;
}

}  // namespace tensor_fusion::guest::limiter
