#pragma once
// The real entry points of the driver, one member per row of table.inc, named exactly as the driver exports them.
// Filled once before the first hook acts; a member stays null when this driver has no such symbol, so callers of
// anything newer than CUDA 11 check first. Tests fill it with fakes.
#include "contract/cuda.h"
#include "guest/limiter/core/device.h"

namespace tensor_fusion::guest::limiter {

struct Driver {
#define TF_ROW(symbol, ...) CUresult(*symbol) __VA_ARGS__;
#include "guest/limiter/table.inc"
};

extern Driver g_driver;
[[gnu::always_inline]] inline Driver& driver() { return g_driver; }

}  // namespace tensor_fusion::guest::limiter
