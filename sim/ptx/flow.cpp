#include "sim/ptx/flow.h"

#include <algorithm>

namespace tensor_fusion::sim::ptx {

Flow::Flow(const Program& program) {
  const auto count = static_cast<std::uint32_t>(program.ops.size());
  std::vector<bool> leader(count + 1);
  leader[0] = true;
  const auto ends = [](const Op& op) {
    return op.kind == InsKind::branch || op.kind == InsKind::branch_index || op.kind == InsKind::ret ||
           op.kind == InsKind::exit || op.kind == InsKind::trap;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    const Op& op = program.ops[i];
    if (op.kind == InsKind::branch) leader[op.target] = true;
    for (const std::uint32_t target : program.extras[op.extra].targets) leader[target] = true;
    if (ends(op)) leader[i + 1] = true;
  }
  for (const std::uint32_t entry : program.entries) {
    if (entry != kNoIndex) leader[entry] = true;
  }
  block_of.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (leader[i]) blocks.push_back({i, i, {}, {}});
    blocks.back().end = i + 1;
    block_of[i] = static_cast<std::uint32_t>(blocks.size() - 1);
  }
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    const Op& op = program.ops[blocks[b].end - 1];
    const auto link = [&](std::uint32_t op_index) {
      if (op_index >= count) return;
      const std::uint32_t to = block_of[op_index];
      if (std::ranges::find(blocks[b].next, to) != blocks[b].next.end()) return;
      blocks[b].next.push_back(to);
      blocks[to].previous.push_back(b);
    };
    if (op.kind == InsKind::branch) {
      link(op.target);
      if (op.guard != kNoReg) link(blocks[b].end);
    } else if (op.kind == InsKind::branch_index) {
      for (const std::uint32_t target : program.extras[op.extra].targets) link(target);
    } else if (!ends(op)) {
      link(blocks[b].end);
    }
  }
}

std::vector<std::uint32_t> Flow::post_dominators() const {
  // Cooper, Harvey and Kennedy's iteration over the reversed graph; `exit` is a virtual last node.
  const auto exit = static_cast<std::uint32_t>(blocks.size());
  std::vector<std::uint32_t> order;  // post order of the reversed graph
  std::vector<std::uint8_t> seen(blocks.size());
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    if (!blocks[b].next.empty() || seen[b] != 0) continue;
    std::vector<std::pair<std::uint32_t, std::size_t>> stack{{b, 0}};
    seen[b] = 1;
    while (!stack.empty()) {
      auto& [node, child] = stack.back();
      if (child == blocks[node].previous.size()) {
        order.push_back(node);
        stack.pop_back();
        continue;
      }
      const std::uint32_t to = blocks[node].previous[child++];
      if (seen[to] == 0) {
        seen[to] = 1;
        stack.emplace_back(to, 0);
      }
    }
  }
  std::vector<std::uint32_t> number(blocks.size() + 1, kNoIndex);
  for (std::uint32_t i = 0; i < order.size(); ++i) number[order[i]] = i;
  number[exit] = static_cast<std::uint32_t>(order.size());
  std::vector<std::uint32_t> dominator(blocks.size() + 1, kNoIndex);
  dominator[exit] = exit;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = order.size(); i-- > 0;) {
      const std::uint32_t b = order[i];
      std::uint32_t merged = blocks[b].next.empty() ? exit : kNoIndex;
      for (const std::uint32_t next : blocks[b].next) {
        if (dominator[next] == kNoIndex) continue;
        if (merged == kNoIndex) {
          merged = next;
          continue;
        }
        std::uint32_t x = next;
        while (x != merged) {
          while (number[x] < number[merged]) x = dominator[x];
          while (number[merged] < number[x]) merged = dominator[merged];
        }
      }
      if (merged != kNoIndex && dominator[b] != merged) {
        dominator[b] = merged;
        changed = true;
      }
    }
  }
  dominator.pop_back();
  for (std::uint32_t& d : dominator) {
    if (d == exit) d = kNoIndex;
  }
  return dominator;
}

}  // namespace tensor_fusion::sim::ptx
