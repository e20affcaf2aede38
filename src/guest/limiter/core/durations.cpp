#include "guest/limiter/core/durations.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint64_t kRemoved = 2;              // even: no key
constexpr std::uint64_t kStaleNs = 1'000'000'000;  // without an undisturbed sample for this long, take any
constexpr std::uint64_t kSampleEveryNs = 50'000'000;
constexpr std::uint64_t kLongestNs = 4'000'000'000;

}  // namespace

constinit Durations g_durations{};

void Duration::learn(std::uint64_t measured_ns, Measured how, std::uint64_t now_ns) {
  const std::uint32_t taken = samples.load(kRelaxed);
  // Others can only make it look longer: what looks shorter than expected tells, whoever else was there.
  const bool alone = how == Measured::alone || (taken != 0 && measured_ns < estimated_ns.load(kRelaxed));
  const bool wanted = how == Measured::wanting && alone_ns.load(kRelaxed) + kStaleNs <= now_ns;
  if (taken != 0 && !alone && !wanted) {
    next_sample_ns.store(now_ns + kSampleEveryNs / 10, kRelaxed);
    return;
  }
  // A disturbed sample is taken for want of a better one: at most twice a second, and it moves the estimate little.
  alone_ns.store(alone ? now_ns : now_ns - kStaleNs / 2, kRelaxed);
  std::uint64_t sample = measured_ns < kLeastNs ? kLeastNs : measured_ns;
  if (sample > kLongestNs) sample = kLongestNs;
  if (taken != 0) {
    const std::uint64_t old = estimated_ns.load(kRelaxed);
    const std::uint64_t most = (alone || taken < kSettled ? 2 * old : old + old / 4) + 10'000;
    if (sample > most) sample = most;
    const std::uint64_t parts = sample < old ? 5 : taken < kSettled ? 4 : 2;  // sixteenths
    sample = (old * (16 - parts) + sample * parts) / 16;
  }
  estimated_ns.store(static_cast<std::uint32_t>(sample), kRelaxed);
  if (taken < kSettled) samples.store(taken + 1, std::memory_order_release);
  next_sample_ns.store(now_ns + kSampleEveryNs, kRelaxed);
}

Duration* Durations::search(std::uint64_t key) {
  for (std::size_t i = 0; i < kProbes; ++i) {
    Duration& row = rows_[((key >> 1) + i) % kRows];
    const std::uint64_t found = row.key.load(std::memory_order_acquire);
    if (found == key) return &row;
    if (found == 0) return nullptr;
  }
  return nullptr;
}

Duration& Durations::find_or_add(std::uint64_t key, std::uint32_t guess_ns) {
  if (Duration* known = search(key)) return *known;
  for (std::size_t i = 0; i < kProbes; ++i) {
    Duration& row = rows_[((key >> 1) + i) % kRows];
    std::uint64_t found = row.key.load(kRelaxed);
    if (found == key) return row;
    if (found != 0 && found != kRemoved) continue;
    // Two threads may add one key to two rows when one was removed in between: both learn, neither is wrong.
    row.estimated_ns.store(guess_ns, kRelaxed);
    row.samples.store(0, kRelaxed);
    row.launched.store(0, kRelaxed);
    row.family.store(0, kRelaxed);
    row.next_sample_ns.store(0, kRelaxed);
    row.alone_ns.store(0, kRelaxed);
    if (row.key.compare_exchange_strong(found, key, std::memory_order_acq_rel)) {
      used_.fetch_add(1, kRelaxed);
      return row;
    }
    if (found == key) return row;
  }
  // Full: what was measured longest ago gives way. A launch of it still on its way teaches the new one something wrong,
  // once. Never a row that all share: what was learned of one thing would vouch for any other.
  Duration* oldest = &rows_[(key >> 1) % kRows];
  for (std::size_t i = 1; i < kProbes; ++i) {
    Duration& row = rows_[((key >> 1) + i) % kRows];
    if (row.next_sample_ns.load(kRelaxed) < oldest->next_sample_ns.load(kRelaxed)) oldest = &row;
  }
  oldest->samples.store(0, kRelaxed);
  oldest->estimated_ns.store(guess_ns, kRelaxed);
  oldest->launched.store(0, kRelaxed);
  oldest->family.store(0, kRelaxed);
  oldest->next_sample_ns.store(0, kRelaxed);
  oldest->alone_ns.store(0, kRelaxed);
  oldest->key.store(key, std::memory_order_release);
  return *oldest;
}

void Durations::remove(std::uint64_t key) {
  if (Duration* row = search(key)) row->key.store(kRemoved, kRelaxed);
}

void Durations::clear() {
  if (used_.exchange(0, kRelaxed) == 0) return;
  for (Duration& row : rows_) {
    row.key.store(0, kRelaxed);
    row.samples.store(0, kRelaxed);
  }
}

}  // namespace tensor_fusion::guest::limiter
