#pragma once
// The live table of `top`: takes a picture of the machine at each interval and draws it until `q`. Owns the terminal
// while it runs and gives it back as it was, also when the picture fails. Pictures are taken in other threads, one
// after the other, of which the last may outlive it.
#include <cstdint>
#include <functional>

#include "base/result.h"
#include "view/overview.h"

namespace tensor_fusion::tui {

using Take = std::function<base::Result<view::Overview>()>;

// A failed picture is shown in place of the table and tried again; only a terminal that cannot be used is an error.
// Returns the signal that ended it (SIGINT, SIGTERM), or 0.
base::Result<int> watch(const Take& take, std::uint64_t interval_ms);

}  // namespace tensor_fusion::tui
