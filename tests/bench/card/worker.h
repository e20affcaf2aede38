#pragma once
// The program that is measured: it opens the first card that it is shown and does what it is told, line by line, with
// one line in answer. It says `ready MS NAME` first (what starting the driver and a context took).
//
//   kernel                    KIND COUNT: a kernel that takes about a millisecond of the card, for `spin`
//   spin KIND COUNT AT N      the kernels that ended in each of N seconds from AT (ns of the monotonic clock), with
//                             four of them queued at any time
//   calls                     LAUNCH ALLOC: a thread's nanoseconds for a launch, and for an allocation with its release
//   memory                    FREE TOTAL: bytes, as the driver shows them
//   fill                      bytes got in pieces of 8 MiB by two threads until there are no more; kept to the end
#include <string>

namespace tensor_fusion::bench::card {

int work();
// `count` workers, each a process of its own: every line is told to all, and answered by all answers one after another.
int work_together(const std::string& self, int count);

}  // namespace tensor_fusion::bench::card
