#pragma once
// Whether a process with a live claim has in its memory what a limiter at work has there: the slice's claim, and the
// limiter's file where a view shows which that is. A slot alone is a few numbers that any process of the slice may
// write for any other, and it outlives an exec that leaves the limiter out. Looked at once for what it executes, which
// is known by its memory's layout: to read that waits for no lock that the process could hold. What a process maps is
// its own to choose: one that maps both deceives. One thread.
#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "node/hypervisor/map_reader.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {

inline constexpr const char* kLimiterPath = "/run/tensor-fusion/libtensor_fusion_limiter.so";  // in a view

struct SliceFiles {
  system::FileIdentity claim;
  std::optional<system::FileIdentity> limiter;  // none: not known which it is
};

// Claim and limiter; `later` while either is not known yet. `seen`: with a no, what else is there.
MapReader::Answer has_limiter(pid_t pid, std::uint64_t start_ticks, MapReader& reader, const SliceFiles& files,
                              std::uint64_t now_ns, Libraries* seen = nullptr);

class LimiterProof {
 public:
  static constexpr std::uint64_t kSeenInNs = 10'000'000'000;    // from when its list begins to be read
  static constexpr std::uint64_t kWaitsForNs = 60'000'000'000;  // ... which others' lists may put off for so long
  // True, too, while it is not seen yet, for so long. What is not to be seen from here is no proof.
  bool holds(pid_t pid, std::uint64_t start_ticks, MapReader& reader, const SliceFiles& files, std::uint64_t now_ns);

 private:
  decltype(system::ProcessStat::layout) layout_{};  // of what is looked at
  bool proven_ = false;
  std::uint64_t unknown_since_ns_ = 0;  // 0: it is known
  std::uint64_t read_since_ns_ = 0;     // 0: it is not being read
};

}  // namespace tensor_fusion::node::hypervisor
