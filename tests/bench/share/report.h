#pragma once
// What a worker tells the bench, and the bench a worker: one shared page per worker. Counters only grow.
#include <atomic>
#include <cstdint>

namespace tensor_fusion::bench::share {

struct Report {
  static constexpr std::size_t kSteps = 1 << 16;
  std::atomic<std::uint32_t> ready;  // 1: context made, 2: working
  std::atomic<std::uint32_t> failed;
  std::atomic<std::uint32_t> pid;          // of the worker
  std::atomic<std::uint64_t> kernels;      // launched and waited for
  std::atomic<std::uint64_t> kernel_ns;    // their own durations, alone
  std::atomic<std::uint64_t> steps;        // ever; steps_ns[n % kSteps] is the n-th
  std::atomic<std::uint32_t> utilisation;  // percent of the device, as the driver's sampling says; fed by the bench
  std::atomic<std::uint32_t> feedback;     // 0, or the percent that the block-count limiter in the worker aims at
  std::uint32_t step_ns[kSteps];           // from the first launch of a step until it has been waited for
};

}  // namespace tensor_fusion::bench::share
