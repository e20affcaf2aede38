#pragma once
// The few string and memory operations the limiter needs, so that it imports none (their symbol versions move between
// glibc releases). Texts are NUL-terminated; every copy is bounded and terminated.
#include <cstddef>
#include <cstdint>

namespace tensor_fusion::guest::limiter {

inline std::size_t length_of(const char* text) {
  std::size_t length = 0;
  while (text[length] != 0) ++length;
  return length;
}
inline bool same(const char* left, const char* right) {
  while (*left != 0 && *left == *right) ++left, ++right;
  return *left == *right;
}
inline bool starts_with(const char* text, const char* prefix) {
  while (*prefix != 0 && *text == *prefix) ++text, ++prefix;
  return *prefix == 0;
}
inline const char* last_part(const char* path) {
  const char* part = path;
  for (; *path != 0; ++path)
    if (*path == '/') part = path + 1;
  return part;
}
inline void fill(void* target, unsigned char value, std::size_t size) {
  auto* bytes = static_cast<volatile unsigned char*>(target);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = value;
}

// A text of at most kSize - 1 letters; what does not fit is left out and remembered.
template <std::size_t kSize>
struct Text {
  char letters[kSize] = {};
  std::size_t length = 0;
  bool cut = false;

  Text& add(const char* text) {
    for (; *text != 0; ++text) add_letter(*text);
    return *this;
  }
  Text& add_letter(char letter) {
    if (length + 1 < kSize) {
      letters[length++] = letter;
      letters[length] = 0;
    } else {
      cut = true;
    }
    return *this;
  }
  Text& add_number(std::uint64_t number) {
    char digits[20];
    int count = 0;
    do digits[count++] = static_cast<char>('0' + number % 10);
    while ((number /= 10) != 0);
    while (count > 0) add_letter(digits[--count]);
    return *this;
  }
};

}  // namespace tensor_fusion::guest::limiter
