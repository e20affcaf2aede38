#pragma once
// The commands that only read: ps, top, devices, events, logs. Each prints a table or JSON and returns the exit code.
#include "cli/context.h"

namespace tensor_fusion::cli {

int show_slices(const Context& context);
int show_top(const Context& context);
int show_devices(const Context& context);
int show_events(const Context& context);
int show_logs(const Context& context);

}  // namespace tensor_fusion::cli
