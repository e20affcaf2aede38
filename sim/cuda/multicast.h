#pragma once
// A multicast object: one range of addresses that stands for memory on several devices behind a switch. Which devices
// are in the team lies in its file, so that the processes of a job can add theirs one by one; what is bound is each
// process's own business and charged to nobody a second time. Plain access through a mapping meets the memory that the
// first device of the team has bound there, or bytes of nobody's where nothing is bound. Thread-safe.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/address_space.h"
#include "sim/device/arena.h"

namespace tensor_fusion::sim::cuda {

struct CUmulticastObjectProp {
  unsigned numDevices;
  std::size_t size;
  unsigned long long handleTypes, flags;
};
enum CUmulticastGranularity_flags : int {
  CU_MULTICAST_GRANULARITY_MINIMUM = 0,
  CU_MULTICAST_GRANULARITY_RECOMMENDED = 1
};
static_assert(sizeof(CUmulticastObjectProp) == 32);

[[nodiscard]] bool can_multicast(const Device& device);

// Bytes that a device puts into a team.
struct TeamMemory {
  std::shared_ptr<void> keeper;
  int fd = -1;
  std::uint64_t offset = 0, bytes = 0;
};

class MulticastTeam {
 public:
  // A new team lays itself into the bytes behind the object's; one from another process is found there.
  static std::shared_ptr<MulticastTeam> lay(const device::Physical& backing, const CUmulticastObjectProp& wanted);
  static std::shared_ptr<MulticastTeam> find(const device::Physical& backing);
  ~MulticastTeam();
  MulticastTeam(const MulticastTeam&) = delete;
  MulticastTeam& operator=(const MulticastTeam&) = delete;

  [[nodiscard]] const CUmulticastObjectProp& properties() const;
  CUresult add(const Device& device);
  [[nodiscard]] bool has(const Device& device) const;
  void await_all() const;  // until as many devices as were announced have been added

  CUresult bind(const Device& device, std::uint64_t offset, TeamMemory memory);
  CUresult unbind(const Device& device, std::uint64_t offset, std::uint64_t bytes);
  // A mapping of the object's bytes from `offset` on; it shows what is bound from now on.
  void show(const std::shared_ptr<Allocation>& mapping, std::uint64_t offset);

 private:
  struct Page;
  explicit MulticastTeam(Page* page, int fd) : page_(page), fd_(fd) {}
  static Page* open(const device::Physical& backing);
  struct Shown {
    std::weak_ptr<Allocation> mapping;
    std::uint64_t offset;
  };
  void lay_over(std::uint64_t offset, std::uint64_t bytes);  // by the holder of mutex_
  void lay_over(const Allocation& mapping, std::uint64_t mapped_at, std::uint64_t offset, std::uint64_t bytes);

  Page* const page_;
  const int fd_;  // of the object's own bytes; its PhysicalMemory closes it
  std::mutex mutex_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, TeamMemory> bound_;  // by engine and offset
  std::vector<Shown> shown_;
};

}  // namespace tensor_fusion::sim::cuda
