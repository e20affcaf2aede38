#pragma once
// How long each lock of one claim page has stood in the same hands. Who holds it under the name of a slot is known to
// live or not; a process of the tenant that returns another's slot before it has one of its own names itself by a name
// that many share, and when that one dies only patience tells. Pure; one thread.
#include <array>
#include <cstdint>

#include "contract/claim.h"

namespace tensor_fusion::node::hypervisor {

class LockWatch {
 public:
  void look(const contract::ClaimPage& page, std::uint64_t now_ns);  // at every scan
  // Whether the name that no slot bears has stood there at every look for the whole patience. One who had let go and
  // taken it anew each time looks the same: it loses nothing, since totals are changed by read-modify-write only.
  bool abandoned(const contract::ClaimPage& page, std::uint32_t device, std::uint64_t now_ns) const;

  static constexpr std::uint64_t kPatienceNs = 2'000'000'000;  // as long as a process of the tenant waits
  static constexpr std::uint32_t kLooks = 3;                   // at least, however long it is between them

 private:
  struct Seen {
    std::uint32_t holder = 0;
    std::uint32_t looks = 0;
    std::uint64_t since_ns = 0;
  };
  std::array<Seen, contract::kMaxDevices> seen_;
};

}  // namespace tensor_fusion::node::hypervisor
