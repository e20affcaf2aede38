// How groups of lanes part and meet: calls, returns, exits and barriers.
#include <algorithm>
#include <cstring>

#include "sim/ptx/address.h"
#include "sim/ptx/batch.h"

namespace tensor_fusion::sim::ptx {
namespace {

constexpr std::uint32_t kMaxDepth = 2000;

template <class T>
T lane_value(const std::byte* regs, const Slot& slot, std::uint32_t lane) {
  T value;
  std::memcpy(&value, regs + slot.at + std::size_t{lane / kWarp} * slot.step + std::size_t{lane % kWarp} * sizeof(T),
              sizeof(T));
  return value;
}

template <class T>
void set_lane_value(std::byte* regs, const Slot& slot, std::uint32_t lane, T value) {
  std::memcpy(regs + slot.at + std::size_t{lane / kWarp} * slot.step + std::size_t{lane % kWarp} * sizeof(T), &value,
              sizeof(T));
}

std::uint32_t first_lane(const std::vector<std::uint8_t>& mask) {
  return static_cast<std::uint32_t>(std::find(mask.begin(), mask.end(), std::uint8_t{1}) - mask.begin());
}

}  // namespace

bool Batch::branch_index(const Ins& in) {
  settle();
  const LinkedExtra& extra = run_.linked->extras[in.extra];
  while (current_.count != 0) {
    const auto index = lane_value<std::uint32_t>(regs_, in.a, first_lane(current_.mask));
    if (index >= extra.target_count) return fail(Status::illegal_instruction, in);
    for (std::uint32_t i = 0; i < run_.lanes; ++i) {
      scratch_mask_[i] = current_.mask[i] != 0 && lane_value<std::uint32_t>(regs_, in.a, i) == index ? 1 : 0;
    }
    Group other = split(scratch_mask_.data());
    other.pc = extra.targets[index];
    put_back(std::move(other));
  }
  spare_.push_back(std::move(current_.mask));
  have_current_ = false;
  return true;
}

bool Batch::enter(std::uint32_t function, const Ins& in, std::uint32_t entry) {
  if (current_.depth >= kMaxDepth) return fail(Status::illegal_address, in, kLocalWindow);
  if (returns_.size() <= current_.depth) returns_.resize(current_.depth + 1);
  std::vector<std::uint32_t>& returns = returns_[current_.depth];
  returns.resize(run_.lanes);
  const Slot base = run_.linked->frame_bases[function];
  for (std::uint32_t i = 0; i < run_.lanes; ++i) {
    if (current_.mask[i] == 0) continue;
    returns[i] = current_.pc + 1;
    set_lane_value(regs_, base, i, lane_value<std::uint64_t>(regs_, in.a, i) + static_cast<std::uint64_t>(in.imm));
  }
  current_.pc = entry;
  ++current_.depth;
  return true;
}

bool Batch::call(const Ins& in) {
  if (in.kind == InsKind::call) {
    if (!enter(in.extra, in, in.target)) return false;
    find_stop();
    return true;
  }
  settle();
  const auto& entries = run_.program->entries;
  while (current_.count != 0) {
    const auto address = lane_value<std::uint64_t>(regs_, in.b, first_lane(current_.mask));
    const std::uint64_t function = (address - kFunctionWindow) / 16 - 1;
    if ((address & kWindowMask) != kFunctionWindow || address % 16 != 0 || function >= entries.size() ||
        entries[function] == kNoIndex || function == run_.program->kernel) {
      return fail(Status::illegal_instruction, in);
    }
    for (std::uint32_t i = 0; i < run_.lanes; ++i) {
      scratch_mask_[i] = current_.mask[i] != 0 && lane_value<std::uint64_t>(regs_, in.b, i) == address ? 1 : 0;
    }
    Group rest = std::move(current_);
    current_ = std::move(rest);
    Group chosen = split(scratch_mask_.data());
    std::swap(chosen, current_);
    if (!enter(static_cast<std::uint32_t>(function), in, entries[function])) return false;
    std::swap(chosen, current_);
    put_back(std::move(chosen));
  }
  spare_.push_back(std::move(current_.mask));
  have_current_ = false;
  return true;
}

void Batch::leave() {
  if (current_.depth == 0) {
    exit_lanes();
    return;
  }
  const std::vector<std::uint32_t>& returns = returns_[current_.depth - 1];
  settle();
  while (current_.count != 0) {
    const std::uint32_t to = returns[first_lane(current_.mask)];
    bool all = true;
    for (std::uint32_t i = 0; i < run_.lanes; ++i) {
      const bool here = returns[i] == to;
      scratch_mask_[i] = here ? 1 : 0;
      all = all && (here || current_.mask[i] == 0);
    }
    if (all) {
      current_.pc = to;
      --current_.depth;
      if (alone()) {
        find_stop();
        return;
      }
      put_back(std::move(current_));
      have_current_ = false;
      return;
    }
    Group other = split(scratch_mask_.data());
    other.pc = to;
    --other.depth;
    put_back(std::move(other));
  }
}

void Batch::exit_lanes() {
  settle();
  alive_count_ -= current_.count;
  if (alive_count_ != 0) {
    for (std::uint32_t i = 0; i < run_.lanes; ++i)
      alive_[i] = alive_[i] & static_cast<std::uint8_t>(current_.mask[i] ^ 1);
  }
  spare_.push_back(std::move(current_.mask));
  have_current_ = false;
  if (!waiting_.empty()) release_barriers();
}

std::uint32_t Batch::barrier_id(const Ins& in) const {
  return std::min(lane_value<std::uint32_t>(regs_, in.a, 0), kBarriers - 1);
}

bool Batch::barrier(const Ins& in) {
  if (alone() && current_.count == alive_count_ && !in.has_b && in.imm != 1) {
    if (in.imm >= 2) {
      for (std::uint32_t block = 0; block < block_count_; ++block) reduce_barrier(in, block, current_.mask);
    }
    ++current_.pc;
    return true;
  }
  settle();
  if (in.imm == 1) {
    const std::uint32_t id = barrier_id(in);
    for (std::uint32_t i = 0; i < run_.lanes; ++i) {
      if (current_.mask[i] != 0) ++arrived_[i / run_.block_lanes * kBarriers + id];
    }
    ++current_.pc;
    // Whoever waits may go on now; this group goes back into the queue with them.
    put_back(std::move(current_));
    have_current_ = false;
    release_barriers();
    return true;
  }
  ++current_.pc;
  current_.barrier = &in;
  waiting_.push_back(std::move(current_));
  have_current_ = false;
  release_barriers();
  return true;
}

void Batch::reduce_barrier(const Ins& in, std::uint32_t block, const std::vector<std::uint8_t>& lanes) {
  const std::uint32_t begin = block * run_.block_lanes;
  const std::uint32_t end = begin + run_.block_lanes;
  std::uint32_t set = 0;
  std::uint32_t all = 0;
  for (std::uint32_t i = begin; i < end; ++i) {
    if (lanes[i] == 0) continue;
    ++all;
    set += lane_value<std::uint8_t>(regs_, in.c, i) != 0 ? 1 : 0;
  }
  for (std::uint32_t i = begin; i < end; ++i) {
    if (lanes[i] == 0) continue;
    if (in.imm == 2)
      set_lane_value(regs_, in.d, i, set);
    else
      set_lane_value(regs_, in.d, i, static_cast<std::uint8_t>(in.imm == 3 ? set == all : set != 0));
  }
}

void Batch::release_barriers() {
  std::vector<std::uint8_t> joined(run_.lanes);
  for (std::uint32_t block = 0; block < block_count_; ++block) {
    const std::uint32_t begin = block * run_.block_lanes;
    const std::uint32_t end = begin + run_.block_lanes;
    for (std::uint32_t id = 0; id < kBarriers; ++id) {
      std::uint32_t here = 0;
      std::uint32_t expected = 0;
      std::ranges::fill(joined, std::uint8_t{0});
      for (const Group& group : waiting_) {
        if (barrier_id(*group.barrier) != id) continue;
        for (std::uint32_t i = begin; i < end; ++i) {
          if (group.mask[i] == 0) continue;
          ++here;
          joined[i] = 1;
          if (group.barrier->has_b) expected = lane_value<std::uint32_t>(regs_, group.barrier->b, i);
        }
      }
      if (here == 0) continue;
      if (expected == 0) {
        for (std::uint32_t i = begin; i < end; ++i) expected += alive_[i];
      }
      std::uint32_t& arrived = arrived_[std::size_t{block} * kBarriers + id];
      if (here + arrived < expected) continue;
      arrived = 0;
      for (Group& group : waiting_) {
        if (barrier_id(*group.barrier) != id) continue;
        if (group.barrier->imm >= 2) reduce_barrier(*group.barrier, block, joined);
      }
      for (Group& group : waiting_) {
        if (barrier_id(*group.barrier) != id) continue;
        Group freed;
        freed.pc = group.pc;
        freed.depth = group.depth;
        freed.mask = spare_mask();
        std::ranges::fill(freed.mask, std::uint8_t{0});
        for (std::uint32_t i = begin; i < end; ++i) {
          freed.mask[i] = group.mask[i];
          group.mask[i] = 0;
        }
        measure(freed);
        measure(group);
        put_back(std::move(freed));
      }
    }
  }
  std::erase_if(waiting_, [](const Group& group) { return group.count == 0; });
}

}  // namespace tensor_fusion::sim::ptx
