#pragma once
// The host's clocks. Any thread.
#include <cstdint>

namespace tensor_fusion::system {

std::uint64_t monotonic_ns();    // CLOCK_MONOTONIC: what the grant and claim pages use
std::uint64_t wall_ms();         // since 1970
std::uint64_t process_cpu_ns();  // CPU time this process has used
std::uint64_t thread_cpu_ns();

}  // namespace tensor_fusion::system
