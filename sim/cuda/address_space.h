#pragma once
// Which addresses mean something to a kernel or a copy: every allocation of this process with its owner, by address.
// Device memory, pinned and registered host memory, managed memory, mapped physical allocations, memory of other
// processes: all one address space, as with unified addressing. Thread-safe; readers do not block each other.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "sim/cuda/abi.h"

namespace tensor_fusion::sim::cuda {

class Device;
class Context;
class Pool;

struct Allocation {
  enum class Kind : std::uint8_t { device, managed, host, registered, mapped, pool, ipc };
  Kind kind = Kind::device;
  std::uint64_t base = 0;
  std::uint64_t size = 0;        // as asked for
  std::uint64_t extent = 0;      // as accounted and accessible
  Device* device = nullptr;      // where the bytes count; null for host memory
  std::uint64_t context_id = 0;  // owner, 0 = the device (pools, physical memory)
  std::weak_ptr<Context> owner;  // the same
  std::uint64_t id = 0;          // never reused in this process
  unsigned flags = 0;            // of cuMemHostAlloc, cuMemHostRegister or cuMemAllocManaged
  bool readable = true, writable = true;
  std::atomic<unsigned> sync_memops{0};
  std::shared_ptr<void> keeper;  // what must live as long as this (pool, mapping, advice)
  [[nodiscard]] bool on_device() const { return device != nullptr; }
  [[nodiscard]] bool host_side() const { return kind == Kind::host || kind == Kind::registered; }
};

class AddressSpace {
 public:
  // false when it overlaps something.
  bool add(const std::shared_ptr<Allocation>& allocation);
  [[nodiscard]] std::shared_ptr<Allocation> find(std::uint64_t address) const;  // whose extent contains it
  [[nodiscard]] std::shared_ptr<Allocation> exact(std::uint64_t base) const;
  std::shared_ptr<Allocation> remove(std::uint64_t base);
  [[nodiscard]] bool overlaps(std::uint64_t base, std::uint64_t bytes) const;
  std::vector<std::shared_ptr<Allocation>> of_context(std::uint64_t context_id) const;
  [[nodiscard]] std::vector<std::shared_ptr<Allocation>> all() const;
  [[nodiscard]] std::uint64_t next_id() { return next_id_.fetch_add(1, std::memory_order_relaxed); }

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Allocation>> by_base_;
  std::atomic<std::uint64_t> next_id_{1};
};

}  // namespace tensor_fusion::sim::cuda
