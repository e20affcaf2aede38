#pragma once
// The real entry points of the management library, one member per NVML row of table.inc.
#include <cstddef>
#include <cstdint>

#include "guest/limiter/hooks/entry.h"

namespace tensor_fusion::guest::limiter {

using NvmlResult = int;
using NvmlDevice = struct NvmlDeviceOpaque*;

struct Nvml {
  void* unused;  // keeps the struct non-empty whatever the table says
#define TF_NVML_ROW(symbol, ...) NvmlResult(*symbol) __VA_ARGS__;
#include "guest/limiter/table.inc"
};
extern Nvml g_nvml;

}  // namespace tensor_fusion::guest::limiter
