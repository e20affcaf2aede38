#pragma once
// Whether a process with a live claim has in its memory what a limiter at work has there: the slice's claim, and the
// limiter's file where a view shows which that is. A slot alone is a few numbers that any process of the slice may
// write for any other, and it outlives an exec that leaves the limiter out. Looked at once for what it executes: the
// proof keeps that memory's map open, which ends with it. What a process maps is its own to choose: one that maps both
// deceives. One thread.
#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "node/hypervisor/map_reader.h"
#include "system/fd.h"

namespace tensor_fusion::node::hypervisor {

inline constexpr const char* kLimiterPath = "/run/tensor-fusion/libtensor_fusion_limiter.so";  // in a view

struct SliceFiles {
  system::FileIdentity claim;
  std::optional<system::FileIdentity> limiter;  // none: not known which it is
};

// Claim and limiter; `later` while either is not known yet.
MapReader::Answer has_limiter(pid_t pid, std::uint64_t start_ticks, MapReader& reader, const SliceFiles& files,
                              std::uint64_t now_ns);

class LimiterProof {
 public:
  // True, too, where that is not to be seen from here, or not yet.
  bool holds(pid_t pid, std::uint64_t start_ticks, MapReader& reader, const SliceFiles& files, std::uint64_t now_ns);

 private:
  system::Fd memory_;  // valid: what it belongs to was looked at
};

}  // namespace tensor_fusion::node::hypervisor
