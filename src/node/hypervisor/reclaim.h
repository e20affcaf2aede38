#pragma once
// Gives back what dead processes held. Never waits: a lock that a living process holds is tried again at the next pass,
// so a tenant that keeps its lock harms itself alone. Every step may be repeated after a crash in the middle of it.
#include <cstdint>
#include <functional>

#include "contract/claim.h"

namespace tensor_fusion::node::hypervisor {

// Whether the lock of this device may be taken from who holds it: a slot + 1, or a name that no slot bears.
using HolderIsGone = std::function<bool(std::uint32_t device, std::uint32_t holder)>;

// `slots` below: how many there are to sum over (slot_count).
// Whose slot it was, as it names itself there.
struct SlotOwner {
  std::uint32_t pid = 0;
  std::uint64_t start_ticks = 0;
};

// Returns a dead process's slot, unless another has it by now. False: some lock is busy, try again.
bool reap_slot(contract::ClaimPage& page, std::uint32_t slots, std::uint32_t slot, const SlotOwner& owner,
               const HolderIsGone& is_gone);

// Takes over a lock whose holder is gone, sets the total right and lets go. True when it did.
bool repair_lock(contract::ClaimPage& page, std::uint32_t slots, std::uint32_t device, const HolderIsGone& is_gone);

// Sets the total to the sum over live slots where the two differ and the lock can be had. True when it changed
// something.
bool rebalance(contract::ClaimPage& page, std::uint32_t slots, std::uint32_t device);

}  // namespace tensor_fusion::node::hypervisor
