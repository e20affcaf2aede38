#pragma once
// How a graph runs: its commands, those of child graphs among them, in an order in which each comes after all it waits
// for, laid on rails. What lies on one rail runs in a row; rails run side by side, each in a lane of its own of the
// device's clock, so that branches take the time of the longest and not of all. Rail 0 is the stream that the graph is
// launched into, the others are branch streams of its context. Immutable after it is made.
#include <cstddef>
#include <memory>
#include <vector>

#include "sim/cuda/command.h"

namespace tensor_fusion::sim::cuda {

// One command and which of the others it waits for, by place.
struct GraphEntry {
  Command command;
  std::vector<std::size_t> after;
};

class GraphPlan {
 public:
  static constexpr unsigned kMaxRails = 8;  // more branches than that share them

  // Of entries in an order in which each comes after all it waits for.
  explicit GraphPlan(const std::vector<GraphEntry>& entries);
  // The work goes behind what the stream has, and the stream's next work behind all of it. Takes the streams' locks.
  CUresult launch(Stream& stream) const;
  // CONTEXT_IS_DESTROYED when a kernel's is.
  [[nodiscard]] CUresult check() const;
  // Takes back what allocation nodes of an earlier launch still hold.
  void free_leftovers() const;
  [[nodiscard]] unsigned rails() const { return rails_; }

 private:
  struct Step {
    Command command;
    unsigned rail = 0;
    bool first = false;              // of its rail
    std::vector<std::size_t> joins;  // steps on other rails
  };
  [[nodiscard]] std::vector<std::size_t> append(const std::vector<GraphEntry>& entries,
                                                const std::vector<std::size_t>& before);
  void start(Stream& stream) const;
  void place(const Command& command, std::vector<std::size_t> after);

  std::shared_ptr<ConditionValues> conditions_;  // null: nothing in it chooses
  std::vector<Step> steps_;
  unsigned rails_ = 0;
  // While it is made: of each rail the last step, and the step of another rail that last waited for that one.
  std::vector<std::size_t> tails_, joined_by_;
};

}  // namespace tensor_fusion::sim::cuda
