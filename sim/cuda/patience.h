#pragma once
// After a quarter of the time in which the device would give it up, work that is still being executed counts as work
// that runs on the card: the clock goes on with it, and others have their time slices. Thread-safe.
#include <atomic>
#include <cstdint>
#include <memory>

#include "sim/device/work.h"

namespace tensor_fusion::sim::cuda {

class Context;

// The place of work on the clock; 0 until it has one.
using Place = std::atomic<device::Ticket>;

class Patience {
 public:
  Patience(Context& context, std::shared_ptr<Place> place);
  void look();  // called now and then while the work goes on

 private:
  Context& context_;
  const std::shared_ptr<Place> place_;
  std::atomic<std::uint64_t> next_ns_;
};

}  // namespace tensor_fusion::sim::cuda
