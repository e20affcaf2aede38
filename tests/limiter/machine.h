#pragma once
// A simulated machine and a slice of its first card, for tests and benchmarks of the limiter: the tenant runs with the
// limiter preloaded, and what it really took is read from the machine itself.
#include <memory>
#include <string>
#include <vector>

#include "guest/limiter/testing/slice.h"
#include "sim/device/machine.h"
#include "sim/device/memory.h"

namespace tensor_fusion::tests {

class LimitedMachine {
 public:
  // The slice has the first `cards`, and may hold `limit_bytes` of each; 0 = no limit.
  explicit LimitedMachine(std::uint64_t limit_bytes, const std::string& description = "1xh100", unsigned cards = 1);
  ~LimitedMachine();

  const std::string& state() const { return state_; }  // the directory of all its files
  std::uint64_t overhead() const { return overhead_; }
  std::string uuid(unsigned card) const { return machine_->device(card).uuid; }
  std::string serial(unsigned card) const { return machine_->device(card).serial; }
  std::string bus(unsigned card) const;  // its PCI address
  guest::limiter::testing::TestSlice& slice() { return *slice_; }
  std::uint64_t ledger() const { return slice_->claim().devices[0].used_bytes.load(); }
  sim::device::MemoryInfo memory() const;                     // of the first card, dead processes reaped
  std::uint64_t tenants_real_bytes(unsigned card = 0) const;  // over all processes, as NVML would add them up
  void reset_peak();
  guest::limiter::testing::Job tenant(std::vector<std::string> arguments, bool limited = true) const;

 private:
  std::string state_;
  std::unique_ptr<sim::device::Machine> machine_;
  std::unique_ptr<guest::limiter::testing::TestSlice> slice_;
  std::uint64_t overhead_ = 0;
};

// A tenant that is talked to line by line.
class Talk {
 public:
  explicit Talk(const guest::limiter::testing::Job& job);
  ~Talk();
  std::string line();  // the next line it prints; empty at its end
  void go();           // lets it go on
  void kill();
  int pid() const { return pid_; }

 private:
  int pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::string buffered_;
};

}  // namespace tensor_fusion::tests
