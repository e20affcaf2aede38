#include "guest/limiter/core/log.h"

#include <stdlib.h>

#include "guest/limiter/core/os.h"
#include "guest/limiter/core/words.h"

namespace tensor_fusion::guest::limiter {

void say(const char* text, const char* detail) {
  const char* wanted = getenv(kLogVariable);
  if (wanted == nullptr || *wanted == 0) return;
  Text<768> line;
  line.add("tensor-fusion limiter[").add_number(os::process_id()).add("]: ").add(text);
  if (detail != nullptr && *detail != 0) line.add(": ").add(detail);
  line.add("\n");
  os::write_file(2, line.letters, line.length);
}

}  // namespace tensor_fusion::guest::limiter
