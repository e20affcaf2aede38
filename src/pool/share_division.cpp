#include "pool/share_division.h"

#include <algorithm>
#include <cmath>

namespace tensor_fusion::pool {
namespace {

constexpr int kTurns = 12;
constexpr double kTurnNs = 1e6;         // half a time slice of the hardware: how far equal turns may be off
constexpr double kEstimateError = 0.1;  // ... and an estimate
constexpr std::size_t kMostCells =
    8192;  // a flood of markers is not worth the turns: its author gets the even division

}  // namespace

void ShareDivision::begin(std::uint64_t from_ns, std::uint64_t until_ns) {
  from_ = from_ns;
  until_ = until_ns;
  rows_.clear();
  cuts_.clear();
  cuts_.push_back(from_ns);
  cuts_.push_back(until_ns);
}

std::size_t ShareDivision::add(std::uint64_t author, std::uint32_t context, std::uint64_t start_ns,
                               std::uint64_t end_ns, double target_ns) {
  const std::uint64_t start = std::max(start_ns, from_);
  const std::uint64_t end = std::min(end_ns, until_);
  if (start >= end) return kOutside;
  cuts_.push_back(start);
  cuts_.push_back(end);
  rows_.push_back({author, context, start, end, std::max(1.0, target_ns), true});
  return rows_.size() - 1;
}

void ShareDivision::divide() {
  std::sort(cuts_.begin(), cuts_.end());
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  columns_.clear();
  for (std::size_t i = 1; i < cuts_.size(); ++i) columns_.push_back(static_cast<double>(cuts_[i] - cuts_[i - 1]));
  fill();
  fit();
}

// A cell is first filled with equal turns: those of one context share its turn by their targets.
void ShareDivision::fill() {
  const std::size_t width = columns_.size();
  cells_.assign(rows_.size() * width, 0.0);
  std::vector<Piece>& idle = idle_;
  idle.clear();
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    const auto first = std::lower_bound(cuts_.begin(), cuts_.end(), rows_[row].start) - cuts_.begin();
    double mine = 0;
    for (const Row& other : rows_) {
      const bool apart = other.start >= rows_[row].end || other.end <= rows_[row].start;
      if (apart) continue;
      if (other.author != rows_[row].author) rows_[row].alone = false;
      if (other.author == rows_[row].author && other.context == rows_[row].context)
        mine += other.target / static_cast<double>(other.end - other.start);
    }
    const double part = rows_[row].target / wall_ns(row) / mine;
    for (auto i = static_cast<std::size_t>(first); cuts_[i] < rows_[row].end; ++i)
      cells_[row * width + i] = columns_[i] * part;
  }
  for (std::size_t i = 0; i < width; ++i) {
    bool used = false;
    for (std::size_t row = 0; row < rows_.size() && !used; ++row) used = cells_[row * width + i] > 0;
    if (used) continue;
    if (!idle.empty() && idle.back().end_ns == cuts_[i]) {
      idle.back().end_ns = cuts_[i + 1];
    } else {
      idle.push_back({cuts_[i], cuts_[i + 1]});
    }
  }
}

void ShareDivision::fill_columns() {
  const std::size_t width = columns_.size();
  for (std::size_t i = 0; i < width; ++i) {
    double sum = 0;
    for (std::size_t row = 0; row < rows_.size(); ++row) sum += cells_[row * width + i];
    if (sum <= 0) continue;
    for (std::size_t row = 0; row < rows_.size(); ++row) cells_[row * width + i] *= columns_[i] / sum;
  }
}

// Time and targets are scaled to each other in turns, and time has the last word.
void ShareDivision::fit() {
  fill_columns();
  const std::size_t width = columns_.size();
  bool overlaps = false;
  for (const Row& row : rows_) overlaps = overlaps || !row.alone;
  if (!overlaps || cells_.size() > kMostCells) return;
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (rows_[row].alone) continue;
    // What is told of it may be a first guess: then turns are far from it, and it is not to be believed.
    const double apart = std::abs(given_ns(row) - rows_[row].target) / 2;
    const double error = std::max(kEstimateError * rows_[row].target, apart);
    const double sure = kTurnNs * kTurnNs / (kTurnNs * kTurnNs + error * error);
    rows_[row].target = std::pow(rows_[row].target, sure) * std::pow(std::max(1.0, given_ns(row)), 1 - sure);
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      const double sum = given_ns(row);
      const double factor = sum > 0 ? std::clamp(rows_[row].target / sum, 0.05, 20.0) : 0;
      for (std::size_t i = 0; i < width; ++i) cells_[row * width + i] *= factor;
    }
    fill_columns();
  }
}

double ShareDivision::given_ns(std::size_t row) const {
  const std::size_t width = columns_.size();
  double sum = 0;
  for (std::size_t i = 0; i < width; ++i) sum += cells_[row * width + i];
  return sum;
}

}  // namespace tensor_fusion::pool
