#pragma once
// Device identities as texts: "GPU-" or "MIG-" and 8-4-4-4-12 hexadecimal digits. Pages hold them in lower case;
// compared without regard to case. The bytes of a CUuuid are the digits in order.
#include "contract/cuda.h"
#include "guest/limiter/core/words.h"

namespace tensor_fusion::guest::limiter {

inline int hex_digit(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  return -1;
}

// `text` need not be terminated within 64 letters: a page is not trusted.
inline bool uuid_matches(const char* text, const cuda::CUuuid& uuid) {
  int position = 0;
  if (starts_with(text, "GPU-") || starts_with(text, "MIG-")) position = 4;
  for (const unsigned char byte : uuid.bytes) {
    if (text[position] == '-') ++position;
    const int high = hex_digit(text[position]);
    const int low = high < 0 ? -1 : hex_digit(text[position + 1]);
    if (low < 0 || (high << 4 | low) != byte) return false;
    position += 2;
  }
  return text[position] == 0;
}

}  // namespace tensor_fusion::guest::limiter
