#pragma once
// Where the build's files stand beside this program, which is in a folder of it (`tests/`, `bench/`): asked of the
// program itself, because an installed one is elsewhere than where it was built. Any thread.
#include <unistd.h>

#include <climits>
#include <string>

namespace tensor_fusion::guest::limiter::testing {

inline std::string build_folder() {
  char path[PATH_MAX] = {};
  if (::readlink("/proc/self/exe", path, sizeof path - 1) <= 0) return ".";
  const std::string self = path;
  const std::size_t folder = self.rfind('/', self.rfind('/') - 1);
  return self.substr(0, folder);
}

}  // namespace tensor_fusion::guest::limiter::testing
