#pragma once
// How long `run` asks one hypervisor after the other: from the first answer that failed, and anew after each that had
// it stand in line. One that ends at each request gets no more of it. Pure: the caller's clock; one thread.
#include <cstdint>

namespace tensor_fusion::cli {

class Patience {
 public:
  explicit Patience(std::uint64_t length_ns) : length_ns_(length_ns) {}

  void reached(std::uint64_t now_ns) { reached_ns_ = now_ns; }  // one has answered
  void failed(std::uint64_t now_ns) {                           // and is gone, or there was none
    const bool stood = reached_ns_ != 0 && now_ns >= reached_ns_ + length_ns_ / 10;
    if (since_ns_ == 0 || stood) since_ns_ = now_ns;
    reached_ns_ = 0;
  }
  bool is_over(std::uint64_t now_ns) const { return since_ns_ != 0 && now_ns > since_ns_ + length_ns_; }

 private:
  std::uint64_t length_ns_;
  std::uint64_t since_ns_ = 0;    // 0: nothing has failed
  std::uint64_t reached_ns_ = 0;  // 0: none was, since the last failed
};

}  // namespace tensor_fusion::cli
