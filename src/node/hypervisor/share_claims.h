#pragma once
// Reads what one tenant claims of one device, summed over its processes, and keeps what is needed to read it again: the
// sums never decrease when a process dies or a slot is taken anew, and what it had outstanding then is told for it, as
// a stretch up to that moment. Every number is bounded here or in the arbiter; a claim page may hold anything. One
// thread.
#include <cstdint>
#include <vector>

#include "contract/claim.h"
#include "pool/share.h"

namespace tensor_fusion::node::hypervisor {

class ShareClaims {
 public:
  // Appends new markers to `stretches`, which is cleared first.
  pool::ShareClaim read(const contract::ClaimPage& page, std::uint32_t device, std::uint64_t now,
                        std::vector<pool::ShareStretch>& stretches);
  std::uint64_t held_ns() const { return held_ns_; }
  std::uint64_t launches() const { return launches_; }
  std::uint64_t blocked() const { return blocked_; }
  // A live process's counters only grow, unless it is replaced by another program: how often one did not.
  std::uint64_t shrunk() const { return shrunk_; }
  bool anyone() const { return anyone_; }  // some process held a slot when it was read last
  // Changes when a process takes or leaves a slot or asks for a settlement.
  std::uint64_t outline() const { return outline_; }

 private:
  struct Slot {
    bool live = false;
    std::uint32_t pid = 0;
    std::uint64_t start_ticks = 0;
    std::uint64_t launched = 0;
    std::uint64_t held = 0;
    std::uint64_t launches = 0;
    std::uint64_t markers = 0;
    std::uint64_t began_ns = 0;  // when it was first seen to count from 0
    std::uint64_t open = 0;      // since when work of it is outstanding; 0: none is
    std::uint64_t completed = 0;
    std::uint64_t told = 0;       // of it, by its markers
    std::uint64_t told_open = 0;  // the last such that was told for one that has ended
  };
  static bool began_again(const contract::ClaimProcessDevice& row, const Slot& slot, std::uint64_t now);
  void count(const contract::ClaimProcessDevice& row, Slot& slot, std::vector<pool::ShareStretch>& stretches);
  void markers(const contract::ClaimProcessDevice& row, Slot& slot, std::vector<pool::ShareStretch>& stretches);
  void bury(const contract::ClaimProcessDevice& row, Slot& slot, std::uint64_t now,
            std::vector<pool::ShareStretch>& stretches);
  void tell_for(Slot& slot, std::uint64_t now, std::vector<pool::ShareStretch>& stretches) const;

  std::vector<Slot> slots_;
  std::uint64_t launched_ns_ = 0;
  std::uint64_t held_ns_ = 0;
  std::uint64_t launches_ = 0;
  std::uint64_t blocked_ = 0;
  std::uint64_t outline_ = 0;
  std::uint64_t shrunk_ = 0;
  std::uint64_t read_ns_ = 0;  // when it was read last
  bool anyone_ = false;
  bool first_ = true;  // what stood there before we came has been charged by whoever was here before
};

}  // namespace tensor_fusion::node::hypervisor
