#pragma once
// One change to one engine: holds its lock, works on copies, and makes all of them count with a single store. A process
// that dies anywhere in between leaves the engine exactly as it was before, or as it is after.
#include <array>
#include <cstdint>

#include "sim/device/robust_lock.h"
#include "sim/device/state.h"

namespace tensor_fusion::sim::device {

void repair_engine(State& state, EngineRecord& engine);

class Transaction {
 public:
  Transaction(State& state, EngineId engine);
  [[nodiscard]] EngineRecord& engine() const { return engine_; }
  [[nodiscard]] EngineCore& core() { return core_; }
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  // The committed copy, and a working copy that commit() makes the committed one. Touch a context once.
  [[nodiscard]] const ContextCore& committed(const ContextRecord& context) const;
  [[nodiscard]] ContextCore& touch(std::uint32_t context_slot);
  void commit();

 private:
  State& state_;
  EngineRecord& engine_;
  RobustLock lock_;
  std::uint64_t epoch_;
  EngineCore& core_;
  std::array<std::uint16_t, kMaxMembers> touched_;
  unsigned touched_count_ = 0;
};

}  // namespace tensor_fusion::sim::device
