#include "guest/limiter/core/family.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint32_t kMostNeeded = 4096;
constexpr std::uint64_t kLongestNs = 4'000'000'000;
constexpr std::uint64_t kSlackNs = 20'000;          // of a short launch: queue and events
constexpr std::uint64_t kFarLongerNs = 50'000;      // beyond twice what was foretold
constexpr std::uint64_t kDisturbedNs = 10'000'000;  // ... where others may have had turns: beyond eight times
constexpr std::uint32_t kPlaces = 2048;             // in a row's word for its family; the rest tells it from others

std::uint64_t blocks_of(std::uint64_t shape) {
  const std::uint64_t blocks = shape / 2048;
  return blocks == 0 ? 1 : blocks;
}

std::uint64_t key_of(const void* function, std::uint64_t shape) {
  const std::uint64_t blocks = blocks_of(shape);
  const auto octave = static_cast<std::uint64_t>(63 - __builtin_clzll(blocks));
  const std::uint64_t half = octave == 0 ? 0 : (blocks >> (octave - 1)) & 1;
  return Durations::key_of(function, ~(((octave * 2 + half) << 11) | (shape % 2048)));
}

}  // namespace

constinit Families g_families{};

std::uint64_t Family::foretell_ns(std::uint64_t blocks) const {
  const std::uint64_t told = (rate_.load(kRelaxed) * blocks) >> 16;
  return told > kLongestNs ? kLongestNs : told;
}

void Family::begin(std::uint64_t key) {
  rate_.store(0, kRelaxed);
  foretold_.store(0, kRelaxed);
  needed_.store(kFirstNeeded, kRelaxed);
  key_.store(key, std::memory_order_release);
}

// Its numbers too, or the next that takes the row stands for a moment by what another had earned.
void Family::forget() {
  needed_.store(0, kRelaxed);
  foretold_.store(0, kRelaxed);
  rate_.store(0, kRelaxed);
  key_.store(0, std::memory_order_release);
}

void Family::learn(std::uint64_t measured_ns, std::uint64_t blocks, Measured how) {
  const std::uint64_t ns = measured_ns > kLongestNs ? kLongestNs : measured_ns;
  const std::uint64_t told = foretell_ns(blocks);
  const bool alone = how == Measured::alone;
  if (told != 0 && ns > (alone ? 2 * told + kFarLongerNs : 8 * told + kDisturbedNs)) {
    const std::uint32_t needed = needed_.load(kRelaxed);
    foretold_.store(0, kRelaxed);
    needed_.store(needed < kMostNeeded ? 2 * needed : kMostNeeded, kRelaxed);
  } else if (alone && told != 0 && ns <= told + told / 2 + kSlackNs) {
    const std::uint32_t foretold = foretold_.load(kRelaxed);
    if (foretold < kMostNeeded) foretold_.store(foretold + 1, kRelaxed);
  }
  if (!alone && (told == 0 || ns >= told)) return;  // others can only make it look longer
  const std::uint64_t rate = (ns << 16) / blocks, old = rate_.load(kRelaxed);
  rate_.store(old == 0 ? rate : rate > old ? old + (rate - old) / 8 : old - (old - rate) / 8, kRelaxed);
}

Family& Families::find_or_add(std::uint64_t key) {
  used_.store(true, kRelaxed);
  for (std::size_t i = 0; i < kProbes; ++i) {
    Family& row = rows_[((key >> 1) + i) % kRows];
    std::uint64_t found = row.key_.load(std::memory_order_acquire);
    if (found == key) return row;
    if (found != 0) continue;
    if (row.key_.compare_exchange_strong(found, key, std::memory_order_acq_rel)) {
      row.begin(key);
      return row;
    }
    if (found == key) return row;
  }
  // Full: the one whose word counts least gives way, and what it had earned is lost.
  Family* least = &rows_[(key >> 1) % kRows];
  for (std::size_t i = 1; i < kProbes; ++i) {
    Family& row = rows_[((key >> 1) + i) % kRows];
    if (row.foretold_.load(kRelaxed) < least->foretold_.load(kRelaxed)) least = &row;
  }
  least->begin(key);
  return *least;
}

Duration& Families::duration_of(const void* function, std::uint64_t shape, std::uint64_t key, std::uint32_t guess_ns) {
  if (Duration* known = g_durations.find(key)) return *known;
  const std::uint64_t blocks = blocks_of(shape), family_key = key_of(function, shape);
  Family& family = find_or_add(family_key);
  const std::uint64_t told = family.foretell_ns(blocks);
  const std::uint64_t guess = told == 0 ? guess_ns : told < kLeastNs ? kLeastNs : told;
  Duration& row = g_durations.find_or_add(key, static_cast<std::uint32_t>(guess));
  const auto place = static_cast<std::uint32_t>(&family - rows_);
  row.blocks.store(blocks < UINT32_MAX ? static_cast<std::uint32_t>(blocks) : UINT32_MAX, kRelaxed);
  row.family.store((static_cast<std::uint32_t>(family_key >> 40) * kPlaces) | place, kRelaxed);
  return row;
}

Family* Families::named(const Duration& duration) const {
  const std::uint32_t word = duration.family.load(kRelaxed);
  if (word == 0 || duration.blocks.load(kRelaxed) == 0) return nullptr;
  Family& family = rows_[word % kPlaces];
  const auto mark = static_cast<std::uint32_t>(family.key_.load(kRelaxed) >> 40) * kPlaces;
  return mark == word - word % kPlaces ? &family : nullptr;
}

bool Families::vouch_for(const Duration& duration) const {
  const Family* family = named(duration);
  return family != nullptr && family->vouches();
}

void Families::learn(const Duration& duration, std::uint64_t measured_ns, Measured how) {
  if (Family* family = named(duration)) family->learn(measured_ns, duration.blocks.load(kRelaxed), how);
}

void Families::clear() {
  if (!used_.exchange(false, kRelaxed)) return;
  for (Family& row : rows_) row.forget();
}

}  // namespace tensor_fusion::guest::limiter
