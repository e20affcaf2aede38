#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/ptx/module_body.h"

namespace tensor_fusion::sim::ptx {

inline constexpr std::uint32_t kBarriers = 17;  // 16 of a block, and one for its cluster

// What all batches of one run share.
struct RunState {
  const Launch* launch = nullptr;
  const RunOptions* options = nullptr;
  Memory* memory = nullptr;
  const Program* program = nullptr;
  const Linked* linked = nullptr;
  const MaskTable* masks = nullptr;
  const ModuleBody* module = nullptr;

  std::uint64_t blocks = 0;
  std::uint32_t block_threads = 0;
  std::uint32_t block_lanes = 0;  // lanes a block takes: its threads, rounded up where warps matter
  std::uint32_t blocks_per_batch = 1;
  std::uint32_t lanes = 0;
  std::size_t shared_bytes = 0;  // per block, dynamic included
  std::size_t shared_stride = 0;
  std::size_t local_bytes = 0;  // per lane

  std::atomic<std::uint64_t> next_batch{0};
  std::uint64_t batches = 0;
  std::atomic<std::uint64_t> thread_instructions{0};
  std::atomic<bool> stop{false};
  std::mutex print_mutex;
};

// Ranges one thread of a run has learnt.
struct RangeCache {
  std::vector<Range> ranges;
  std::vector<RangeSlot> slots;  // by memory instruction
};

// Blocks that run together: their threads are the lanes of one register file. Lanes at the same instruction form a
// group; the group that is deepest in calls, and among those the one at the lowest instruction, runs first, so groups
// meet again where their paths do. Not copyable; one thread at a time.
class Batch {
 public:
  enum class State : std::uint8_t { ready, finished, failed };

  Batch(RunState& run, RangeCache& ranges);
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void start(std::uint64_t first_block);
  // Runs until the end, or until about `budget` instructions have been issued.
  State step(std::uint64_t budget);

  [[nodiscard]] const Outcome& outcome() const { return outcome_; }
  void take_counts(Outcome& into);

  // For effect handlers.
  [[nodiscard]] RunState& run() { return run_; }
  [[nodiscard]] RangeCache& ranges() { return ranges_; }
  [[nodiscard]] std::vector<std::vector<std::byte>>& saved_frames() { return saved_; }
  [[nodiscard]] std::uint64_t first_block() const { return first_block_; }

 private:
  struct Group {
    std::uint32_t pc = 0;
    std::uint32_t depth = 0;
    std::uint32_t count = 0;
    std::uint32_t first = 0;  // warps
    std::uint32_t last = 0;
    std::vector<std::uint8_t> mask;
    const Ins* barrier = nullptr;  // waiting there
  };

  void fill_constants();
  void fill_inputs(bool by_block);
  std::uint64_t launch_value(const RegInfo& info) const;

  bool pick();                             // makes the next group current; false: nobody can run
  void put_back(Group group);              // into ready_, merging with a group at the same place
  void measure(Group& group);              // count, first, last from the mask
  Group split(const std::uint8_t* lanes);  // moves those lanes of current_ to a group of their own
  void settle();                           // counts what current_ has issued
  void find_stop();
  bool alone() const { return ready_.empty() && waiting_.empty(); }

  bool run_group(std::uint64_t& budget);
  void masked_alu(const Ins& in);
  bool effect(const Ins& in);
  bool branch(const Ins& in);
  bool branch_index(const Ins& in);
  bool call(const Ins& in);
  bool enter(std::uint32_t function, const Ins& in, std::uint32_t entry);
  void leave();
  void exit_lanes();
  bool barrier(const Ins& in);
  void release_barriers();
  std::uint32_t barrier_id(const Ins& in) const;
  void reduce_barrier(const Ins& in, std::uint32_t block, const std::vector<std::uint8_t>& lanes);
  bool keep_going(std::uint64_t& budget);
  bool fail(Status status, const Ins& in, std::uint64_t address = 0);
  std::vector<std::uint8_t> spare_mask();

  RunState& run_;
  RangeCache& ranges_;
  ExecFrame frame_;
  std::unique_ptr<std::byte[]> register_memory_;
  std::byte* regs_ = nullptr;
  std::unique_ptr<std::byte[]> shared_memory_;
  std::unique_ptr<std::byte[]> local_memory_;
  std::vector<std::uint32_t> shared_base_;
  std::vector<std::vector<std::uint32_t>> returns_;  // by depth, by lane
  std::vector<std::vector<std::byte>> saved_;        // by lane
  std::uint64_t first_block_ = 0;
  std::uint32_t block_count_ = 0;
  std::uint32_t warps_ = 0;

  std::vector<std::uint8_t> alive_;
  std::uint32_t alive_count_ = 0;
  bool have_current_ = false;
  Group current_;
  bool whole_ = false;        // current_ holds every lane of the batch: no mask is needed
  std::uint32_t stop_ = 0;    // instruction at which current_ must wait for others
  std::uint64_t issued_ = 0;  // by current_, not yet counted
  std::uint32_t spins_ = 0;
  bool boosted_ = false;  // current_ was let past its turn
  std::vector<Group> ready_;
  std::vector<Group> waiting_;
  std::vector<std::uint8_t> scratch_mask_;
  std::vector<std::vector<std::uint8_t>> spare_;
  std::vector<std::uint32_t> arrived_;  // bar.arrive, by block and barrier
  Outcome outcome_;
  std::uint64_t reported_ = 0;
};

}  // namespace tensor_fusion::sim::ptx
