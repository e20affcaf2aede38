#pragma once

#include <vector>

#include "sim/ptx/ir.h"

namespace tensor_fusion::sim::ptx {

struct Block {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::vector<std::uint32_t> next;
  std::vector<std::uint32_t> previous;
};

// Basic blocks of a program, in the order of its ops. A call falls through to the op behind it.
struct Flow {
  explicit Flow(const Program& program);
  // Block that every path from a block to an exit runs through next; kNoIndex: only the exit.
  [[nodiscard]] std::vector<std::uint32_t> post_dominators() const;

  std::vector<Block> blocks;
  std::vector<std::uint32_t> block_of;  // op → block
};

template <class Visit>
void each_source(const Program& program, const Op& op, const Visit& visit) {
  for (const Reg reg : {op.a, op.b, op.c, op.guard}) {
    if (reg != kNoReg) visit(reg);
  }
  for (const Reg reg : program.extras[op.extra].ins) visit(reg);
}

template <class Visit>
void each_target(const Program& program, const Op& op, const Visit& visit) {
  if (op.d != kNoReg) visit(op.d);
  for (const Reg reg : program.extras[op.extra].outs) visit(reg);
}

}  // namespace tensor_fusion::sim::ptx
