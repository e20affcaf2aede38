#pragma once
// The node's daemon: owns the slices of one machine. Made from a state directory; run() serves until stop(), a signal,
// or, when it was started by a `run`, until it has been idle for a while. Ending it, however, never ends a tenant:
// pages and records stay and the next one goes on with them. One thread owns all state; stop() may come from any.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/provider_process.h"

namespace tensor_fusion::node::hypervisor {

struct HypervisorOptions {
  std::string state;                 // as state_directory() resolves it
  std::string accelerator_library;   // a provider library; empty: the built-in NVIDIA provider
  std::uint64_t idle_exit_ms = 0;    // leave after so long without tenants and connections; 0: never
  std::size_t slices_per_user = 64;  // of each user but root and the daemon's own
  std::vector<std::pair<std::string, std::string>> variables;  // that programs of slices get
  bool handle_signals = true;                                  // SIGTERM and SIGINT end it
  bool log_events = true;                                      // one line each, on stderr
  std::string version = "0.1.0";
  device::ProviderDeadlines deadlines;
  std::uint64_t measure_ms = 1000;       // with processes on a GPU
  std::uint64_t measure_idle_ms = 1000;  // without: strangers are found by this
};

class Hypervisor {
 public:
  static base::Result<std::unique_ptr<Hypervisor>> make(HypervisorOptions options);
  ~Hypervisor();

  base::Result<void> run();
  void stop();

  // For benchmarks and `doctor`: what it costs.
  std::uint64_t share_cpu_ns() const;
  pid_t provider_pid() const;

 private:
  struct State;
  explicit Hypervisor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tensor_fusion::node::hypervisor
