#include <algorithm>
#include <thread>

#include "sim/ptx/batch.h"

namespace tensor_fusion::sim::ptx {
namespace {

constexpr std::uint32_t kTargetLanes = 256;
constexpr std::uint32_t kMaxBlockThreads = 1024;
constexpr std::uint64_t kPatience = 2'000'000;      // steps of one batch before others get a turn
constexpr std::uint64_t kSlice = 20'000;            // the same when blocks may wait for each other
constexpr std::size_t kMaxLiveBatches = 256;        // started beside one that does not end
constexpr std::uint64_t kWorthThreads = 2'000'000;  // thread instructions

// One thread's share of a run.
class Worker {
 public:
  explicit Worker(RunState& run) : run_(run) { ranges_.slots.resize(run.linked->range_slots); }

  // Batches one after the other; one that goes on and on shares its turn with newly started ones.
  Status work(std::uint64_t most_batches) {
    std::uint64_t done = 0;
    while (done < most_batches && !run_.stop.load(std::memory_order_relaxed)) {
      const std::uint64_t index = run_.next_batch.fetch_add(1);
      if (index >= run_.batches) break;
      if (first_ == nullptr) first_ = std::make_unique<Batch>(run_, ranges_);
      first_->start(index * run_.blocks_per_batch);
      const Batch::State state = first_->step(kPatience);
      if (state == Batch::State::ready) return crowd(std::move(first_));
      if (!finish(*first_, state)) return total_.status;
      ++done;
    }
    return Status::ok;
  }

  // All batches from the start, in turn.
  Status work_together() {
    std::vector<std::unique_ptr<Batch>> live;
    for (std::uint64_t index = 0; index < run_.batches; ++index) {
      live.push_back(std::make_unique<Batch>(run_, ranges_));
      live.back()->start(index * run_.blocks_per_batch);
    }
    return take_turns(std::move(live), false);
  }

  [[nodiscard]] const Outcome& total() const { return total_; }

 private:
  Status crowd(std::unique_ptr<Batch> first) {
    std::vector<std::unique_ptr<Batch>> live;
    live.push_back(std::move(first));
    return take_turns(std::move(live), true);
  }

  Status take_turns(std::vector<std::unique_ptr<Batch>> live, bool grow) {
    while (!live.empty()) {
      for (std::size_t i = 0; i < live.size();) {
        const Batch::State state = live[i]->step(kSlice);
        if (state == Batch::State::ready) {
          ++i;
          continue;
        }
        if (!finish(*live[i], state)) return total_.status;
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (!grow || live.size() >= kMaxLiveBatches) continue;
      const std::uint64_t index = run_.next_batch.fetch_add(1);
      if (index >= run_.batches) {
        grow = false;
        continue;
      }
      live.push_back(std::make_unique<Batch>(run_, ranges_));
      live.back()->start(index * run_.blocks_per_batch);
    }
    return Status::ok;
  }

  bool finish(Batch& batch, Batch::State state) {
    if (state == Batch::State::failed) {
      total_.status = batch.outcome().status;
      total_.fault_address = batch.outcome().fault_address;
      total_.line = batch.outcome().line;
    }
    batch.take_counts(total_);
    if (state == Batch::State::failed) {
      run_.stop = true;
      return false;
    }
    const std::uint64_t limit = run_.options->max_thread_instructions;
    const bool cancelled = run_.options->cancel != nullptr && run_.options->cancel->load(std::memory_order_relaxed);
    if (cancelled || (limit != 0 && run_.thread_instructions.load() > limit)) {
      total_.status = cancelled ? Status::cancelled : Status::timeout;
      run_.stop = true;
      return false;
    }
    return true;
  }

  RunState& run_;
  RangeCache ranges_;
  std::unique_ptr<Batch> first_;
  Outcome total_;
};

bool acceptable(const Launch& launch, const Kernel& kernel) {
  std::uint64_t threads = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0 || launch.block[i] == 0 || launch.block[i] > kMaxBlockThreads) return false;
    threads *= launch.block[i];
  }
  if (threads > kMaxBlockThreads) return false;
  if (launch.grid[1] > 65535 || launch.grid[2] > 65535 || launch.grid[0] > 0x7fffffffU) return false;
  return kernel.shared_bytes + launch.dynamic_shared_bytes <= (std::size_t{1} << 28);
}

void merge(Outcome& into, const Outcome& from) {
  into.thread_instructions += from.thread_instructions;
  into.warp_instructions += from.warp_instructions;
  into.global_bytes += from.global_bytes;
  // A worker that was only told to stop does not hide why.
  if (from.status == Status::ok || (from.status == Status::cancelled && into.status != Status::ok)) return;
  if (into.status == Status::ok || into.status == Status::cancelled) {
    into.status = from.status;
    into.fault_address = from.fault_address;
    into.line = from.line;
  }
}

}  // namespace

