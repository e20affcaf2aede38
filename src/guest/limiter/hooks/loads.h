#pragma once
// Calls that put code and global variables on a card, whose size only the driver knows. Nothing is booked for them: the
// driver's account shows them, and a slice that is over its limit by them loads no more. So that none gets far over it
// between two readings, what the card has less after such a call is counted until the account is read. Any thread.
#include "guest/limiter/hooks/charge.h"

namespace tensor_fusion::guest::limiter {

inline constexpr std::uint64_t kCode = 32ull << 20;  // of kernels, for a program whose slice is over its limit already

std::uint64_t left_on_card();
// Whether a load may stay that took so much of the card. One whose limit was lowered below what it holds goes on with
// kernels that it has not loaded yet, and with no more.
bool may_stay(Device& device, std::uint64_t grown);

// `undo()` gives back what may not stay. A call that fails may have taken memory, too, which nobody can give back.
template <class Call, class Undo>
CUresult load(Call call, Undo undo) {
  Device* device = current_device();
  if (device == nullptr || Ledger::view(*device).unlimited) return call();
  const std::uint64_t before = left_on_card();
  const CUresult result = call();
  const std::uint64_t after = left_on_card();
  const std::uint64_t grown = before > after ? before - after : 0;
  if ((result != CUDA_SUCCESS && grown == 0) || may_stay(*device, grown)) return result;
  if (result != CUDA_SUCCESS) return result;
  undo();
  ask_for_reading(*device);  // the last one may show what is gone
  refuse(*device, grown, Room::full);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace tensor_fusion::guest::limiter
