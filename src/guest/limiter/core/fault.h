#pragma once
// Places where a process may die at the worst instant. A test names one in the variable below and the process kills
// itself there; elsewhere a point costs one predicted branch. Compiled in always, so that what is tested is what ships,
// and harmless: a tenant can kill itself anyway.
#include <cstdint>

namespace tensor_fusion::guest::limiter {

enum class FaultPoint : std::uint32_t {
  none = 0,
  lock_held = 1,     // the lock taken, nothing changed
  ledger_half = 2,   // own row changed, the total not yet
  ledger_done = 3,   // both changed, the lock still held
  reserved = 4,      // reserved, the driver not yet called
  allocated = 5,     // the driver has answered, the size not yet remembered
  slot_claimed = 6,  // slot taken, not yet live
  slot_reaping = 7,  // a dead neighbour's slot taken over, its bytes not yet returned
  last = slot_reaping,
};

inline constexpr const char* kFaultVariable = "TENSOR_FUSION_LIMITER_FAULT";  // "<point>" or "<point>:<n-th time>"

extern std::uint32_t g_fault_point;
void fault_reached();
void arm_faults(const char* value);

[[gnu::always_inline]] inline void fault(FaultPoint point) {
  if (__builtin_expect(g_fault_point == static_cast<std::uint32_t>(point), 0)) fault_reached();
}

}  // namespace tensor_fusion::guest::limiter
