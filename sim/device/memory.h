#pragma once
// How many bytes of device memory are taken, by whom. One domain per card or MIG GPU instance; exact over all
// processes: the sum over live processes equals `used` whenever nobody is inside a call. Any thread.
#include <cstdint>
#include <expected>
#include <vector>

#include "sim/device/error.h"

namespace tensor_fusion::sim::device {

class Machine;

struct MemoryInfo {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t peak_bytes = 0;  // high-water mark since creation or reset_memory_peak()
  std::uint64_t refused = 0;     // reservations refused
};

// Takes bytes for this process, or out_of_memory with nothing taken.
[[nodiscard]] std::expected<void, Error> reserve_memory(Machine& machine, std::uint32_t domain, std::uint64_t bytes);
// Takes what is there already, whatever the capacity: its payer has gone, and it has not.
void take_over_memory(Machine& machine, std::uint32_t domain, std::uint64_t bytes);
// Gives back; more than this process holds is refused with invalid.
std::expected<void, Error> release_memory(Machine& machine, std::uint32_t domain, std::uint64_t bytes);
[[nodiscard]] MemoryInfo memory_info(Machine& machine, std::uint32_t domain);
void reset_memory_peak(Machine& machine, std::uint32_t domain);

struct ProcessMemory {
  std::uint32_t pid;
  std::uint64_t used_bytes;  // context overheads included
  std::uint32_t contexts;    // live contexts on engines of this domain
};
// Live processes with memory or a context in the domain; two libraries in one process count together.
[[nodiscard]] std::vector<ProcessMemory> memory_by_process(Machine& machine, std::uint32_t domain);

}  // namespace tensor_fusion::sim::device
