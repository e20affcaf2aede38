#pragma once
// What the device really did: exact device time per engine, context and process, kept by the clock itself. Benchmarks
// of sharing read this and nothing else.
#include <cstdint>
#include <vector>

#include "sim/device/context.h"

namespace tensor_fusion::sim::device {

struct ContextAccount {
  ContextId context;
  std::uint32_t pid;
  std::uint64_t service_ns;  // device time during which one of its kernels ran
  std::uint64_t copy_ns;     // time its copies held a copy engine
  std::uint64_t kernels;     // finished compute items
};
struct ProcessAccount {
  std::uint32_t pid;
  std::uint64_t start_ticks;  // of the process, field 22 of /proc/<pid>/stat
  bool alive;
  std::uint64_t service_ns;  // live contexts and those already gone
  std::uint64_t copy_ns;
  std::uint64_t kernels;
};
struct EngineAccount {
  std::uint64_t clock_ns;  // simulated up to here
  std::uint64_t created_ns;
  std::uint64_t busy_ns;    // Σ service of all contexts ever
  std::uint64_t switch_ns;  // spent switching contexts
  std::uint64_t idle_ns;    // nothing runnable
  std::uint64_t switches;
  std::vector<ContextAccount> contexts;
  std::vector<ProcessAccount> processes;  // live ones and the last few hundred dead
};

// Advances to now, then reads under the engine's lock.
[[nodiscard]] EngineAccount account(Machine& machine, EngineId engine);

// Utilisation as a driver samples it: windows of 1/6 s of the device's clock, whole percent.
inline constexpr std::uint64_t kSampleWindowNs = 166'666'667;
struct UtilisationSample {
  std::uint64_t timestamp_us;  // end of the window, microseconds of the real-time clock
  std::uint32_t compute;       // percent of the window with a kernel running
  std::uint32_t memory;        // percent with a copy running
};
struct ProcessSample {
  std::uint64_t timestamp_us;
  std::uint32_t pid;
  std::uint32_t compute, memory;
};
// Samples newer than the given time, oldest first, at most the last 100 windows. Processes appear only in windows in
// which they used the device.
[[nodiscard]] std::vector<UtilisationSample> utilisation(Machine& machine, EngineId engine,
                                                         std::uint64_t newer_than_us);
[[nodiscard]] std::vector<ProcessSample> process_utilisation(Machine& machine, EngineId engine,
                                                             std::uint64_t newer_than_us);

}  // namespace tensor_fusion::sim::device
