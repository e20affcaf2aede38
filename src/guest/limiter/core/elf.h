#pragma once
// The loaded objects of this process, read directly: the dynamic linker's own look-up functions are what we interpose,
// so finding the real ones must not go through them. Takes only the loader's list lock, for the length of one walk.
#include <cstddef>
#include <cstdint>

namespace tensor_fusion::guest::limiter {

struct Object {
  std::uintptr_t base = 0;  // load bias
  std::uintptr_t low = 0;   // first mapped byte
  std::uintptr_t high = 0;  // one past the last
  std::uintptr_t dynamic = 0;
  char path[256] = {};

  bool contains(const void* address) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return at >= low && at < high;
  }
};

// The n-th loaded object whose soname (or, without one, file name) starts with `name`.
bool find_object(const char* name, int nth, Object& found);
std::uint64_t load_count();  // objects ever loaded: unchanged means that nothing new has to be looked for
bool object_of(const void* address, Object& found);

// The address of an exported, defined symbol of this object; the default version when it has several. Null when none.
void* find_symbol(const Object& object, const char* name);

}  // namespace tensor_fusion::guest::limiter
