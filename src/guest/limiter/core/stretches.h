#pragma once
// What one look at the markers of a process learned, to be told in its claim page. Stretches of several streams that
// overlap are told as one: the device had no more time than that, and many short ones would run over what the reader
// has room for, who then has only their estimates. Made for one look, on the stack; under the gate's lock of the
// device.
#include <cstddef>
#include <cstdint>

#include "contract/claim.h"

namespace tensor_fusion::guest::limiter {

struct ToldStretch {
  std::uint64_t start_ns, end_ns;  // both 0: not known when
  std::uint64_t estimated_ns;
  bool guessed;
};

void tell(const ToldStretch& stretch, contract::ClaimProcessDevice& claim);

class Stretches {
 public:
  static constexpr std::size_t kPlaces = 16;
  static constexpr std::uint64_t kLongestNs = 20'000'000;  // of what is told as one

  explicit Stretches(contract::ClaimProcessDevice& claim) : claim_(claim) {}
  ~Stretches();  // tells, in order of time
  Stretches(const Stretches&) = delete;
  Stretches& operator=(const Stretches&) = delete;

  void add(ToldStretch stretch);
  contract::ClaimProcessDevice& claim() { return claim_; }

 private:
  ToldStretch take_out(std::size_t place);

  contract::ClaimProcessDevice& claim_;
  ToldStretch places_[kPlaces];  // in order of time; no two overlap, but where they would be too long
  std::size_t count_ = 0;
  std::uint64_t unplaced_ns_ = 0;
};

}  // namespace tensor_fusion::guest::limiter
