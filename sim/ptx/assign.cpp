// Gives registers their place: those never needed at the same time share one, so that the register file of a batch
// stays in the nearest cache.
#include <algorithm>
#include <array>
#include <bit>

#include "sim/ptx/flow.h"

namespace tensor_fusion::sim::ptx {
namespace {

using Bits = std::vector<std::uint64_t>;

bool has(const Bits& bits, std::size_t i) { return ((bits[i / 64] >> (i % 64)) & 1) != 0; }
void put(Bits& bits, std::size_t i) { bits[i / 64] |= std::uint64_t{1} << (i % 64); }
void drop(Bits& bits, std::size_t i) { bits[i / 64] &= ~(std::uint64_t{1} << (i % 64)); }

// `@p ld d …; @!p mov d, …`: together the two write every lane, so the first one starts a new value.
bool starts_pair(const Program& program, const Block& block, std::uint32_t at) {
  const Op& op = program.ops[at];
  for (std::uint32_t i = at + 1; i < block.end && i < at + 8; ++i) {
    const Op& other = program.ops[i];
    bool stop = false;
    each_target(program, other, [&](Reg reg) { stop |= reg == op.guard; });
    if (other.d == op.d && other.guard == op.guard && other.guard_inverted != op.guard_inverted) return true;
    each_source(program, other, [&](Reg reg) { stop |= reg == op.d; });
    if (stop) return false;
  }
  return false;
}

bool kills(const Program& program, const Block& block, std::uint32_t at) {
  const Op& op = program.ops[at];
  return op.guard == kNoReg || (op.extra == 0 && op.d != kNoReg && starts_pair(program, block, at));
}

struct Interval {
  Reg reg;
  std::uint32_t begin;
  std::uint32_t end;
};

class Placer {
 public:
  explicit Placer(Program& program) : program_(program) {}

  void place(const Interval& interval) {
    const RegInfo& info = program_.regs[interval.reg];
    if (info.owner != owner_ && program_.has_calls) {
      for (auto& list : free_) list.clear();
      busy_.clear();
    }
    owner_ = info.owner;
    std::erase_if(busy_, [&](const Interval& other) {
      if (other.end >= interval.begin) return false;
      const Program::Place place = program_.places[other.reg];
      free_[slot_class(other.reg)].push_back(place.offset);
      return true;
    });
    auto& list = free_[slot_class(interval.reg)];
    Program::Place& place = program_.places[interval.reg];
    place.narrow = info.uniform;
    if (!list.empty()) {
      place.offset = list.back();
      list.pop_back();
    } else {
      place.offset = fresh(info.width, info.uniform);
    }
    busy_.push_back(interval);
    int live = 0;
    for (const Interval& other : busy_) live += std::max<int>(1, program_.regs[other.reg].width / 4);
    program_.live_registers = std::max(program_.live_registers, live);
  }

  std::uint32_t fresh(int width, bool narrow) {
    std::uint32_t& end = narrow ? program_.narrow_bytes : program_.wide_bytes_per_lane;
    const std::uint32_t at = end;
    end += static_cast<std::uint32_t>(width) * (narrow ? kWarp : 1);
    if (narrow) end = (end + 63) / 64 * 64;
    return at;
  }

 private:
  [[nodiscard]] std::size_t slot_class(Reg reg) const {
    const RegInfo& info = program_.regs[reg];
    return static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(info.width))) + (info.uniform ? 4U : 0U);
  }

  Program& program_;
  std::array<std::vector<std::uint32_t>, 8> free_;
  std::vector<Interval> busy_;
  std::uint32_t owner_ = kNoIndex;
};

}  // namespace

