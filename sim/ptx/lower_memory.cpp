// ld, st, atom, red, cp.async and ldmatrix.
#include <algorithm>

#include "sim/ptx/lower.h"

namespace tensor_fusion::sim::ptx {

bool Lowerer::memory_space(Modifiers& m, AddressSpace& space, bool& param) {
  param = false;
  if (m.take("global") || m.take("const"))
    space = AddressSpace::global;
  else if (m.take("shared") || m.take("shared::cta") || m.take("shared::cluster"))
    space = AddressSpace::shared;
  else if (m.take("local"))
    space = AddressSpace::local;
  else if (m.take("param") || m.take("param::entry") || m.take("param::func"))
    param = true;
  else
    space = AddressSpace::generic;
  return true;
}

bool Lowerer::address(const Operand& operand, AddressSpace space, bool param_space, Address& out) {
  if (operand.kind != OperandKind::address) return fail(operand, "an address in [ ] is expected");
  out.space = space;
  out.offset = operand.offset;
  const Symbol& symbol = operand.symbol;
  const auto no_base = [&] {
    return fail(operand, "'" + std::string(operand.text.substr(0, 60)) + "' is no address in this space");
  };
  switch (symbol.kind) {
    case SymbolKind::none:
      out.base = value(0, 8);
      break;
    case SymbolKind::reg: {
      const Type type = function_->registers[symbol.index];
      const Reg reg = mapped(symbol.index);
      if (bytes_of(type) == 4)
        out.base = resize(reg, 8, false);
      else if (bytes_of(type) == 8)
        out.base = reg;
      else
        return fail(operand, "an address must be a 32 or 64 bit register");
      break;
    }
    case SymbolKind::global:
      if (space != AddressSpace::global && space != AddressSpace::generic) return no_base();
      out.base = global_address(symbol.index, 0);
      break;
    case SymbolKind::variable: {
      const Variable& variable = syntax_.variables[symbol.index];
      const auto at = static_cast<std::int64_t>(variable_offset_[symbol.index]);
      if (variable.space == Space::shared) {
        if (space != AddressSpace::shared || param_space) return no_base();
        if (variable.dynamic) program.uses_dynamic_shared = true;
        out.base = value(0, 8);
      } else {
        if (!(space == AddressSpace::local || param_space)) return no_base();
        out.base = frame_base();
        out.space = AddressSpace::local;
      }
      out.offset += at;
      return true;
    }
    case SymbolKind::parameter:
    case SymbolKind::result: {
      if (!param_space) return no_base();
      if (function_->is_kernel) {
        out.offset += static_cast<std::int64_t>(function_->prototype.parameters[symbol.index].offset);
        out.base = value(0, 8);
        out.space = AddressSpace::param;
        out.launch_parameter = true;
        return true;
      }
      const Layout& layout = layouts_[function_index_];
      out.offset += static_cast<std::int64_t>(symbol.kind == SymbolKind::parameter ? layout.parameters[symbol.index]
                                                                                   : layout.results[symbol.index]);
      out.base = frame_base();
      out.space = AddressSpace::local;
      return true;
    }
    default:
      return no_base();
  }
  if (param_space) out.space = function_->is_kernel ? AddressSpace::param : AddressSpace::local;
  return out.base != kNoReg;
}

bool Lowerer::load_store(const Instruction& in, Modifiers& m, bool store) {
  AddressSpace space = AddressSpace::generic;
  bool param = false;
  memory_space(m, space, param);
  bool ordered = false;
  for (const std::string_view word : {"volatile", "relaxed", "acquire", "release", "mmio"}) ordered |= m.take(word);
  for (const std::string_view word : {"gpu",
                                      "sys",
                                      "cta",
                                      "cluster",
                                      "weak",
                                      "nc",
                                      "ca",
                                      "cg",
                                      "cs",
                                      "lu",
                                      "cv",
                                      "wb",
                                      "wt",
                                      "L1::evict_normal",
                                      "L1::evict_unchanged",
                                      "L1::evict_first",
                                      "L1::evict_last",
                                      "L1::no_allocate",
                                      "L2::64B",
                                      "L2::128B",
                                      "L2::256B",
                                      "unified"}) {
    m.take(word);
  }
  std::size_t count = 1;
  if (m.take("v2"))
    count = 2;
  else if (m.take("v4"))
    count = 4;
  else if (m.take("v8"))
    count = 8;
  if (m.types.size() != 1 || !operands(in, 2, 2)) return unsupported(in);
  const Type type = m.type();
  const int width = bytes_of(type);
  if (type == Type::pred || width > 8) return unsupported(in);
  Address at;
  if (!address(in.operands[store ? 1 : 0].kind == OperandKind::address ? in.operands[store ? 1 : 0]
                                                                       : in.operands[store ? 0 : 1],
               space, param, at))
    return false;
  const Operand& data = in.operands[store ? 1 : 0];
  if (data.kind == OperandKind::address)
    return fail(data, "Arguments mismatch for instruction '" + std::string(in.parts[0]) + "'");
  if ((count > 1) != (data.kind == OperandKind::vector) || (count > 1 && data.elements.size() != count)) {
    return fail(data, "Arguments mismatch for instruction '" + std::string(in.parts[0]) + "'");
  }
  // Plain bits move; a narrower type is widened by finish(), or cut by use().
  std::vector<Reg> regs;
  for (std::size_t i = 0; i < count; ++i) {
    const Operand& element = count > 1 ? data.elements[i] : data;
    const Reg reg = store ? use(element, type) : def(element, type);
    if (reg == kNoReg) return false;
    regs.push_back(reg);
  }
  if (at.launch_parameter) {
    if (store) return fail(in, "a kernel cannot store to its parameters");
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t offset = at.offset + static_cast<std::int64_t>(i) * width;
      if (offset < 0 || static_cast<std::size_t>(offset + width) > program.parameter_bytes)
        return fail(in, "address is out of the parameters");
      move(regs[i], launch_parameter(static_cast<std::size_t>(offset), width));
    }
    return true;
  }
  if (store && at.space == AddressSpace::param) return fail(in, "a kernel cannot store to its parameters");
  if (ordered) {
    program.may_spin = true;
    const EffectFn fn = ordered_effect(width, at.space, store);
    for (std::size_t i = 0; i < count; ++i) {
      Op& op = effect(fn, store ? kNoReg : regs[i], at.base, store ? regs[i] : kNoReg, kNoReg,
                      at.offset + static_cast<std::int64_t>(i) * width);
      op.memory_access = true;
      op.varying = !store;
    }
    return true;
  }
  const EffectFn fn = table_.memory(width, static_cast<int>(count), static_cast<int>(at.space), store);
  if (fn == nullptr) return unsupported(in);
  Op op;
  op.kind = InsKind::effect;
  op.effect = fn;
  op.a = at.base;
  op.imm = at.offset;
  op.memory_access = true;
  op.varying = at.space == AddressSpace::local || at.space == AddressSpace::shared || at.space == AddressSpace::generic;
  if (count == 1) {
    (store ? op.b : op.d) = regs[0];
  } else {
    op.extra = static_cast<std::uint32_t>(program.extras.size());
    Extra extra;
    (store ? extra.ins : extra.outs) = regs;
    program.extras.push_back(std::move(extra));
  }
  emit(op);
  return true;
}

