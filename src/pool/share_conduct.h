#pragma once
// What one tenant makes of the device while it is kept for it and others wait. Who lets it lie idle, or claims to have
// had more of it than time has passed, is believed less: with each step of doubt its stays and what its queue is waited
// for are half as long, the lag it may save up is a quarter, and from the second step on it is let in at once no more
// and no long pause of it is waited for. It is believed again once it has used what it was given, or after some time.
// One thread.
#include <algorithm>
#include <cstdint>

namespace tensor_fusion::pool {

// The device was kept for one tenant while others waited, from its beginning until the next may use it.
struct ShareStay {
  std::uint64_t key;
  std::uint64_t start_ns, end_ns;
  double idle_ns = 0;  // of it, and in pieces longer than a pause
  double idle_long_ns = 0;
  std::uint64_t idle_until_ns = 0;  // of the last piece
  double run_ns = 0;                // of the last pieces that follow on each other
  double silent_ns = 0;             // of it, while its tenant did not say that it wants or has anything

  // The books are settled bit by bit: a pause may come in several pieces.
  void add_idle(std::uint64_t from_ns, std::uint64_t until_ns, double piece, double pause_ns) {
    const double before = from_ns == idle_until_ns ? run_ns : 0;
    idle_ns += piece;
    run_ns = before + piece;
    idle_until_ns = until_ns;
    if (run_ns > pause_ns) idle_long_ns += before > pause_ns ? piece : run_ns;
  }
};

class ShareConduct {
 public:
  static constexpr unsigned kMostDoubt = 5;

  // Of a stay that is over.
  void judge(const ShareStay& stay, std::uint64_t now) {
    const double kept_ns = static_cast<double>(stay.end_ns - stay.start_ns);
    // What it did not ask for is not its fault: the hypervisor was late to take it away.
    const double wasted_ns = stay.idle_long_ns - stay.silent_ns;
    const bool wasted = wasted_ns > kLeastWasteNs && 2 * wasted_ns > kept_ns;
    // Short stays have no long pieces. Who is in doubt already has used nothing when next to nothing ran.
    if (wasted || (doubt_ > 0 && stay.idle_ns > 0.9 * kept_ns)) {
      doubt(now);
    } else if (doubt_ > 0 && stay.idle_ns < 0.75 * kept_ns && ++used_ >= kUsedStays) {
      used_ = 0;
      --doubt_;
    }
  }
  // It says that it had so much device time since it was asked last; nobody can have more than has passed.
  void judge_claim(double had_ns, std::uint64_t now) {
    if (seen_at_ != 0) possible_ns_ += static_cast<double>(now - std::min(now, seen_at_));
    seen_at_ = now;
    possible_ns_ = std::min(possible_ns_, kSavedNs) - had_ns;
    if (possible_ns_ >= 0) return;
    possible_ns_ = 0;
    doubt(now);
  }
  void forgive(std::uint64_t now) {
    if (doubt_ == 0 || now < doubted_at_ + kForgiveNs) return;
    doubted_at_ = now;
    --doubt_;
  }

  unsigned doubt() const { return doubt_; }
  bool believed() const { return doubt_ < 2; }  // once may be the host's doing
  std::uint64_t shortened(std::uint64_t ns) const { return std::max(ns >> doubt_, std::min(ns, kShortestNs)); }

 private:
  static constexpr double kLeastWasteNs = 1e6;
  static constexpr unsigned kUsedStays = 4;                   // in which a step of trust is won back
  static constexpr double kSavedNs = 3e9;                     // the books are settled so late at most
  static constexpr std::uint64_t kForgiveNs = 1'000'000'000;  // ... as it is after so long, however it went
  static constexpr std::uint64_t kShortestNs = 500'000;       // time enough to wake up and launch something

  void doubt(std::uint64_t now) {
    if (doubt_ == 0) doubted_at_ = now;
    doubt_ = std::min(doubt_ + 1, kMostDoubt);
    used_ = 0;
  }

  unsigned doubt_ = 0, used_ = 0;
  std::uint64_t doubted_at_ = 0, seen_at_ = 0;
  double possible_ns_ = kSavedNs;
};

}  // namespace tensor_fusion::pool
