#pragma once
// Whether a hypervisor that was started for somebody may leave again: after a while without slices, connections, and
// visitors that came and went between two looks, who may be about to come back. Pure: the caller's clock; one thread.
#include <cstdint>

namespace tensor_fusion::node::hypervisor {

class Idleness {
 public:
  explicit Idleness(std::uint64_t most_ns) : most_ns_(most_ns) {}

  // `visits`: how many have come so far. The first look only begins to count.
  bool is_over(bool busy, std::uint64_t visits, std::uint64_t now_ns) {
    if (busy || visits != visits_ || since_ns_ == 0) since_ns_ = now_ns;
    visits_ = visits;
    return now_ns - since_ns_ > most_ns_;
  }

 private:
  std::uint64_t most_ns_;
  std::uint64_t since_ns_ = 0;
  std::uint64_t visits_ = 0;
};

}  // namespace tensor_fusion::node::hypervisor