bool Lowerer::atomic(const Instruction& in, Modifiers& m) {
  const bool returns = in.parts[0] == "atom";
  AddressSpace space = AddressSpace::generic;
  bool param = false;
  memory_space(m, space, param);
  if (param || space == AddressSpace::local) return unsupported(in);
  for (const std::string_view word :
       {"relaxed", "acquire", "release", "acq_rel", "seq_cst", "gpu", "sys", "cta", "cluster", "noftz"})
    m.take(word);
  constexpr std::pair<std::string_view, AtomicOp> kOps[] = {
      {"add", AtomicOp::add},   {"min", AtomicOp::min},     {"max", AtomicOp::max},   {"inc", AtomicOp::inc},
      {"dec", AtomicOp::dec},   {"and", AtomicOp::bit_and}, {"or", AtomicOp::bit_or}, {"xor", AtomicOp::bit_xor},
      {"exch", AtomicOp::exch}, {"cas", AtomicOp::cas}};
  bool found = false;
  AtomicOp op = AtomicOp::add;
  for (const auto& [name, which] : kOps) {
    if (!found && m.take(name)) {
      op = which;
      found = true;
    }
  }
  if (!found || m.types.size() != 1) return unsupported(in);
  const Type type = m.type();
  const std::size_t sources = op == AtomicOp::cas ? 2 : 1;
  const std::size_t first = returns ? 1 : 0;
  if (!operands(in, first + 1 + sources, first + 1 + sources)) return false;
  Address at;
  if (!address(in.operands[first], space, false, at)) return false;
  const EffectFn fn = atomic_effect(op, type, at.space);
  if (fn == nullptr) return unsupported(in);
  const Reg b = use(in.operands[first + 1], type);
  const Reg c = sources == 2 ? use(in.operands[first + 2], type) : kNoReg;
  if (b == kNoReg || (sources == 2 && c == kNoReg)) return false;
  Reg d = kNoReg;
  if (returns) {
    d = def(in.operands[0], type);
    if (d == kNoReg) return false;
  }
  program.may_spin = program.may_spin || returns;
  Op& emitted = effect(fn, d, at.base, b, c, at.offset);
  emitted.memory_access = true;
  emitted.varying = true;
  return true;
}

