#include "node/hypervisor/reconcile.h"

#include <algorithm>

namespace tensor_fusion::node::hypervisor {

Unledgered unledgered(const Reading& reading, std::uint64_t previous_estimate) {
  const std::uint64_t ledger = std::max(reading.ledger_before, reading.ledger_after);
  Unledgered result;
  result.estimate = reading.observed > ledger ? reading.observed - ledger : 0;
  const bool at_rest = reading.at_rest && reading.ledger_before == reading.ledger_after;
  result.bytes = at_rest ? result.estimate : std::min(result.estimate, previous_estimate);
  return result;
}

std::uint64_t overhead_from(const Reading& process, std::uint32_t contexts, std::uint64_t device_memory_bytes) {
  if (contexts != 1 || !process.at_rest || process.ledger_before != process.ledger_after ||
      process.observed <= process.ledger_after)
    return 0;
  const std::uint64_t overhead = process.observed - process.ledger_after;
  return overhead <= std::min(kMostOverheadBytes, device_memory_bytes / 4) ? overhead : 0;
}

}  // namespace tensor_fusion::node::hypervisor