void assign_registers(Program& program) {
  const Flow flow(program);
  const std::size_t count = program.regs.size();
  const std::size_t words = (count + 63) / 64;
  const std::size_t blocks = flow.blocks.size();
  std::vector<Bits> in(blocks, Bits(words));
  std::vector<Bits> out(blocks, Bits(words));
  std::vector<Bits> used(blocks, Bits(words));  // before any definition in the block
  std::vector<Bits> killed(blocks, Bits(words));
  for (std::size_t b = 0; b < blocks; ++b) {
    for (std::uint32_t i = flow.blocks[b].end; i-- > flow.blocks[b].begin;) {
      const Op& op = program.ops[i];
      if (kills(program, flow.blocks[b], i)) {
        each_target(program, op, [&](Reg reg) {
          put(killed[b], reg);
          drop(used[b], reg);
        });
      }
      each_source(program, op, [&](Reg reg) { put(used[b], reg); });
    }
    in[b] = used[b];
  }
  std::vector<bool> queued(blocks, true);
  std::vector<std::uint32_t> todo;
  for (std::uint32_t b = 0; b < blocks; ++b) todo.push_back(b);
  while (!todo.empty()) {
    const std::uint32_t b = todo.back();
    todo.pop_back();
    queued[b] = false;
    bool changed = false;
    for (std::size_t w = 0; w < words; ++w) {
      std::uint64_t live = 0;
      for (const std::uint32_t next : flow.blocks[b].next) live |= in[next][w];
      out[b][w] = live;
      const std::uint64_t before = used[b][w] | (live & ~killed[b][w]);
      changed |= before != in[b][w];
      in[b][w] = before;
    }
    if (!changed) continue;
    for (const std::uint32_t previous : flow.blocks[b].previous) {
      if (!queued[previous]) todo.push_back(previous);
      queued[previous] = true;
    }
  }

  constexpr std::uint32_t kNever = 0xffffffffU;
  std::vector<Interval> intervals(count);
  for (Reg reg = 0; reg < count; ++reg) intervals[reg] = {reg, kNever, 0};
  const auto extend = [&](Reg reg, std::uint32_t at) {
    intervals[reg].begin = std::min(intervals[reg].begin, at);
    intervals[reg].end = std::max(intervals[reg].end, at);
  };
  // Positions are doubled: sources are read at 2i, destinations written at 2i + 1, so d may take the place of a dying
  // source.
  for (std::size_t b = 0; b < blocks; ++b) {
    const Block& block = flow.blocks[b];
    for (Reg reg = 0; reg < count; ++reg) {
      if (has(in[b], reg)) extend(reg, 2 * block.begin);
      if (has(out[b], reg)) extend(reg, 2 * block.end - 1);
    }
    for (std::uint32_t i = block.begin; i < block.end; ++i) {
      const Op& op = program.ops[i];
      // A handler of several results may write one before it has read all sources: nothing is shared there.
      const bool strict = op.kind != InsKind::alu;
      each_source(program, op, [&](Reg reg) { extend(reg, 2 * i + (strict ? 1 : 0)); });
      each_target(program, op, [&](Reg reg) { extend(reg, 2 * i + (strict ? 0 : 1)); });
    }
  }
  program.places.assign(count, {});
  const auto last = static_cast<std::uint32_t>(2 * program.ops.size());
  for (const Reg reg : program.frame_bases) {
    if (reg != kNoReg) intervals[reg] = {reg, 0, last};
  }
  Placer placer(program);
  std::vector<Interval> sorted;
  for (const Interval& interval : intervals) {
    const RegInfo& info = program.regs[interval.reg];
    const bool is_base = std::ranges::find(program.frame_bases, interval.reg) != program.frame_bases.end();
    if (info.kind == RegClass::normal && !is_base) {
      if (interval.begin != kNever) sorted.push_back(interval);
    } else if (interval.begin != kNever) {
      const bool narrow = info.kind != RegClass::input && !is_base;
      program.places[interval.reg] = {placer.fresh(info.width, narrow), narrow};
    } else {
      program.regs[interval.reg].width = 0;  // never needed
    }
  }
  std::ranges::sort(sorted, [](const Interval& x, const Interval& y) { return x.begin < y.begin; });
  for (const Interval& interval : sorted) placer.place(interval);
  program.live_registers = std::clamp(program.live_registers, 8, 255);
}

}  // namespace tensor_fusion::sim::ptx
