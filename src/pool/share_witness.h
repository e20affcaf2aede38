#pragma once
// The driver's own word on what one tenant used, which no process of the tenant can write, against what the tenant
// claims. It rounds, lags by a sample and counts gaps, so it is held as a balance and only large excess counts. Of who
// was caught it is no longer the claim that counts but the time the device was kept for it, as long as that is more:
// the driver's word alone comes too late to hold anybody to a share.
//
// Long work is seen long before anybody can tell what it took. While it is open it accuses nobody, but it is charged as
// the driver sees it, without any slack, and that is given back when its tenant tells; what was paid for in advance is
// seen later. Once nothing is open any more, what was seen must have been told. One thread.
#include <algorithm>
#include <cstdint>

namespace tensor_fusion::pool {

// What one tenant's account says by now.
struct ShareTold {
  double claimed_ns = 0;  // of device time, ever; also what was told too late to be charged
  double own_ns = 0;      // charged for that, or for being kept the device
  double open_ns = 0;  // how long ago its oldest work began of which is yet to be told what it took; 0: there is none
  double pending_ns = 0;  // claimed in advance, by estimate, for such work
};

class ShareWitness {
 public:
  // Returns what is to be charged beside, or given back when it is negative.
  double observe(const ShareTold& told, double percent, std::uint64_t window_ns, std::uint64_t now);
  // It is known to lie, whatever the driver says.
  void accuse(double own_ns) {
    if (over_++ == 0) kept_until_ns_ = own_ns;
    quiet_ = 0;
  }
  void forget() { counted_ = false; }  // nothing was, of late

  bool suspects() const { return over_ > 0; }
  bool convicts() const { return over_ > 1; }
  bool looks_closely(std::uint64_t now) const { return suspects() || claims_.beyond > 0 || now < new_until_; }

  // By the driver's word, ever; and what it may have had since that was so much, as far as the driver has told.
  double seen_ns() const { return seen_ns_; }
  double most_since(double seen_ns, std::uint64_t now) const {
    return (seen_ns_ - seen_ns) * 1.02 + static_cast<double>(now - std::min(now, at_) + kLateNs);
  }

  // While it is suspected.
  void keep(double ns) { kept_until_ns_ += ns; }
  double kept_until_ns() const { return kept_until_ns_; }  // at least so much is its own

 private:
  static constexpr unsigned kQuietWindows = 60;
  static constexpr std::uint64_t kNewNs = 3'000'000'000;  // one that begins to work is looked at closely
  static constexpr double kWorksPercent = 5;
  static constexpr std::uint64_t kLateNs = 200'000'000;  // the driver's word comes so late

  // One of two accounts of its time.
  struct Book {
    double told = 0;
    double ahead = 0;   // of it, in advance and not seen yet
    double beyond = 0;  // seen, and not told

    // Returns what was told of work that has run.
    double tell(double now, double pending, double was_pending);
    double see(double seen);  // returns what was not told in advance
  };

  Book claims_, charges_;
  bool counted_ = false;
  double pending_ = 0;  // when it was asked last
  double seen_ns_ = 0;
  double disputed_ = 0;  // charged by the driver's word of late
  double kept_until_ns_ = 0;
  std::uint64_t at_ = 0, new_until_ = 0, worked_at_ = 0;
  unsigned over_ = 0;   // how often it was far beyond its claims, until it has long not been
  unsigned quiet_ = 0;  // windows since
};

}  // namespace tensor_fusion::pool
