#pragma once
// What is measured once and is no share of a mix: lending, giving back, what the gate costs, a decode tenant's steps,
// a hypervisor that is killed, and what hostile neighbours cost. Each prints a line and answers with its figure, -1
// when it did not run.
#include "tests/bench/share/measure.h"

namespace tensor_fusion::bench::share {

double lent_percent(Bench& bench);                             // of the device, used by one beside an idle owner
double return_ms(Bench& bench);                                // longest time until an owner's first kernel was through
double throughput_percent(Bench& bench, const char* program);  // of no limiter
double decode_p99_ratio(Bench& bench);                         // to own step + 2 slices + 1 ms
double dead_error(Bench& bench);                               // points off in any window, with the hypervisor killed
// What an honest tenant has beside the worst of its hostile neighbours, percent of what it has beside the fair ones.
double kept_percent(Bench& bench, const Meeting& meeting);
// What one has, limited to 20 % by the product, that denies whatever it launches; from the third second on.
double denied_percent(Bench& bench);

}  // namespace tensor_fusion::bench::share
