// What a compiler may call on its own account. Not exported (exports.map), so that no program's memcpy is ever ours;
// written out with a barrier, because the compiler would otherwise turn these loops into calls of themselves.
#include <cstddef>

namespace {
[[gnu::always_inline]] inline void barrier() { asm volatile("" ::: "memory"); }
}  // namespace

extern "C" {
#define TF_RUNTIME [[gnu::used]]

TF_RUNTIME void* memcpy(void* target, const void* source, std::size_t size) {
  auto* to = static_cast<char*>(target);
  const auto* from = static_cast<const char*>(source);
  for (std::size_t i = 0; i < size; ++i, barrier()) to[i] = from[i];
  return target;
}
TF_RUNTIME void* memset(void* target, int value, std::size_t size) {
  auto* to = static_cast<char*>(target);
  for (std::size_t i = 0; i < size; ++i, barrier()) to[i] = static_cast<char>(value);
  return target;
}
TF_RUNTIME void* memmove(void* target, const void* source, std::size_t size) {
  auto* to = static_cast<char*>(target);
  const auto* from = static_cast<const char*>(source);
  if (to < from) {
    for (std::size_t i = 0; i < size; ++i, barrier()) to[i] = from[i];
  } else {
    for (std::size_t i = size; i > 0; --i, barrier()) to[i - 1] = from[i - 1];
  }
  return target;
}
}
