#pragma once
// Programs that harm whom they share a device with, without using it much themselves. They run under the limiter like
// any other, and know where their tenant's pages lie.
#include <sys/types.h>

namespace tensor_fusion::bench::share {

// Writes noise over the compute account of many process slots, and rings without pause. Needs a slot of its own.
[[noreturn]] void scribble();
// Says of many process slots that they wait and have a queue on the device, and rings without pause.
[[noreturn]] void claim_a_queue();
// Says again and again, of every slot, that nothing was ever launched. A thread beside the work.
[[noreturn]] void deny();
// Stops and continues a process of the tenant at random.
[[noreturn]] void keep_stopping(pid_t process);

}  // namespace tensor_fusion::bench::share
