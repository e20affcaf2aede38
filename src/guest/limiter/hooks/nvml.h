#pragma once
// The management library: its real entry points, one member per NVML row of table.inc, and how its hooks are written.
#include "contract/nvml.h"
#include "guest/limiter/hooks/doors.h"
#include "guest/limiter/hooks/entry.h"

namespace tensor_fusion::guest::limiter {

namespace nvml = contract::nvml;
using NvmlResult = int;
using NvmlDevice = nvml::Device;

struct Nvml {
#define TF_NVML_ROW(symbol, ...) NvmlResult(*symbol) __VA_ARGS__;
#include "guest/limiter/table.inc"
};
extern Nvml g_nvml;

extern "C" {
#define TF_NVML(symbol, ...) [[gnu::visibility("default")]] NvmlResult symbol __VA_ARGS__;
#include "guest/limiter/table.inc"
}

NvmlResult management_unavailable();

template <auto Member>
auto real_nvml() {
  auto function = g_nvml.*Member;
  if (function != nullptr) return function;
  resolve_management();
  function = g_nvml.*Member;
  return function != nullptr
             ? function
             : reinterpret_cast<decltype(function)>(reinterpret_cast<void (*)()>(&management_unavailable));
}
#define TF_REAL_NVML(symbol) real_nvml<&Nvml::symbol>()
#define TF_NVML_ENTRY(symbol, ...) extern "C" [[gnu::visibility("default")]] NvmlResult symbol __VA_ARGS__

// The row of the grant page for a management handle; -1 when the device is not of this slice.
int granted_row(NvmlDevice device);
bool limited();  // whether there is a slice to show

}  // namespace tensor_fusion::guest::limiter
