// Puts a function's blocks into an order in which every loop is one piece and every block lies behind those that lead
// to it. The machine runs the lowest instruction first, so lanes that part meet again at the next block they share; a
// compiler's own order (a loop's join in front of its body, say) would let them run past each other.
#include <algorithm>
#include <limits>

#include "sim/ptx/flow.h"

namespace tensor_fusion::sim::ptx {
namespace {

constexpr std::size_t kMaxBlocks = 5000;  // the search below is recursive

// Bourdoncle's weak topological order.
class WeakOrder {
 public:
  explicit WeakOrder(const Flow& flow) : flow_(flow), number_(flow.blocks.size()) {}

  std::vector<std::uint32_t> from(std::uint32_t entry) {
    reversed_.clear();
    visit(entry);
    std::ranges::reverse(reversed_);
    return reversed_;
  }

 private:
  static constexpr std::uint32_t kPlaced = std::numeric_limits<std::uint32_t>::max();

  std::uint32_t visit(std::uint32_t block) {
    stack_.push_back(block);
    number_[block] = ++last_;
    std::uint32_t head = number_[block];
    bool loop = false;
    for (const std::uint32_t next : flow_.blocks[block].next) {
      const std::uint32_t least = number_[next] == 0 ? visit(next) : number_[next];
      if (least <= head) {
        head = least;
        loop = true;
      }
    }
    if (head != number_[block]) return head;
    number_[block] = kPlaced;
    while (stack_.back() != block) {
      if (loop) number_[stack_.back()] = 0;
      stack_.pop_back();
    }
    stack_.pop_back();
    if (loop) {
      for (const std::uint32_t next : flow_.blocks[block].next) {
        if (number_[next] == 0) visit(next);
      }
    }
    reversed_.push_back(block);
    return head;
  }

  const Flow& flow_;
  std::vector<std::uint32_t> number_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::uint32_t> reversed_;
  std::uint32_t last_ = 0;
};

bool falls_through(const Op& op) {
  switch (op.kind) {
    case InsKind::branch:
      return op.guard != kNoReg;
    case InsKind::branch_index:
    case InsKind::ret:
    case InsKind::exit:
    case InsKind::trap:
      return false;
    default:
      return true;
  }
}

}  // namespace

void reorder(Program& program) {
  const Flow flow(program);
  if (flow.blocks.size() > kMaxBlocks) return;
  WeakOrder search(flow);
  std::vector<std::uint32_t> order;
  std::vector<std::pair<std::uint32_t, std::size_t>> functions;  // entry op, function number
  for (std::size_t i = 0; i < program.entries.size(); ++i) {
    if (program.entries[i] != kNoIndex) functions.emplace_back(program.entries[i], i);
  }
  std::ranges::sort(functions);
  for (const auto& [entry, number] : functions) {
    const std::vector<std::uint32_t> blocks = search.from(flow.block_of[entry]);
    order.insert(order.end(), blocks.begin(), blocks.end());
  }
  std::vector<std::uint32_t> begin(flow.blocks.size(), kNoIndex);
  std::vector<Op> ops;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Block& block = flow.blocks[order[i]];
    begin[order[i]] = static_cast<std::uint32_t>(ops.size());
    ops.insert(ops.end(), program.ops.begin() + block.begin, program.ops.begin() + block.end);
    Op& last = ops.back();
    if (!falls_through(last) || block.end >= program.ops.size()) continue;
    const std::uint32_t next = i + 1 < order.size() ? order[i + 1] : kNoIndex;
    if (flow.block_of[block.end] == next) continue;
    if (last.kind == InsKind::branch && flow.block_of[last.target] == next) {
      last.guard_inverted = !last.guard_inverted;
      last.target = block.end;
      continue;
    }
    Op jump;
    jump.kind = InsKind::branch;
    jump.target = block.end;
    jump.line = last.line;
    ops.push_back(jump);
  }
  for (Op& op : ops) {
    if (op.kind == InsKind::branch) op.target = begin[flow.block_of[op.target]];
    if (op.kind != InsKind::branch_index) continue;
    for (std::uint32_t& target : program.extras[op.extra].targets) target = begin[flow.block_of[target]];
  }
  for (const auto& [entry, number] : functions) program.entries[number] = begin[flow.block_of[entry]];
  program.ops = std::move(ops);
}

}  // namespace tensor_fusion::sim::ptx
