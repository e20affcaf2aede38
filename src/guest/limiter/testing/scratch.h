#pragma once
// Where tests and benchmarks put pages and simulated machines: in memory, or where whoever runs them removes what is
// left there. Header only; any thread.
#include <cstdlib>
#include <string>

namespace tensor_fusion::guest::limiter::testing {

inline std::string scratch_base() {
  const char* given = std::getenv("TENSOR_FUSION_SCRATCH");
  return given != nullptr ? given : "/dev/shm";
}

}  // namespace tensor_fusion::guest::limiter::testing
