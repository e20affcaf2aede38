#include "pool/share_witness.h"

namespace tensor_fusion::pool {

namespace {

// How much more than told may be seen: a part of it, a part of the time, and so many windows at once.
struct Slack {
  double factor, part, windows;
};
constexpr Slack kHonest{1.25, 0.1, 1.5};

double grown(double& last, double now) {
  const double growth = std::max(0.0, now - last);
  last = now;
  return growth;
}

}  // namespace

double ShareWitness::observe(double claimed_ns, double own_ns, double percent, std::uint64_t window_ns,
                             std::uint64_t now) {
  const bool first = own_ns_ < 0;
  const double claimed = grown(claimed_ns_, claimed_ns), charged = grown(own_ns_, std::max(0.0, own_ns));
  if (percent >= kWorksPercent) {
    if (worked_at_ == 0 || now > worked_at_ + kNewNs) new_until_ = now + kNewNs;
    worked_at_ = now;
  }
  if (first) {
    at_ = now;
    return 0;
  }
  // Readings that were late come close together: the same time is not counted twice.
  const double window = static_cast<double>(std::min(window_ns, now - std::min(now, at_)));
  const double whole = static_cast<double>(window_ns);
  at_ = now;
  const double seen = percent / 100 * window;
  const auto beyond = [&](double balance, double told, const Slack& slack) {
    return std::max(-whole, balance + seen - told * slack.factor - slack.part * window);
  };
  // Who was caught has no more than rounding to his favour.
  const Slack slack = suspects() ? Slack{1, 0.01, 0.25} : kHonest;
  unclaimed_ = beyond(unclaimed_, claimed, kHonest);
  balance_ = beyond(balance_, charged, slack);
  // What was in the dark until it had ended, and was charged by what NVML saw of it, is not charged twice.
  const double twice = std::clamp(charged - seen, 0.0, disputed_);
  disputed_ = (disputed_ - twice) * 0.9;
  double charge = -twice;
  if (balance_ > slack.windows * whole) {
    charge += balance_;
    disputed_ += balance_;
    balance_ = 0;
  }
  ++quiet_;
  if (unclaimed_ > kHonest.windows * whole) {
    unclaimed_ = 0;
    accuse(own_ns);
  } else if (quiet_ >= kQuietWindows) {
    over_ = 0;
  }
  return charge;
}

}  // namespace tensor_fusion::pool
