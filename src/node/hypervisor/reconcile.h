#pragma once
// The driver's account against the tenant's own. Pure.
#include <cstdint>

namespace tensor_fusion::node::hypervisor {

// One tenant on one device. The ledger is read before and after the driver was asked: a reservation is entered before
// the driver is called and taken out after it has freed, so what the driver shows beyond the larger of the two is real.
struct Reading {
  std::uint64_t ledger_before = 0;
  std::uint64_t ledger_after = 0;
  std::uint64_t observed = 0;
  bool at_rest = true;  // nothing was entered or taken out between the two
};
struct Unledgered {
  std::uint64_t estimate = 0;  // of this reading
  std::uint64_t bytes = 0;     // to be written to the grant
};
// While the ledger moves (up and down again, too) a reading may be off, so a rise counts only when it was seen twice in
// a row; at rest, and downwards, it counts at once.
Unledgered unledgered(const Reading& reading, std::uint64_t previous_estimate);

// More than any driver's context takes. A tenant that hides memory from its ledger could otherwise teach us a figure
// that makes everybody else's contexts dear.
inline constexpr std::uint64_t kMostOverheadBytes = 1ull << 30;
// What one context costs, from a process that has exactly one and whose overhead is not in its ledger yet. 0: no
// answer.
std::uint64_t overhead_from(const Reading& process, std::uint32_t contexts, std::uint64_t device_memory_bytes);

}  // namespace tensor_fusion::node::hypervisor
