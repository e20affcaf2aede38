#include "pool/share_witness.h"

#include <utility>

namespace tensor_fusion::pool {

namespace {

// How much more than told may be seen: a part of it, a part of the time, and so many windows at once.
struct Slack {
  double factor, part, windows;
};
constexpr Slack kHonest{1.25, 0.1, 1.5}, kStrict{1, 0.01, 0.25};

}  // namespace

double ShareWitness::Book::tell(double now, double pending, double was_pending) {
  const double all = std::max(0.0, ahead + now - told);
  told = now;
  // The driver tells a window late: what was paid for work that is over now may be seen once more.
  ahead = std::min(all, std::max(pending, std::min(ahead, was_pending)));
  return all - ahead;
}

double ShareWitness::Book::see(double seen) {
  const double known = std::min(ahead, seen);
  ahead -= known;
  return seen - known;
}

double ShareWitness::observe(const ShareTold& told, double percent, std::uint64_t window_ns, std::uint64_t now) {
  const double was_pending = std::exchange(pending_, told.pending_ns);
  const double claimed = claims_.tell(told.claimed_ns, pending_, was_pending);
  const double charged = charges_.tell(std::max(0.0, told.own_ns), pending_, was_pending);
  if (percent >= kWorksPercent) {
    if (worked_at_ == 0 || now > worked_at_ + kNewNs) new_until_ = now + kNewNs;
    worked_at_ = now;
  }
  if (!counted_) {
    counted_ = true;
    at_ = now;
    return 0;
  }
  // Readings that were late come close together: the same time is not counted twice.
  const double window = static_cast<double>(std::min(window_ns, now - std::min(now, at_)));
  const double whole = static_cast<double>(window_ns);
  at_ = now;
  const double seen = percent / 100 * window;
  seen_ns_ += seen;
  const auto weigh = [&](Book& book, double said, const Slack& slack, double saved) {
    const double unpaid = book.see(seen);
    book.beyond = std::max(-saved * whole, book.beyond + unpaid - said * slack.factor - slack.part * window);
    return unpaid;
  };
  const bool open = told.open_ns > whole;
  // Who was caught, or says that the time to tell is yet to come, has no more than rounding to his favour.
  const Slack slack = suspects() || open ? kStrict : kHonest;
  weigh(claims_, claimed, kHonest, 1);
  const double unpaid = weigh(charges_, charged, slack, open ? kStrict.windows : 1);
  // What was in the dark until it had ended, and was charged by what NVML saw of it, is not charged twice.
  const double twice = std::clamp(charged - unpaid, 0.0, disputed_);
  disputed_ -= twice;
  if (!open) disputed_ *= 0.9;
  double charge = -twice;
  if (charges_.beyond > slack.windows * whole) {
    charge += charges_.beyond;
    disputed_ += charges_.beyond;
    charges_.beyond = 0;
  }
  const double dark = claims_.beyond - kHonest.windows * whole;
  if (dark > told.open_ns) {
    claims_.beyond = 0;
    accuse(told.own_ns);
  } else if (dark <= 0 && ++quiet_ >= kQuietWindows) {
    over_ = 0;
  }
  return charge;
}

}  // namespace tensor_fusion::pool
