#pragma once
// What a context costs of the device's memory before the program has any. The hypervisor learns it from the driver's
// account; while nobody knows, a guess is reserved, told in the claim so that it can be measured, and booked as what it
// was once that is known. Any thread; making and ending contexts is done with the attachment's context_mutex held.
#include <cstdint>

#include "guest/limiter/hooks/charge.h"

namespace tensor_fusion::guest::limiter {

struct Overhead {
  std::uint64_t bytes = 0;
  bool guessed = false;  // nobody knows yet
};

Room reserve_overhead(Device& device, Overhead& overhead);                        // before a context is made
void give_back_overhead(Device& device, const Overhead& overhead);                // it was not made after all
void book_overhead(Device& device, CUcontext context, const Overhead& overhead);  // it was
void forget_guess(Device& device, std::uint64_t bytes);                           // of a context that is gone

// Has the hypervisor read the cost off the driver's account, now that a context has come or gone; waits for it a
// moment.
bool ask_for_overhead(Device& device);

}  // namespace tensor_fusion::guest::limiter
