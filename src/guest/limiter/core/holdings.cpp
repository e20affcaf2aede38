#include "guest/limiter/core/holdings.h"

#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter {

Holding* Holdings::look(Shard& shard, Kind kind, std::uint64_t key) {
  if (shard.slots == nullptr) return nullptr;
  for (std::uint64_t place = hash(kind, key) & shard.mask;; place = (place + 1) & shard.mask) {
    Holding& holding = shard.slots[place];
    if (holding.kind == Kind::none) return nullptr;
    if (holding.key == key && holding.kind == kind) return &holding;
  }
}

bool Holdings::grow(Shard& shard) {
  const std::uint64_t old_slots = shard.slots == nullptr ? 0 : shard.mask + 1;
  const std::uint64_t new_slots = old_slots == 0 ? kFirstSlots : old_slots * 2;
  auto* slots = static_cast<Holding*>(os::map_memory(new_slots * sizeof(Holding)));
  if (slots == nullptr) return false;
  for (std::uint64_t old = 0; old < old_slots; ++old) {
    const Holding& holding = shard.slots[old];
    if (holding.kind == Kind::none) continue;
    std::uint64_t place = hash(holding.kind, holding.key) & (new_slots - 1);
    while (slots[place].kind != Kind::none) place = (place + 1) & (new_slots - 1);
    slots[place] = holding;
  }
  if (shard.slots != nullptr) os::unmap(shard.slots, old_slots * sizeof(Holding));
  shard.slots = slots;
  shard.mask = new_slots - 1;
  return true;
}

// Moves later members of the run back, so that no mark of a removed one is needed.
void Holdings::erase(Shard& shard, std::uint64_t place) {
  std::uint64_t hole = place;
  for (std::uint64_t next = (hole + 1) & shard.mask;; next = (next + 1) & shard.mask) {
    const Holding& holding = shard.slots[next];
    if (holding.kind == Kind::none) break;
    const std::uint64_t home = hash(holding.kind, holding.key) & shard.mask;
    if (((next - home) & shard.mask) < ((next - hole) & shard.mask))
      continue;  // it is nearer its home than the hole is
    shard.slots[hole] = holding;
    hole = next;
  }
  shard.slots[hole] = Holding{};
  --shard.count;
}

bool Holdings::insert(const Holding& holding) {
  Shard& shard = shard_of(holding.kind, holding.key);
  Guard guard(shard.mutex);
  if (Holding* found = look(shard, holding.kind, holding.key); found != nullptr) {
    *found = holding;
    return true;
  }
  if ((shard.slots == nullptr || (shard.count + 1) * 4 > (shard.mask + 1) * 3) && !grow(shard)) return false;
  std::uint64_t place = hash(holding.kind, holding.key) & shard.mask;
  while (shard.slots[place].kind != Kind::none) place = (place + 1) & shard.mask;
  shard.slots[place] = holding;
  ++shard.count;
  return true;
}

bool Holdings::find(Kind kind, std::uint64_t key, Holding& found) {
  Shard& shard = shard_of(kind, key);
  Guard guard(shard.mutex);
  const Holding* holding = look(shard, kind, key);
  if (holding == nullptr) return false;
  found = *holding;
  return true;
}

bool Holdings::take(Kind kind, std::uint64_t key, Holding& taken) {
  Shard& shard = shard_of(kind, key);
  Guard guard(shard.mutex);
  Holding* holding = look(shard, kind, key);
  if (holding == nullptr) return false;
  taken = *holding;
  erase(shard, static_cast<std::uint64_t>(holding - shard.slots));
  return true;
}

}  // namespace tensor_fusion::guest::limiter
