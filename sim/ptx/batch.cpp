#include "sim/ptx/batch.h"

#include <algorithm>
#include <cstring>

#include "sim/ptx/resolve.h"
#include "sim/ptx/special.h"

namespace tensor_fusion::sim::ptx {
namespace {

constexpr std::uint32_t kNever = 0xffffffffU;
constexpr std::uint32_t kSpinLimit = 1000;  // backward branches while others wait
constexpr std::uint32_t kBoostLimit = 64;

bool runs_before(std::uint32_t depth, std::uint32_t pc, std::uint32_t other_depth, std::uint32_t other_pc) {
  return depth != other_depth ? depth > other_depth : pc < other_pc;
}

}  // namespace

Batch::Batch(RunState& run, RangeCache& ranges) : run_(run), ranges_(ranges) {
  const Linked& linked = *run_.linked;
  warps_ = run_.lanes / kWarp;
  register_memory_ = std::make_unique<std::byte[]>(linked.register_bytes + 128);
  const auto raw = reinterpret_cast<std::uintptr_t>(register_memory_.get());
  regs_ = register_memory_.get() + ((raw + 63) / 64 * 64 - raw);
  if (run_.shared_bytes != 0)
    shared_memory_ = std::make_unique<std::byte[]>(run_.shared_stride * run_.blocks_per_batch);
  if (run_.local_bytes != 0) local_memory_ = std::make_unique<std::byte[]>(run_.local_bytes * run_.lanes);
  shared_base_.resize(run_.lanes);
  for (std::uint32_t lane = 0; lane < run_.lanes; ++lane) {
    const std::uint32_t block = std::min(lane / run_.block_lanes, run_.blocks_per_batch - 1);
    shared_base_[lane] = static_cast<std::uint32_t>(block * run_.shared_stride);
  }
  scratch_mask_.resize(run_.lanes);
  frame_.regs = regs_;
  frame_.warps = warps_;
  frame_.lanes = run_.lanes;
  frame_.ranges = ranges_.slots.data();
  frame_.extras = linked.extras.data();
  frame_.shared = shared_memory_.get();
  frame_.shared_base = shared_base_.data();
  frame_.one_shared = run_.blocks_per_batch == 1;
  frame_.shared_bytes = run_.shared_bytes;
  frame_.local = local_memory_.get();
  frame_.local_bytes = run_.local_bytes;
  frame_.params = run_.launch->params.data();
  frame_.param_bytes = run_.launch->params.size();
  frame_.find_range = find_range;
  frame_.resolve = resolve;
  frame_.machine = this;
  fill_constants();
  fill_inputs(false);
}

void Batch::start(std::uint64_t first_block) {
  first_block_ = first_block;
  block_count_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(run_.blocks_per_batch, run_.blocks - first_block));
  fill_inputs(true);
  alive_.assign(run_.lanes, 0);
  for (std::uint32_t block = 0; block < block_count_; ++block) {
    std::fill_n(alive_.begin() + block * run_.block_lanes, run_.block_threads, std::uint8_t{1});
  }
  alive_count_ = block_count_ * run_.block_threads;
  ready_.clear();
  waiting_.clear();
  saved_.clear();
  arrived_.assign(std::size_t{block_count_} * kBarriers, 0);
  current_ = Group{};
  current_.mask = alive_;
  current_.pc = run_.program->entries[run_.program->kernel];
  measure(current_);
  have_current_ = true;
  spins_ = 0;
  boosted_ = false;
  issued_ = 0;
  find_stop();
}

std::vector<std::uint8_t> Batch::spare_mask() {
  if (spare_.empty()) return std::vector<std::uint8_t>(run_.lanes);
  std::vector<std::uint8_t> mask = std::move(spare_.back());
  spare_.pop_back();
  return mask;
}

void Batch::measure(Group& group) {
  group.count = 0;
  group.first = warps_;
  group.last = 0;
  for (std::uint32_t w = 0; w < warps_; ++w) {
    std::uint64_t parts[4];
    std::memcpy(parts, group.mask.data() + w * kWarp, sizeof parts);
    const auto sum =
        static_cast<std::uint32_t>(((parts[0] + parts[1] + parts[2] + parts[3]) * 0x0101010101010101ULL) >> 56);
    if (sum == 0) continue;
    group.count += sum;
    group.first = std::min(group.first, w);
    group.last = w + 1;
  }
}

