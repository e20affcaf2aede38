#include "guest/limiter/core/bucket.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

std::uint64_t Bucket::wait_ns(const Device& device, std::uint64_t now, std::uint32_t sharers) {
  if (!active_) {
    active_ = true;
    credit_ns_ = 0;
    filled_ns_ = now;
  }
  const std::uint64_t share = device.grant->fallback_share.load(kRelaxed);
  if (share >= contract::kWholeShare) return 0;
  const std::uint64_t part = share / sharers == 0 ? 1 : share / sharers;
  const std::uint64_t passed = now - filled_ns_;
  if (passed >= 100'000) {
    credit_ns_ +=
        static_cast<std::int64_t>((passed < 10'000'000'000 ? passed : 10'000'000'000) * part / contract::kWholeShare);
    if (credit_ns_ > kCeilingNs) credit_ns_ = kCeilingNs;
    if (credit_ns_ < -kDebtNs) credit_ns_ = -kDebtNs;
    filled_ns_ = now;
  }
  if (credit_ns_ > 0) return 0;
  const auto lacking = static_cast<std::uint64_t>(-credit_ns_) + 200'000;
  return lacking * contract::kWholeShare / part;
}

void Bucket::settle(std::uint64_t estimated_ns, std::uint64_t late_ns, std::uint64_t slow_ns) {
  explained_ns_ += kOthers * estimated_ns;
  if (explained_ns_ > kMostExplainedNs) explained_ns_ = kMostExplainedNs;
  const std::uint64_t others = slow_ns < explained_ns_ ? slow_ns : explained_ns_;
  explained_ns_ -= others;
  charge(late_ns + slow_ns - others);
}

}  // namespace tensor_fusion::guest::limiter
