#pragma once
// The real entry points of the driver, one member per row of table.inc, named exactly as the driver exports them. Filled
// once before the first hook acts; a member stays null when this driver has no such symbol, so callers of anything newer
// than CUDA 11 check first. Tests fill it with fakes.
#include "contract/cuda.h"

namespace tensor_fusion::guest::limiter {

struct Driver {
#define TF_ROW(symbol, ...) decltype(&::symbol) symbol;
#include "guest/limiter/table.inc"
#undef TF_ROW
};

extern Driver g_driver;
[[gnu::always_inline]] inline Driver& driver() { return g_driver; }

}  // namespace tensor_fusion::guest::limiter
