#pragma once
// Faults on purpose. A caller asks by the name of its call site; the answer is nearly always "none" and then costs a
// few nanoseconds. Rules come from TENSOR_FUSION_SIM_FAULT and from the file `faults` in the machine's directory
// (read again when it changes, looked at every 50 ms at most):
//
//   rule[,rule…]      (or one rule a line in the file; # starts a comment)
//   oom@SITE[:N]      out of memory at the N-th call of SITE by this process (N+ = from the N-th on; default every
//   call) error=CODE@SITE[:N]   any result code, e.g. error=700@cuLaunchKernel:3 hang@SITE[:N]     the call sleeps
//   until the process is killed or the rule disappears xid=CODE@SITE[:N] as error 719-like: the caller gets the Xid
//   number and must report it with Machine events lost=INDEX        that card is lost while the rule stands
//   slow_copy=FACTOR  copies take that many times as long
//   …;pid=PID         a rule ends with ;pid=PID to hit one process only
//
// SITE is a driver symbol without version suffix (cuMemAlloc) or a class: alloc, launch, copy, sync, any. A rule that
// names anything else is refused when the machine is opened (fault_site.h); in a file that changes later it is said.
// Any thread. Counters belong to the process.
#include <cstdint>
#include <string>
#include <string_view>

namespace tensor_fusion::sim::device {

enum class FaultKind : std::uint8_t { none, oom, error, xid };

struct Fault {
  FaultKind kind = FaultKind::none;
  std::uint32_t code = 0;  // CUresult or Xid
  explicit operator bool() const { return kind != FaultKind::none; }
};

// Sets where rules come from; called by Machine::attach. Returns "" or what is wrong with the text or the file.
std::string configure_faults(std::string_view text, std::string_view directory);
// What is wrong with the rules for cards that a machine of so many does not have, or "". From then on a file that names
// one is said to be wrong like any other.
std::string check_fault_cards(unsigned devices);
// Counts the call under its name, its class and "any"; a hang rule blocks in here.
[[nodiscard]] Fault fault_at(std::string_view symbol, std::string_view site_class = {});
[[nodiscard]] double slow_copy_factor();
[[nodiscard]] bool fault_lost(unsigned device);

}  // namespace tensor_fusion::sim::device