Batch::Group Batch::split(const std::uint8_t* lanes) {
  Group other;
  other.pc = current_.pc;
  other.depth = current_.depth;
  other.mask = spare_mask();
  for (std::uint32_t i = 0; i < run_.lanes; ++i) {
    other.mask[i] = current_.mask[i] & lanes[i];
    current_.mask[i] = current_.mask[i] & static_cast<std::uint8_t>(lanes[i] ^ 1);
  }
  measure(other);
  measure(current_);
  return other;
}

void Batch::put_back(Group group) {
  if (group.count == 0) {
    spare_.push_back(std::move(group.mask));
    return;
  }
  for (Group& other : ready_) {
    if (other.pc != group.pc || other.depth != group.depth) continue;
    for (std::uint32_t i = 0; i < run_.lanes; ++i) other.mask[i] |= group.mask[i];
    measure(other);
    spare_.push_back(std::move(group.mask));
    return;
  }
  ready_.push_back(std::move(group));
}

void Batch::find_stop() {
  whole_ = current_.count == run_.lanes;
  stop_ = kNever;
  if (boosted_) return;
  for (const Group& other : ready_) {
    if (other.depth == current_.depth) stop_ = std::min(stop_, other.pc);
  }
}

bool Batch::pick() {
  if (ready_.empty()) return false;
  std::size_t best = 0;
  for (std::size_t i = 1; i < ready_.size(); ++i) {
    if (runs_before(ready_[i].depth, ready_[i].pc, ready_[best].depth, ready_[best].pc)) best = i;
  }
  if (spins_ >= kSpinLimit && ready_.size() > 1) {  // somebody may be waiting for a group that never gets its turn
    best = (best + 1 + spins_ % (ready_.size() - 1)) % ready_.size();
    boosted_ = true;
    spins_ = 0;
  } else {
    boosted_ = false;
  }
  current_ = std::move(ready_[best]);
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(best));
  have_current_ = true;
  find_stop();
  return true;
}

void Batch::settle() {
  outcome_.thread_instructions += issued_ * current_.count;
  outcome_.warp_instructions += issued_ * (current_.last - current_.first);
  issued_ = 0;
}

void Batch::take_counts(Outcome& into) {
  into.thread_instructions += outcome_.thread_instructions;
  into.warp_instructions += outcome_.warp_instructions;
  into.global_bytes += frame_.global_bytes;
  run_.thread_instructions += outcome_.thread_instructions - reported_;
  reported_ = 0;
  outcome_ = Outcome{};
  frame_.global_bytes = 0;
}

bool Batch::fail(Status status, const Ins& in, std::uint64_t address) {
  settle();
  outcome_.status = status;
  outcome_.fault_address = address;
  outcome_.line = static_cast<int>(in.line);
  return false;
}

Batch::State Batch::step(std::uint64_t budget) {
  while (true) {
    if (!have_current_ && !pick()) {
      if (waiting_.empty()) return State::finished;
      outcome_.status = Status::timeout;  // a barrier nobody can complete
      outcome_.line = static_cast<int>(waiting_.front().barrier->line);
      return State::failed;
    }
    if (!run_group(budget)) return State::failed;
    if (budget == 0) return State::ready;
  }
}

// Backward branches come by here: the only places where a kernel can spend forever.
bool Batch::keep_going(std::uint64_t& budget) {
  const Ins& in = run_.linked->code[current_.pc];
  settle();
  const std::uint64_t limit = run_.options->max_thread_instructions;
  if (outcome_.thread_instructions - reported_ > 100000) {
    run_.thread_instructions += outcome_.thread_instructions - reported_;
    reported_ = outcome_.thread_instructions;
    if (limit != 0 && run_.thread_instructions.load() > limit) return fail(Status::timeout, in);
    if (run_.options->progress) run_.options->progress();
  }
  if (run_.stop.load(std::memory_order_relaxed) ||
      (run_.options->cancel != nullptr && run_.options->cancel->load(std::memory_order_relaxed))) {
    return fail(Status::cancelled, in);
  }
  if (run_.program->may_spin && !ready_.empty() && ++spins_ >= (boosted_ ? kBoostLimit : kSpinLimit)) {
    if (boosted_) spins_ = 0;
    put_back(std::move(current_));
    have_current_ = false;
    return true;
  }
  budget -= std::min<std::uint64_t>(budget, 16);
  return true;
}

