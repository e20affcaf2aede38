#pragma once
// When a tenant's overwritten claim is told. What is found wrong soon after it was told is of the same overwriting;
// what comes later is another, however little time lies between any two. No clock of its own. One thread.
#include <cstdint>

namespace tensor_fusion::node::hypervisor {

class Overwriting {
 public:
  static constexpr std::uint64_t kOneNs = 5'000'000'000;
  bool is_told(std::uint64_t now_ns) const { return told_ns_ != 0 && now_ns - told_ns_ < kOneNs; }
  bool tell(std::uint64_t now_ns) {  // false: it is told
    if (is_told(now_ns)) return false;
    told_ns_ = now_ns;
    return true;
  }

 private:
  std::uint64_t told_ns_ = 0;
};

}  // namespace tensor_fusion::node::hypervisor
