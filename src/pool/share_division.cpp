#include "pool/share_division.h"

#include <algorithm>
#include <cmath>

namespace tensor_fusion::pool {
namespace {

constexpr int kTurns = 12;
constexpr double kTurnNs = 1e6;         // half a time slice of the hardware: how far equal turns may be off
constexpr double kEstimateError = 0.1;  // ... and an estimate
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
                               std::uint64_t end_ns, double target_ns, bool guessed) {
  const std::uint64_t start = std::max(start_ns, from_);
  const std::uint64_t end = std::min(end_ns, until_);
  if (start >= end) return kOutside;
  cuts_.push_back(start);
  cuts_.push_back(end);
  rows_.push_back({author, context, start, end, std::max(1.0, target_ns), guessed, true, 0, 0});
  return rows_.size() - 1;
}

void ShareDivision::divide() {
  idle_.clear();
  std::sort(cuts_.begin(), cuts_.end());
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  if (rows_.size() * (cuts_.size() - 1) > kMostCells) return walk();
  columns_.clear();
  for (std::size_t i = 1; i < cuts_.size(); ++i) columns_.push_back(static_cast<double>(cuts_[i] - cuts_[i - 1]));
  fill();
  fit();
  for (std::size_t row = 0; row < rows_.size(); ++row) rows_[row].given = sum_of(row);
}

void ShareDivision::idle(std::uint64_t from, std::uint64_t until) {
  if (from >= until) return;
  if (!idle_.empty() && idle_.back().end_ns == from) {
    idle_.back().end_ns = until;
  } else {
    idle_.push_back({from, until});
  }
}

// A cell is first filled with equal turns: those of one context share its turn by their targets.
void ShareDivision::fill() {
  const std::size_t width = columns_.size();
  cells_.assign(rows_.size() * width, 0.0);
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
    if (!used) idle(cuts_[i], cuts_[i + 1]);
  }
}

// Which rows are of one context: they share its turns.
void ShareDivision::find_turns() {
  turns_.clear();
  for (const Row& row : rows_) turns_.push_back({row.author, row.context, 0, 0, 0});
  const auto order = [](const auto& a, const auto& b) {
    return a.author != b.author ? a.author < b.author : a.context < b.context;
  };
  std::sort(turns_.begin(), turns_.end(), order);
  const auto same = [](const Turns& a, const Turns& b) { return a.author == b.author && a.context == b.context; };
  turns_.erase(std::unique(turns_.begin(), turns_.end(), same), turns_.end());
  for (Row& row : rows_)
    row.turns = static_cast<std::size_t>(std::lower_bound(turns_.begin(), turns_.end(), row, order) - turns_.begin());
}

// Equal turns for every context with a stretch under way, by walking once over all their ends.
void ShareDivision::walk() {
  find_turns();
  borders_.clear();
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    borders_.push_back({rows_[row].start, row, true});
    borders_.push_back({rows_[row].end, row, false});
  }
  std::sort(borders_.begin(), borders_.end(), [](const Border& a, const Border& b) { return a.at < b.at; });
  // Contexts of an author lie side by side: how many stretches an author has under way stands with the first.
  std::vector<std::size_t> author_of(turns_.size()), running(turns_.size(), 0);
  for (std::size_t i = 0; i < turns_.size(); ++i)
    author_of[i] = i > 0 && turns_[i].author == turns_[i - 1].author ? author_of[i - 1] : i;
  std::size_t contexts = 0, authors = 0;
  double turn = 0;           // what one context that was always busy would have had
  std::uint64_t shared = 0;  // time with more than one author, to know who was alone
  std::vector<std::uint64_t> shared_at(rows_.size());
  std::uint64_t before = from_;
  for (const Border& border : borders_) {
    if (contexts == 0) idle(before, border.at);
    if (contexts > 0) turn += static_cast<double>(border.at - before) / static_cast<double>(contexts);
    if (authors > 1) shared += border.at - before;
    before = border.at;
    Row& row = rows_[border.row];
    Turns& mine = turns_[row.turns];
    if (mine.running > 0) mine.each += (turn - mine.had_at) / static_cast<double>(mine.running);
    mine.had_at = turn;
    std::size_t& of_author = running[author_of[row.turns]];
    if (border.begins) {
      if (mine.running++ == 0) ++contexts;
      if (of_author++ == 0) ++authors;
      row.given = mine.each;
      shared_at[border.row] = shared;
    } else {
      row.given = mine.each - row.given;
      row.alone = shared == shared_at[border.row];
      if (--mine.running == 0) --contexts;
      if (--of_author == 0) --authors;
    }
  }
  idle(before, until_);
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
  if (!overlaps) return;
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (rows_[row].alone) continue;
    // Where turns are far from it, it is believed the less.
    const double apart = std::abs(sum_of(row) - rows_[row].target) / 2;
    const double error = std::max(kEstimateError * rows_[row].target, apart);
    const double sure = kTurnNs * kTurnNs / (kTurnNs * kTurnNs + error * error);
    rows_[row].target = std::pow(rows_[row].target, sure) * std::pow(std::max(1.0, sum_of(row)), 1 - sure);
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      if (rows_[row].guessed) continue;
      const double sum = sum_of(row);
      const double factor = sum > 0 ? std::clamp(rows_[row].target / sum, 0.05, 20.0) : 0;
      for (std::size_t i = 0; i < width; ++i) cells_[row * width + i] *= factor;
    }
    fill_columns();
  }
}

double ShareDivision::sum_of(std::size_t row) const {
  const std::size_t width = columns_.size();
  double sum = 0;
  for (std::size_t i = 0; i < width; ++i) sum += cells_[row * width + i];
  return sum;
}

}  // namespace tensor_fusion::pool