std::string_view status_name(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::illegal_address:
      return "illegal address";
    case Status::misaligned_address:
      return "misaligned address";
    case Status::trap:
      return "trap";
    case Status::assert_failed:
      return "assert failed";
    case Status::illegal_instruction:
      return "illegal instruction";
    case Status::timeout:
      return "timeout";
    case Status::cancelled:
      return "cancelled";
    case Status::bad_launch:
      return "bad launch";
  }
  return "unknown";
}

Outcome run(const Launch& launch, Memory& memory, const RunOptions& options) {
  Outcome outcome;
  if (launch.image == nullptr || launch.image->module == nullptr || launch.kernel == nullptr ||
      !acceptable(launch, *launch.kernel)) {
    outcome.status = Status::bad_launch;
    return outcome;
  }
  const ModuleBody& body = launch.image->module->body();
  const Program& program = body.programs[launch.kernel->index];
  RunState run;
  run.launch = &launch;
  run.options = &options;
  run.memory = &memory;
  run.module = &body;
  run.program = &program;
  run.masks = &body.table->masks();
  run.blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  run.block_threads = launch.block[0] * launch.block[1] * launch.block[2];
  run.shared_bytes = launch.kernel->shared_bytes + launch.dynamic_shared_bytes;
  run.shared_stride = (run.shared_bytes + 63) / 64 * 64;
  run.local_bytes = (program.local_bytes + 15) / 16 * 16;
  const bool whole_warps = program.uses_warps || run.shared_bytes != 0;
  run.block_lanes = whole_warps ? (run.block_threads + kWarp - 1) / kWarp * kWarp : run.block_threads;
  run.blocks_per_batch =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kTargetLanes / run.block_lanes, 1, run.blocks));
  run.lanes = (run.blocks_per_batch * run.block_lanes + kWarp - 1) / kWarp * kWarp;
  run.batches = (run.blocks + run.blocks_per_batch - 1) / run.blocks_per_batch;
  run.linked = &body.linked(launch.kernel->index, run.lanes);

  if (launch.cooperative) {
    Worker worker(run);
    worker.work_together();
    merge(outcome, worker.total());
    return outcome;
  }
  // The first batch tells whether the rest is worth threads.
  Worker worker(run);
  worker.work(1);
  const std::uint64_t left = run.batches - std::min(run.batches, run.next_batch.load());
  const std::uint64_t expected = left * worker.total().thread_instructions;
  if (run.stop || left == 0 || options.threads <= 1 || expected < kWorthThreads) {
    if (!run.stop) worker.work(run.batches);
    merge(outcome, worker.total());
    return outcome;
  }
  const std::size_t extra = std::min<std::size_t>(static_cast<std::size_t>(options.threads) - 1, left - 1);
  std::vector<std::unique_ptr<Worker>> workers;
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < extra; ++i) {
      workers.push_back(std::make_unique<Worker>(run));
      threads.emplace_back([helper = workers.back().get(), &run] { helper->work(run.batches); });
    }
    worker.work(run.batches);
  }
  merge(outcome, worker.total());
  for (const auto& helper : workers) merge(outcome, helper->total());
  return outcome;
}

}  // namespace tensor_fusion::sim::ptx
