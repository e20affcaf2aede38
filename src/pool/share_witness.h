#pragma once
// The driver's own word on what one tenant used, which no process of the tenant can write, against what the tenant
// claims. It rounds, lags by a sample and counts gaps, so it is held as a balance and only large excess counts. Of who
// was caught it is no longer the claim that counts but the time the device was kept for it, as long as that is more:
// the driver's word alone comes too late to hold anybody to a share. One thread.
#include <algorithm>
#include <cstdint>

namespace tensor_fusion::pool {

class ShareWitness {
 public:
  // Device time that it has claimed, and that it has been charged for that or for being kept the device. Returns what
  // is to be charged beside, or given back when it is negative.
  double observe(double claimed_ns, double own_ns, double percent, std::uint64_t window_ns, std::uint64_t now);
  // It is known to lie, whatever the driver says.
  void accuse(double own_ns) {
    if (over_++ == 0) kept_until_ns_ = own_ns;
    quiet_ = 0;
  }
  void forget() { own_ns_ = -1; }  // nothing was counted of late

  bool suspects() const { return over_ > 0; }
  bool convicts() const { return over_ > 1; }
  bool looks_closely(std::uint64_t now) const { return suspects() || unclaimed_ > 0 || now < new_until_; }

  // While it is suspected.
  void keep(double ns) { kept_until_ns_ += ns; }
  double kept_until_ns() const { return kept_until_ns_; }  // at least so much is its own

 private:
  static constexpr unsigned kQuietWindows = 60;
  static constexpr std::uint64_t kNewNs = 3'000'000'000;  // one that begins to work is looked at closely
  static constexpr double kWorksPercent = 5;

  double claimed_ns_ = 0, own_ns_ = -1;
  double unclaimed_ = 0;  // seen beyond what was claimed
  double balance_ = 0;    // ... and beyond what was charged
  double disputed_ = 0;   // charged for that of late
  double kept_until_ns_ = 0;
  std::uint64_t at_ = 0, new_until_ = 0, worked_at_ = 0;
  unsigned over_ = 0;   // how often it was far beyond its claims, until it has long not been
  unsigned quiet_ = 0;  // windows since
};

}  // namespace tensor_fusion::pool
