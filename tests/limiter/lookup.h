#pragma once
// How the tenants of these tests reach a library: by name, whatever it has. A function that it lacks answers NOT_FOUND.
#include <dlfcn.h>

#include <cstdio>

#include "contract/cuda.h"

namespace tensor_fusion::tests {

using namespace tensor_fusion::cuda;

inline void* g_library = nullptr;

template <class... Arguments>
auto find(const char* name) {
  auto function = reinterpret_cast<CUresult (*)(Arguments...)>(::dlsym(g_library, name));
  if (function != nullptr) return function;
  return +[](Arguments...) { return CUDA_ERROR_NOT_FOUND; };
}

// Prints and waits for a line, so that a test can look at the machine meanwhile.
inline void say(const char* what, long long value) {
  std::printf("%s=%lld\n", what, value);
  std::fflush(stdout);
  for (int letter; (letter = std::getchar()) != EOF && letter != '\n';) {
  }
}

inline CUcontext start() {
  CUcontext context = nullptr;
  find<unsigned>("cuInit")(0);
  if (find<CUcontext*, CUdevice>("cuDevicePrimaryCtxRetain")(&context, 0) == CUDA_SUCCESS)
    find<CUcontext>("cuCtxSetCurrent")(context);
  return context;
}

}  // namespace tensor_fusion::tests