bool Lowerer::async_copy(const Instruction& in, Modifiers& m) {
  if (std::ranges::find(in.parts, "mbarrier") != in.parts.end()) return mbarrier(in, m);
  if (!m.take("async")) return unsupported(in);
  // Copies are done at once, so there is nothing to commit or to wait for.
  if (m.take("commit_group") || m.take("wait_all")) return operands(in, 0, 0);
  if (m.take("wait_group")) return operands(in, 1, 1);
  const bool shape = (m.take("ca") || m.take("cg"));
  m.take("shared::cta");
  for (const std::string_view word : {"shared", "global", "L2::128B", "L2::64B", "L2::256B"}) m.take(word);
  if (!shape || !operands(in, 3, 4)) return unsupported(in);
  if (in.operands[2].kind != OperandKind::integer ||
      (in.operands[2].bits != 4 && in.operands[2].bits != 8 && in.operands[2].bits != 16)) {
    return fail(in.operands[2], "cp.async copies 4, 8 or 16 bytes");
  }
  Address to;
  Address from;
  if (!address(in.operands[0], AddressSpace::shared, false, to) ||
      !address(in.operands[1], AddressSpace::global, false, from))
    return false;
  const Reg bytes = in.operands.size() == 4 ? use(in.operands[3], Type::u32) : value(in.operands[2].bits, 4);
  const Reg to_address = make(8);
  const Reg from_address = make(8);
  if (bytes == kNoReg) return false;
  alu({.op = AluOp::add, .type = Type::u64}, table_.integer, to_address, to.base,
      value(static_cast<std::uint64_t>(to.offset), 8));
  alu({.op = AluOp::add, .type = Type::u64}, table_.integer, from_address, from.base,
      value(static_cast<std::uint64_t>(from.offset), 8));
  Op& op = effect(copy_async_effect(), kNoReg, to_address, from_address, bytes,
                  static_cast<std::int64_t>(in.operands[2].bits));
  op.memory_access = true;
  return true;
}

bool Lowerer::load_matrix(const Instruction& in, Modifiers& m) {
  for (const std::string_view word : {"sync", "aligned", "shared", "shared::cta"}) m.take(word);
  if (!m.take("m8n8")) return unsupported(in);
  const std::size_t count = m.take("x4") ? 4 : m.take("x2") ? 2 : 1;
  m.take("x1");
  const bool transposed = m.take("trans");
  if (m.type() != Type::b16 || !operands(in, 2, 2)) return unsupported(in);
  Address at;
  if (!address(in.operands[1], AddressSpace::shared, false, at)) return false;
  Extra extra;
  if (!packed_registers(in.operands[0], count, true, extra.outs)) return false;
  const Reg from = make(8);
  alu({.op = AluOp::add, .type = Type::u64}, table_.integer, from, at.base,
      value(static_cast<std::uint64_t>(at.offset), 8));
  program.uses_warps = true;
  Op op;
  op.kind = InsKind::effect;
  op.effect = load_matrix_effect();
  op.a = from;
  op.imm = transposed ? 1 : 0;
  op.varying = true;
  op.extra = static_cast<std::uint32_t>(program.extras.size());
  program.extras.push_back(std::move(extra));
  emit(op);
  return true;
}

}  // namespace tensor_fusion::sim::ptx
