#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "sim/ptx/alu/key.h"

namespace tensor_fusion::sim::ptx {

struct RangeSlot {
  std::uint64_t begin = 1;
  std::uint64_t end = 0;
  bool writable = false;
};

struct LinkedExtra {
  const Slot* outs = nullptr;
  const Slot* ins = nullptr;
  const std::uint32_t* targets = nullptr;
  std::uint32_t out_count = 0;
  std::uint32_t in_count = 0;
  std::uint32_t target_count = 0;
};

// What a handler sees of a running batch. Owned by the machine; one thread at a time.
struct ExecFrame {
  std::byte* regs = nullptr;
  std::uint32_t warps = 0;
  std::uint32_t lanes = 0;      // warps * 32
  RangeSlot* ranges = nullptr;  // one per memory instruction
  const LinkedExtra* extras = nullptr;
  std::byte* shared = nullptr;                 // of the batch's first block
  const std::uint32_t* shared_base = nullptr;  // lane → offset of its block's shared memory
  bool one_shared = true;                      // all lanes have the same
  std::uint64_t shared_bytes = 0;              // per block
  std::byte* local = nullptr;
  std::uint64_t local_bytes = 0;  // per lane, and the stride
  const std::byte* params = nullptr;
  std::uint64_t param_bytes = 0;
  // Finds the range that holds [address, address + bytes); false: no such range (the fault is set).
  bool (*find_range)(ExecFrame& frame, std::uint64_t address, std::uint64_t bytes, bool write,
                     RangeSlot& slot) = nullptr;
  // Host address of one lane's access in any space; nullptr: the fault is set. The way for everything that is not fast.
  std::byte* (*resolve)(ExecFrame& frame, const Ins& ins, std::uint64_t address, std::uint32_t lane,
                        std::uint32_t bytes, bool write, int space) = nullptr;
  void* machine = nullptr;
  std::uint64_t global_bytes = 0;
  // the fault
  std::uint8_t fault = 0;  // Status
  std::uint64_t fault_address = 0;
};

}  // namespace tensor_fusion::sim::ptx
