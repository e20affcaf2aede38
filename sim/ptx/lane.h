#pragma once

#include <cstring>

#include "sim/ptx/frame.h"

// One lane at a time, for effect handlers.
namespace tensor_fusion::sim::ptx {

template <class T>
[[nodiscard]] T get(const ExecFrame& frame, const Slot& slot, std::uint32_t lane) {
  T value;
  std::memcpy(&value,
              frame.regs + slot.at + std::size_t{lane / kWarp} * slot.step + std::size_t{lane % kWarp} * sizeof(T),
              sizeof(T));
  return value;
}

template <class T>
void set(ExecFrame& frame, const Slot& slot, std::uint32_t lane, T value) {
  std::memcpy(frame.regs + slot.at + std::size_t{lane / kWarp} * slot.step + std::size_t{lane % kWarp} * sizeof(T),
              &value, sizeof(T));
}

[[nodiscard]] inline bool active(const Mask& mask, std::uint32_t lane) {
  return mask.bytes == nullptr || mask.bytes[lane] != 0;
}

// Calls visit(lane) for every active lane until it answers false.
template <class Visit>
bool each_lane(const Mask& mask, const Visit& visit) {
  for (std::uint32_t lane = mask.first * kWarp; lane < mask.last * kWarp; ++lane) {
    if (active(mask, lane) && !visit(lane)) return false;
  }
  return true;
}

}  // namespace tensor_fusion::sim::ptx
