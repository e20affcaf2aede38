#pragma once
// What this process holds: handle -> what was charged for it. Open addressing over mapped memory, in shards that each
// have their own lock, so threads that allocate and free seldom meet. Refuses (insert returns false) only when the
// kernel gives no memory. Any thread; zero-initialised memory is an empty table.
#include <cstdint>

#include "guest/limiter/core/mutex.h"

namespace tensor_fusion::guest::limiter {

enum class Kind : std::uint8_t {
  none = 0,
  pointer,  // cuMemAlloc and friends; context = where it was made
  array,
  mipmap,
  context,   // bytes = overhead charged
  physical,  // a cuMemCreate handle; extra = the number of the record behind it
  mapping,   // an address with physical memory behind it; bytes = its length, extra = the record
  tile,     // of a sparse array, with physical memory; context = the array, bytes = its size if unknown, extra = record
  record,   // physical memory; key = number, bytes charged, context = live handles, extra = live mappings
  setting,  // memory that a limit set for a context lets it take; key = context and limit
  trace,    // of physical memory that has gone out; key = its record, extra = mark, context = inode, bytes = probe,
            // device = whether this process pays
  origin,   // of physical memory that has come in; key = its record, extra = mark
  orphan,   // of such that nobody of the slice pays for; key = its record, device = where it is
  shared,   // a pointer that others may open; like one, extra = mark
  opened,   // a pointer of another process; extra = mark, context = where it was opened
  library,  // bytes = the most it took at once, extra = whether it was unloaded for want of room
  kernel,   // of a library; extra = that
  placement,  // of a library or a kernel in a context; extra = the library
  exec,       // an executable graph with memory nodes; bytes = what its first run may reserve, extra = trims seen
};

struct Holding {
  std::uint64_t key = 0;
  std::uint64_t bytes = 0;
  std::uint64_t context = 0;
  std::uint64_t extra = 0;
  std::uint32_t device = 0;  // index of the Device
  Kind kind = Kind::none;
  bool guessed = false;  // bytes, of a context: what it costs was not known
};

class Holdings {
 public:
  bool insert(const Holding& holding);  // replaces one with the same kind and key
  bool find(Kind kind, std::uint64_t key, Holding& found);
  bool take(Kind kind, std::uint64_t key, Holding& taken);  // finds and removes

  // Changes one in place under its shard's lock; false when there is none.
  template <class Change>
  bool update(Kind kind, std::uint64_t key, Change change) {
    Shard& shard = shard_of(kind, key);
    Guard guard(shard.mutex);
    Holding* found = look(shard, kind, key);
    if (found == nullptr) return false;
    change(*found);
    return true;
  }

  // Visits every holding; those for which `drop` answers true are removed.
  template <class Drop>
  void remove_if(Drop drop) {
    for (Shard& shard : shards_) {
      Guard guard(shard.mutex);
      for (std::uint64_t place = 0; shard.slots != nullptr && place <= shard.mask;) {
        Holding& holding = shard.slots[place];
        if (holding.kind != Kind::none && drop(holding)) {
          erase(shard, place);  // another may have moved here: look again
        } else {
          ++place;
        }
      }
    }
  }

 private:
  static constexpr std::uint64_t kShards = 32;
  static constexpr std::uint64_t kFirstSlots = 64;
  struct alignas(64) Shard {
    Mutex mutex;
    Holding* slots = nullptr;
    std::uint64_t mask = 0;
    std::uint64_t count = 0;
  };

  static std::uint64_t hash(Kind kind, std::uint64_t key) {
    const std::uint64_t mixed = (key ^ (static_cast<std::uint64_t>(kind) << 56)) * 0x9e3779b97f4a7c15;
    return mixed ^ (mixed >> 29);
  }
  Shard& shard_of(Kind kind, std::uint64_t key) { return shards_[(hash(kind, key) >> 40) % kShards]; }
  static Holding* look(Shard& shard, Kind kind, std::uint64_t key);
  static bool grow(Shard& shard);
  static void erase(Shard& shard, std::uint64_t place);

  Shard shards_[kShards];
};

}  // namespace tensor_fusion::guest::limiter
