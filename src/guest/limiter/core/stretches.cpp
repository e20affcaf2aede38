#include "guest/limiter/core/stretches.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

bool joins(const ToldStretch& one, const ToldStretch& other) {
  if (one.start_ns >= other.end_ns || other.start_ns >= one.end_ns) return false;
  const std::uint64_t start = one.start_ns < other.start_ns ? one.start_ns : other.start_ns;
  const std::uint64_t end = one.end_ns > other.end_ns ? one.end_ns : other.end_ns;
  return end - start <= Stretches::kLongestNs;
}

void join(ToldStretch& one, const ToldStretch& other) {
  if (other.start_ns < one.start_ns) one.start_ns = other.start_ns;
  if (other.end_ns > one.end_ns) one.end_ns = other.end_ns;
  one.estimated_ns += other.estimated_ns;
  one.guessed = one.guessed || other.guessed;
}

}  // namespace

void tell(const ToldStretch& stretch, contract::ClaimProcessDevice& claim) {
  const std::uint64_t n = claim.marker_count.load(kRelaxed);
  contract::Marker& marker = claim.markers[n % contract::kMarkers];
  marker.start_ns.store(stretch.start_ns, kRelaxed);
  marker.end_ns.store(stretch.end_ns, kRelaxed);
  marker.estimated_ns.store(stretch.estimated_ns | (stretch.guessed ? contract::kMarkerGuessed : 0), kRelaxed);
  claim.marker_count.store(n + 1, std::memory_order_release);
}

Stretches::~Stretches() {
  if (unplaced_ns_ != 0) tell({0, 0, unplaced_ns_, false}, claim_);
  for (std::size_t i = 0; i < count_; ++i) tell(places_[i], claim_);
}

ToldStretch Stretches::take_out(std::size_t place) {
  const ToldStretch taken = places_[place];
  --count_;
  for (std::size_t k = place; k < count_; ++k) places_[k] = places_[k + 1];
  return taken;
}

void Stretches::add(ToldStretch stretch) {
  if (stretch.end_ns == 0) {
    unplaced_ns_ += stretch.estimated_ns;
    return;
  }
  // What it joins may then reach others.
  for (std::size_t i = 0; i < count_;) {
    if (!joins(places_[i], stretch)) {
      ++i;
      continue;
    }
    join(stretch, take_out(i));
    i = 0;
  }
  if (count_ == kPlaces) tell(take_out(0), claim_);
  std::size_t at = count_++;
  for (; at > 0 && places_[at - 1].start_ns > stretch.start_ns; --at) places_[at] = places_[at - 1];
  places_[at] = stretch;
}

}  // namespace tensor_fusion::guest::limiter
