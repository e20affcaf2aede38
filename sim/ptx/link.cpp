#include "sim/ptx/module_body.h"

namespace tensor_fusion::sim::ptx {

Linked link(const Program& program, std::uint32_t lanes) {
  Linked out;
  out.lanes = lanes;
  // Wide registers begin behind the narrow ones; lanes are whole warps, so 64-byte rows stay aligned for widths ≥ 2.
  const std::uint32_t wide = (program.narrow_bytes + 63) / 64 * 64;
  out.places.resize(program.regs.size());
  for (Reg reg = 0; reg < program.regs.size(); ++reg) {
    const Program::Place& place = program.places[reg];
    const std::uint32_t width = program.regs[reg].width;
    out.places[reg] = place.narrow ? Slot{place.offset, 0} : Slot{wide + place.offset * lanes, width * kWarp};
  }
  out.scratch = wide + program.wide_bytes_per_lane * lanes;
  out.register_bytes = out.scratch + std::size_t{8} * lanes;
  const auto slot = [&](Reg reg) { return reg == kNoReg ? Slot{} : out.places[reg]; };
  for (const Reg reg : program.frame_bases) out.frame_bases.push_back(slot(reg));
  std::size_t slots = 0;
  for (const Extra& extra : program.extras) slots += extra.outs.size() + extra.ins.size();
  out.slots.reserve(slots);
  for (const Extra& extra : program.extras) {
    LinkedExtra linked;
    linked.out_count = static_cast<std::uint32_t>(extra.outs.size());
    linked.in_count = static_cast<std::uint32_t>(extra.ins.size());
    linked.outs = out.slots.data() + out.slots.size();
    for (const Reg reg : extra.outs) out.slots.push_back(slot(reg));
    linked.ins = out.slots.data() + out.slots.size();
    for (const Reg reg : extra.ins) out.slots.push_back(slot(reg));
    linked.targets = extra.targets.data();
    linked.target_count = static_cast<std::uint32_t>(extra.targets.size());
    out.extras.push_back(linked);
  }
  out.code.reserve(program.ops.size());
  for (const Op& op : program.ops) {
    Ins in;
    in.alu = nullptr;
    if (op.kind == InsKind::alu) in.alu = op.alu;
    if (op.kind == InsKind::effect) in.effect = op.effect;
    in.d = slot(op.d);
    in.a = slot(op.a);
    in.b = slot(op.b);
    in.c = slot(op.c);
    in.guard = slot(op.guard);
    in.imm = op.imm;
    in.target = op.kind == InsKind::call ? program.entries[op.target] : op.target;
    in.extra = op.extra;
    in.line = static_cast<std::uint32_t>(op.line);
    in.cache = op.memory_access ? out.range_slots++ : 0;
    in.weight = op.weight;
    in.kind = op.kind;
    in.d_width = op.d == kNoReg ? std::uint8_t{0} : program.regs[op.d].width;
    in.guarded = op.guard != kNoReg;
    in.guard_inverted = op.guard_inverted;
    in.has_b = op.b != kNoReg;
    if (op.kind == InsKind::call) in.extra = op.target;  // the function's number
    // Once for all warps: it has a result, and nothing it reads or writes differs by lane.
    bool narrow = op.d != kNoReg || !program.extras[op.extra].outs.empty();
    if (op.kind != InsKind::alu && op.kind != InsKind::effect) narrow = false;
    for (const Reg reg : {op.d, op.a, op.b, op.c, op.guard})
      narrow = narrow && (reg == kNoReg || program.places[reg].narrow);
    for (const Reg reg : program.extras[op.extra].outs) narrow = narrow && program.places[reg].narrow;
    for (const Reg reg : program.extras[op.extra].ins) narrow = narrow && program.places[reg].narrow;
    in.uniform = narrow && !op.varying;
    in.guard_uniform = op.guard != kNoReg && program.places[op.guard].narrow;
    out.code.push_back(in);
  }
  return out;
}

const Linked& ModuleBody::linked(std::size_t kernel, std::uint32_t lanes) const {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Linked>& entry = linked_[{kernel, lanes}];
  if (entry == nullptr) entry = std::make_unique<Linked>(link(programs[kernel], lanes));
  return *entry;
}

}  // namespace tensor_fusion::sim::ptx
