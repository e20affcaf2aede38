#pragma once
// Making and opening the state file, race-free among any number of processes: everything happens under an exclusive
// lock on `<directory>/lock`, which the kernel drops with its holder.
#include <expected>
#include <string>

#include "sim/device/error.h"
#include "sim/device/state.h"

namespace tensor_fusion::sim::device {

struct Opened {
  State* state = nullptr;
  std::uint32_t process_slot = 0;
  int live_fd = -1;
};

[[nodiscard]] std::string default_directory();
// Opens the machine of the directory, or makes it from the description (empty: open only).
[[nodiscard]] std::expected<Opened, Error> open_machine(const std::string& directory, const std::string& description);
void unmap_machine(State* state);
// Whether the process that claimed the slot is there, as the kernel knows by its lock on the liveness file.
[[nodiscard]] bool slot_alive(const State& state, std::uint32_t slot, int live_fd);
void unlock_slot(int live_fd, std::uint32_t slot);
[[nodiscard]] std::uint64_t own_start_ticks();

}  // namespace tensor_fusion::sim::device
