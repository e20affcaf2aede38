#pragma once
// The driver's ABI inside this room, and how an exported function is written.
//
// TF_API(name, params) { … }                one exported function.
// TF_STREAM_API(name, params, body…)        it and its _ptsz twin: `kFlavour` says what stream 0 means in the body.
// TF_BLOCKING_API(name, params, body…)      the same with _ptds.
#include <cstddef>
#include <cstdint>

#include "contract/cuda.h"

namespace tensor_fusion::sim::cuda {

using namespace ::tensor_fusion::cuda;

enum class Flavour : std::uint8_t { legacy, per_thread };

}  // namespace tensor_fusion::sim::cuda

#define TF_API(name, params) extern "C" __attribute__((visibility("default"))) CUresult name params

#define TF_TWIN_API(name, twin, params, ...)                           \
  TF_API(name, params) {                                               \
    [[maybe_unused]] constexpr Flavour kFlavour = Flavour::legacy;     \
    __VA_ARGS__                                                        \
  }                                                                    \
  TF_API(twin, params) {                                               \
    [[maybe_unused]] constexpr Flavour kFlavour = Flavour::per_thread; \
    __VA_ARGS__                                                        \
  }
#define TF_STREAM_API(name, params, ...) TF_TWIN_API(name, name##_ptsz, params, __VA_ARGS__)
#define TF_BLOCKING_API(name, params, ...) TF_TWIN_API(name, name##_ptds, params, __VA_ARGS__)

// Leaves the function with the code unless it is success.
#define TF_TRY(expression)                                                                    \
  do {                                                                                        \
    if (const CUresult tf_result = (expression); tf_result != CUDA_SUCCESS) return tf_result; \
  } while (false)
