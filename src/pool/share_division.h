#pragma once
// Divides a window of one device's time among stretches of work that may overlap, because the clock between two events
// says how long work took, not how long it ran. Where the stretches of one author lie alone, they get all of the time;
// where several overlap, two things are known: the device gives contexts with work queued equal turns, exact to a turn,
// and what each stretch was estimated at, exact to a part of it. The surer one counts more, and of what nobody could
// estimate only the first is known, with what the estimates of the others leave; of a flood of stretches,
// whose number anybody may forge, equal turns alone count, in time and memory in proportion to their number. Where
// there is no stretch, the device was idle. One use: begin, add, divide, read. One thread.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tensor_fusion::pool {

class ShareDivision {
 public:
  struct Piece {
    std::uint64_t start_ns, end_ns;
  };

  void begin(std::uint64_t from_ns, std::uint64_t until_ns);
  // `context`: of the author; stretches of one run beside each other. `target_ns`: what the part of it that lies in the
  // window should get; `guessed`: by a word that says nothing. Returns its number, or kOutside.
  std::size_t add(std::uint64_t author, std::uint32_t context, std::uint64_t start_ns, std::uint64_t end_ns,
                  double target_ns, bool guessed = false);
  void divide();

  double wall_ns(std::size_t row) const { return static_cast<double>(rows_[row].end - rows_[row].start); }
  double given_ns(std::size_t row) const { return rows_[row].given; }
  bool alone(std::size_t row) const { return rows_[row].alone; }  // no other author's stretch touches it in the window
  std::span<const Piece> idle() const { return idle_; }
  std::size_t cells() const { return cells_.capacity(); }  // of the table that was needed so far

  static constexpr std::size_t kOutside = static_cast<std::size_t>(-1);
  static constexpr std::size_t kMostCells = 8192;

 private:
  struct Row {
    std::uint64_t author;
    std::uint32_t context;
    std::uint64_t start, end;
    double target;
    bool guessed;
    bool alone;
    double given;
    std::size_t turns;  // its context in turns_
  };
  struct Turns {  // of one context, while all stretches are walked in order of time
    std::uint64_t author;
    std::uint32_t context;
    std::size_t running;  // of its stretches: they share its turns evenly
    double had_at;        // the turns of one context up to where it was looked at last
    double each;          // what one of its stretches would have had since the beginning
  };
  struct Border {
    std::uint64_t at;
    std::size_t row;
    bool begins;
  };
  void fill();
  void fit();
  void fill_columns();
  double sum_of(std::size_t row) const;
  void idle(std::uint64_t from, std::uint64_t until);
  void walk();
  void find_turns();

  std::uint64_t from_ = 0, until_ = 0;
  std::vector<Row> rows_;
  std::vector<std::uint64_t> cuts_;  // borders of the columns, in which the same stretches run
  std::vector<double> columns_, cells_;
  std::vector<Piece> idle_;
  std::vector<Turns> turns_;
  std::vector<Border> borders_;
};

}  // namespace tensor_fusion::pool
