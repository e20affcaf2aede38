#pragma once

#include "sim/ptx/frame.h"

namespace tensor_fusion::sim::ptx {

// See ExecFrame. The machine behind the frame must be a Batch.
bool find_range(ExecFrame& frame, std::uint64_t address, std::uint64_t bytes, bool write, RangeSlot& slot);
std::byte* resolve(ExecFrame& frame, const Ins& ins, std::uint64_t address, std::uint32_t lane, std::uint32_t bytes,
                   bool write, int space);

}  // namespace tensor_fusion::sim::ptx
