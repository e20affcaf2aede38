#pragma once
// The driver inside one process: made by the first cuInit, never unmade (programs call in after static destructors have
// run). Every exported function passes one of the enter… doors first: they say NOT_INITIALIZED, apply injected faults,
// hold calls back while the process is locked for a checkpoint, and answer with the current context's sticky error.
#include <atomic>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/address_space.h"
#include "sim/cuda/context.h"
#include "sim/cuda/executor.h"
#include "sim/device/machine.h"

namespace tensor_fusion::sim::cuda {

class Device;

class Driver {
 public:
  static Driver& get();
  CUresult init();
  [[nodiscard]] int version();  // as the machine's description has it, also before init()
  [[nodiscard]] bool ready() const { return state_.load(std::memory_order_acquire) == State::ready; }
  [[nodiscard]] device::Machine& machine() const { return *machine_; }
  [[nodiscard]] std::span<const std::unique_ptr<Device>> devices() const { return devices_; }
  [[nodiscard]] Device* device(CUdevice ordinal) const;
  [[nodiscard]] Executor& executor() { return executor_; }
  [[nodiscard]] AddressSpace& addresses() { return addresses_; }

  CUresult enter(std::string_view symbol, std::string_view site = {});

 private:
  enum class State : std::uint8_t { fresh, ready, forked };
  Driver() = default;
  std::atomic<State> state_{State::fresh};
  std::unique_ptr<device::Machine> machine_;
  std::vector<std::unique_ptr<Device>> devices_;
  Executor executor_;
  AddressSpace addresses_;
};

// The doors. `symbol` has no version suffix; `site` is its fault class (alloc, launch, copy, sync) or empty.
inline CUresult enter(std::string_view symbol, std::string_view site = {}) { return Driver::get().enter(symbol, site); }
// Only whether the driver is there at all: for what passes a door later on, so that a call counts once for faults.
inline CUresult check_ready() { return Driver::get().ready() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED; }
// Whether this thread runs a host function of a stream, from which no call is allowed.
[[nodiscard]] bool inside_callback();
// Also: a context is current, alive and not poisoned.
CUresult enter(std::string_view symbol, std::string_view site, Context*& context);
// The context is usable: not destroyed, not poisoned, its device not lost.
CUresult check_context(Context& context);

// One line to the file that TENSOR_FUSION_SIM_LOG names (or standard error for "1" or "stderr"); nothing without it.
void log_line(std::string_view text);
// NOT_SUPPORTED, which is said in the log once for each `what`.
CUresult refuse_once(std::string_view what);

}  // namespace tensor_fusion::sim::cuda