bool Batch::run_group(std::uint64_t& budget) {
  const Ins* code = run_.linked->code.data();
  while (have_current_ && budget != 0) {
    // The fast lane: everything up to the next instruction that changes who runs.
    const bool single = alone();
    const std::uint32_t first = current_.first;
    const std::uint32_t last = current_.last;
    std::uint32_t pc = current_.pc;
    std::uint64_t issued = 0;
    const Ins* in = code + pc;
    while (pc < stop_) {
      in = code + pc;
      if (in->kind == InsKind::alu) {
        if (in->uniform && !in->guarded) {
          in->alu(*in, regs_, 0, 1);
        } else if (single && !in->guarded) {
          in->alu(*in, regs_, first, last);
        } else {
          masked_alu(*in);
        }
      } else if (in->kind == InsKind::effect) {
        if (!effect(*in)) {
          issued_ += issued;
          return fail(static_cast<Status>(frame_.fault), *in, frame_.fault_address);
        }
      } else if (in->kind != InsKind::nop) {
        break;
      }
      issued += in->weight;
      ++pc;
    }
    current_.pc = pc;
    issued_ += issued;
    if (pc >= stop_) {
      settle();
      put_back(std::move(current_));
      have_current_ = false;
      return true;
    }
    issued_ += in->weight;
    bool good = true;
    switch (in->kind) {
      case InsKind::branch:
        good = branch(*in);
        break;
      case InsKind::branch_index:
        good = branch_index(*in);
        break;
      case InsKind::call:
      case InsKind::call_indirect:
        good = call(*in);
        break;
      case InsKind::ret:
        leave();
        break;
      case InsKind::exit:
        exit_lanes();
        break;
      case InsKind::barrier:
        good = barrier(*in);
        break;
      default:
        return fail(Status::trap, *in);
    }
    if (!good) return false;
    if (have_current_ && current_.pc <= pc && !keep_going(budget)) return false;
    if (!have_current_) return true;
  }
  return true;
}

void Batch::masked_alu(const Ins& in) {
  if (in.uniform) {
    const auto set = static_cast<std::uint8_t>(regs_[in.guard.at]) != 0;
    if (set != in.guard_inverted) in.alu(in, regs_, 0, 1);
    return;
  }
  const std::uint8_t* mask = current_.mask.data();
  if (in.guarded) {
    const std::uint32_t count = run_.masks->combine(scratch_mask_.data(), whole_ ? nullptr : mask, regs_, in.guard,
                                                    in.guard_inverted, current_.first, current_.last);
    if (count == 0) return;
    mask = scratch_mask_.data();
  }
  Ins other = in;
  other.d = {run_.linked->scratch, in.d_width * kWarp};
  other.alu(other, regs_, current_.first, current_.last);
  run_.masks->blend(regs_, in.d, other.d, mask, in.d_width, current_.first, current_.last);
}

bool Batch::effect(const Ins& in) {
  Mask mask{whole_ ? nullptr : current_.mask.data(), current_.first, current_.last};
  if (in.uniform) {
    if (in.guarded && (static_cast<std::uint8_t>(regs_[in.guard.at]) != 0) == in.guard_inverted) return true;
    mask = {nullptr, 0, 1};
  } else if (in.guarded) {
    const std::uint32_t count = run_.masks->combine(scratch_mask_.data(), mask.bytes, regs_, in.guard,
                                                    in.guard_inverted, current_.first, current_.last);
    if (count == 0) return true;
    if (count != run_.lanes) mask.bytes = scratch_mask_.data();
  }
  return in.effect(in, frame_, mask);
}

bool Batch::branch(const Ins& in) {
  if (!in.guarded) {
    current_.pc = in.target;
  } else if (in.guard_uniform) {
    const bool set = static_cast<std::uint8_t>(regs_[in.guard.at]) != 0;
    current_.pc = set != in.guard_inverted ? in.target : current_.pc + 1;
  } else {
    const std::uint8_t* mask = whole_ ? nullptr : current_.mask.data();
    const std::uint32_t taken =
        run_.masks->count(mask, regs_, in.guard, in.guard_inverted, current_.first, current_.last);
    if (taken == current_.count) {
      current_.pc = in.target;
    } else if (taken == 0) {
      ++current_.pc;
    } else {
      settle();
      std::ranges::fill(scratch_mask_, std::uint8_t{0});
      run_.masks->combine(scratch_mask_.data(), mask, regs_, in.guard, in.guard_inverted, current_.first,
                          current_.last);
      Group other = split(scratch_mask_.data());
      ++current_.pc;
      other.pc = in.target;
      if (runs_before(other.depth, other.pc, current_.depth, current_.pc)) std::swap(other, current_);
      put_back(std::move(other));
      find_stop();
    }
  }
  return true;
}

}  // namespace tensor_fusion::sim::ptx
