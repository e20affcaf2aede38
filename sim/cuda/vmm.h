#pragma once
// Virtual memory management: physical allocations apart from addresses. A physical allocation is charged to the device
// it was created on and lives until its last handle is released, its last mapping is gone and the last descriptor it
// was exported as is closed, in all processes (physical_account.h). Each mapping knows which devices may use it.
// Thread-safe.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "sim/cuda/abi.h"
#include "sim/cuda/device.h"
#include "sim/cuda/handle.h"
#include "sim/cuda/multicast.h"
#include "sim/cuda/physical_account.h"
#include "sim/device/arena.h"

namespace tensor_fusion::sim::cuda {

inline constexpr std::uint64_t kTrailerBytes = 4096;  // behind the bytes of a physical allocation: what importers need

struct PhysicalMemory {
  static constexpr HandleKind kHandleKind = HandleKind::physical;
  PhysicalMemory(device::Physical backing, const CUmemAllocationProp& wanted, std::uint64_t size)
      : memory(std::move(backing)), properties(wanted), bytes(size) {}
  ~PhysicalMemory() {
    if (paid_here) end_payment(*this);
  }
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;

  device::Physical memory;
  const CUmemAllocationProp properties;
  const std::uint64_t bytes;
  std::uint32_t domain = 0;             // whose account it is on
  std::atomic<bool> paid_here = false;  // not: host memory, or another process pays
  std::atomic<bool> travelled = false;  // others may hold it
  std::shared_ptr<MulticastTeam> team;  // set: a multicast object, without memory of its own
  std::uint64_t handle_value = 0;
  unsigned handles = 1;  // how often the program holds it, under vmm's lock
};

struct Mapping {
  std::shared_ptr<PhysicalMemory> memory;
  std::uint64_t offset = 0;
  std::mutex mutex;
  std::map<int, CUmemAccess_flags> access;       // by device ordinal
  std::map<int, CUmemAccess_flags> host_access;  // by location type
  [[nodiscard]] CUmemAccess_flags allowed(int ordinal) {
    const std::lock_guard lock(mutex);
    const auto found = access.find(ordinal);
    return found != access.end() ? found->second : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  }
};

[[nodiscard]] HandleTable<PhysicalMemory>& physicals();
CUmemGenericAllocationHandle add_physical(const std::shared_ptr<PhysicalMemory>& memory);
[[nodiscard]] std::shared_ptr<PhysicalMemory> of_team(device::Physical backing, std::shared_ptr<MulticastTeam> team);
// What another allocation's descriptor names, which then belongs to the result; nothing for files of other kinds.
[[nodiscard]] std::shared_ptr<PhysicalMemory> import_physical(int fd);

}  // namespace tensor_fusion::sim::cuda
