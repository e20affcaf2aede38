// Which registers hold the same value in every lane. Their instructions run once for a batch instead of once for every
// warp. It is sound only because the machine runs the lowest instruction first: lanes that left a divergent region wait
// at its end until all others arrive, provided that the end lies behind the region in the code, which is checked here.
#include "sim/ptx/flow.h"

namespace tensor_fusion::sim::ptx {
namespace {

class Uniformity {
 public:
  explicit Uniformity(Program& program) : program_(program), flow_(program), post_(flow_.post_dominators()) {}

  bool run() {
    divergent_.assign(flow_.blocks.size(), false);
    split_.assign(flow_.blocks.size(), false);
    for (RegInfo& reg : program_.regs) reg.uniform = reg.kind != RegClass::input;
    for (bool changed = true; changed;) {
      changed = false;
      for (std::uint32_t b = 0; b < flow_.blocks.size(); ++b) {
        for (std::uint32_t i = flow_.blocks[b].begin; i < flow_.blocks[b].end; ++i)
          changed |= visit(program_.ops[i], b);
      }
      if (failed_) return false;
    }
    for (std::uint32_t b = 0; b < flow_.blocks.size(); ++b) {
      for (std::uint32_t i = flow_.blocks[b].begin; i < flow_.blocks[b].end && divergent_[b]; ++i) {
        if (program_.ops[i].kind == InsKind::barrier) return false;
      }
    }
    return true;
  }

 private:
  bool visit(const Op& op, std::uint32_t block) {
    bool varying = divergent_[block] || op.varying;
    each_source(program_, op, [&](Reg reg) { varying |= !program_.regs[reg].uniform; });
    bool changed = false;
    if (varying) {
      each_target(program_, op, [&](Reg reg) {
        changed |= program_.regs[reg].uniform;
        program_.regs[reg].uniform = false;
      });
    }
    const bool splits = (op.kind == InsKind::branch && op.guard != kNoReg && !program_.regs[op.guard].uniform) ||
                        (op.kind == InsKind::branch_index && !program_.regs[op.a].uniform);
    if (splits && !split_[block]) {
      split_[block] = true;
      mark_region(block);
      changed = true;
    }
    return changed;
  }

  void mark_region(std::uint32_t block) {
    const std::uint32_t end = post_[block];
    std::vector<std::uint32_t> todo = flow_.blocks[block].next;
    std::vector<bool> seen(flow_.blocks.size());
    while (!todo.empty()) {
      const std::uint32_t b = todo.back();
      todo.pop_back();
      if (b == end || seen[b]) continue;
      seen[b] = true;
      divergent_[b] = true;
      if (end != kNoIndex && b > end) failed_ = true;
      todo.insert(todo.end(), flow_.blocks[b].next.begin(), flow_.blocks[b].next.end());
    }
    if (end != kNoIndex && block > end) failed_ = true;
  }

  Program& program_;
  Flow flow_;
  std::vector<std::uint32_t> post_;
  std::vector<bool> divergent_;
  std::vector<bool> split_;
  bool failed_ = false;
};

}  // namespace

void find_uniform(Program& program) {
  const bool eligible = !program.has_calls && !program.may_spin;
  if (eligible && Uniformity(program).run()) return;
  for (RegInfo& reg : program.regs) reg.uniform = reg.kind != RegClass::normal && reg.kind != RegClass::input;
}

}  // namespace tensor_fusion::sim::ptx
