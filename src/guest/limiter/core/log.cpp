#include "guest/limiter/core/log.h"

#include <stdlib.h>

#include <atomic>
#include <cstdint>

#include "guest/limiter/core/os.h"
#include "guest/limiter/core/words.h"

namespace tensor_fusion::guest::limiter {

namespace {

void write_line(const char* text, const char* detail) {
  Text<768> line;
  line.add("tensor-fusion limiter[").add_number(os::process_id()).add("]: ").add(text);
  if (detail != nullptr && *detail != 0) line.add(": ").add(detail);
  line.add("\n");
  os::write_file(2, line.letters, line.length);
}

}  // namespace

bool says_all() {
  const char* wanted = getenv(kLogVariable);
  return wanted != nullptr && *wanted != 0;
}

void say(const char* text, const char* detail) {
  if (says_all()) write_line(text, detail);
}

void complain(const char* text, const char* detail) {
  static std::atomic<std::uint32_t> said;
  if (said.exchange(1, std::memory_order_relaxed) == 0) write_line(text, detail);
}

}  // namespace tensor_fusion::guest::limiter
