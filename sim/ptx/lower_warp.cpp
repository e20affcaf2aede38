// Instructions in which lanes of a warp see each other: shuffles, votes, matrix multiplication.
#include <algorithm>
#include <array>

#include "sim/ptx/lower.h"

namespace tensor_fusion::sim::ptx {

bool Lowerer::warp(const Instruction& in, Modifiers& m) {
  const std::string_view base = in.parts[0];
  program.uses_warps = true;
  const bool sync = m.take("sync");
  Op op;
  op.kind = InsKind::effect;
  op.varying = true;
  const auto second = [&](Extra& extra) {
    const Operand& d = in.operands[0];
    if (d.second == kNoIndex) return true;
    Operand p = d;
    p.symbol = {SymbolKind::reg, d.second};
    const Reg reg = def(p, Type::pred);
    extra.outs.push_back(reg);
    return reg != kNoReg;
  };
  const auto attach = [&](Extra extra) {
    if (extra.outs.empty() && extra.ins.empty()) return;
    op.extra = static_cast<std::uint32_t>(program.extras.size());
    program.extras.push_back(std::move(extra));
  };
  if (base == "activemask") {
    if (!operands(in, 1, 1)) return false;
    op.effect = active_mask_effect();
    op.d = def(in.operands[0], Type::u32);
  } else if (base == "shfl") {
    constexpr std::array<std::pair<std::string_view, Shuffle>, 4> kModes{
        {{"up", Shuffle::up}, {"down", Shuffle::down}, {"bfly", Shuffle::bfly}, {"idx", Shuffle::idx}}};
    bool found = false;
    for (const auto& [name, mode] : kModes) {
      if (!found && m.take(name)) {
        op.effect = shuffle_effect(mode);
        found = true;
      }
    }
    if (!found || m.types.size() != 1 || bytes_of(m.type()) != 4 || !operands(in, sync ? 5 : 4, sync ? 5 : 4))
      return unsupported(in);
    op.a = use(in.operands[1], m.type());
    op.b = use(in.operands[2], Type::u32);
    op.c = use(in.operands[3], Type::u32);
    op.d = def(in.operands[0], m.type());
    Extra extra;
    if (op.a == kNoReg || op.b == kNoReg || op.c == kNoReg || !second(extra)) return false;
    attach(std::move(extra));
  } else if (base == "vote") {
    constexpr std::array<std::pair<std::string_view, Vote>, 4> kModes{
        {{"all", Vote::all}, {"any", Vote::any}, {"uni", Vote::uni}, {"ballot", Vote::ballot}}};
    Vote vote = Vote::all;
    bool found = false;
    for (const auto& [name, mode] : kModes) {
      if (!found && m.take(name)) {
        vote = mode;
        found = true;
      }
    }
    if (!found || !operands(in, sync ? 3 : 2, sync ? 3 : 2)) return unsupported(in);
    op.effect = vote_effect(vote);
    op.a = use(in.operands[1], Type::pred);
    op.d = def(in.operands[0], vote == Vote::ballot ? Type::u32 : Type::pred);
    if (op.a == kNoReg) return false;
  } else if (base == "match") {
    const bool all = m.take("all");
    m.take("any");
    if (m.types.size() != 1 || !operands(in, 3, 3)) return unsupported(in);
    op.effect = match_effect(all, bytes_of(m.type()));
    op.a = use(in.operands[1], m.type());
    op.d = def(in.operands[0], Type::u32);
    Extra extra;
    if (op.effect == nullptr || op.a == kNoReg || !second(extra)) return false;
    attach(std::move(extra));
  } else if (base == "redux") {
    const bool is_unsigned = m.type() == Type::u32;
    Redux redux = Redux::add;
    if (m.take("add"))
      redux = Redux::add;
    else if (m.take("min"))
      redux = is_unsigned ? Redux::umin : Redux::min;
    else if (m.take("max"))
      redux = is_unsigned ? Redux::umax : Redux::max;
    else if (m.take("and"))
      redux = Redux::bit_and;
    else if (m.take("or"))
      redux = Redux::bit_or;
    else if (m.take("xor"))
      redux = Redux::bit_xor;
    else
      return unsupported(in);
    if (m.types.size() != 1 || bytes_of(m.type()) != 4 || is_floating(m.type()) || !operands(in, 3, 3))
      return unsupported(in);
    op.effect = redux_effect(redux);
    op.a = use(in.operands[1], m.type());
    op.d = def(in.operands[0], m.type());
    if (op.a == kNoReg) return false;
  } else {  // elect
    if (!operands(in, 2, 2)) return false;
    op.effect = elect_effect();
    op.d = def(in.operands[0], Type::u32);
    Extra extra;
    if (!second(extra)) return false;
    attach(std::move(extra));
  }
  if (op.d == kNoReg) return false;
  emit(op);
  return true;
}

bool Lowerer::packed_registers(const Operand& operand, std::size_t count, bool out, std::vector<Reg>& regs, int bytes) {
  const auto one = [&](const Operand& element) {
    if (element.kind != OperandKind::symbol || element.symbol.kind != SymbolKind::reg)
      return fail(element, "a register is expected");
    if (bytes_of(function_->registers[element.symbol.index]) != bytes)  // an effect writes as many, whatever is there
      return fail(element, bytes == 8 ? "a 64-bit register is expected" : "a 32-bit register is expected");
    const Type type = bytes == 8 ? Type::b64 : Type::b32;
    const Reg reg = out ? def(element, type) : use(element, type);
    regs.push_back(reg);
    return reg != kNoReg;
  };
  if (operand.kind != OperandKind::vector)
    return count == 1 ? one(operand) : fail(operand, "a vector of registers is expected");
  if (operand.elements.size() != count)
    return fail(operand, "Arguments mismatch for instruction '" + std::string(in_->parts[0]) + "'");
  for (const Operand& element : operand.elements) {
    if (!one(element)) return false;
  }
  return true;
}

bool Lowerer::mma(const Instruction& in, Modifiers& m) {
  struct Shape {
    std::string_view name;
    Type d, ab;
    MmaKind kind;
    std::size_t d_count, a_count, b_count;
  };
  constexpr Shape kShapes[] = {
      {"m16n8k8", Type::f16, Type::f16, MmaKind::f16_f16_k8, 2, 2, 1},
      {"m16n8k16", Type::f16, Type::f16, MmaKind::f16_f16_k16, 2, 4, 2},
      {"m16n8k8", Type::f32, Type::f16, MmaKind::f32_f16_k8, 4, 2, 1},
      {"m16n8k16", Type::f32, Type::f16, MmaKind::f32_f16_k16, 4, 4, 2},
      {"m16n8k8", Type::f32, Type::bf16, MmaKind::f32_bf16_k8, 4, 2, 1},
      {"m16n8k16", Type::f32, Type::bf16, MmaKind::f32_bf16_k16, 4, 4, 2},
      {"m16n8k4", Type::f32, Type::tf32, MmaKind::f32_tf32_k4, 4, 2, 1},
      {"m16n8k8", Type::f32, Type::tf32, MmaKind::f32_tf32_k8, 4, 4, 2},
      {"m16n8k16", Type::s32, Type::s8, MmaKind::s32_s8_k16, 4, 2, 1},
      {"m16n8k32", Type::s32, Type::s8, MmaKind::s32_s8_k32, 4, 4, 2},
      {"m16n8k16", Type::s32, Type::u8, MmaKind::s32_u8_k16, 4, 2, 1},
      {"m16n8k32", Type::s32, Type::u8, MmaKind::s32_u8_k32, 4, 4, 2},
      {"m8n8k4", Type::f64, Type::f64, MmaKind::f64_k4, 2, 1, 1},
  };
  const auto has = [&](std::string_view word) { return std::ranges::find(in.parts, word) != in.parts.end(); };
  if (has("satfinite") || has("s4") || has("u4") || has("b1") || (has("s8") && has("u8")) || has("m8n8k16"))
    return integer_mma(in, m);
  m.take("sync");
  m.take("aligned");
  if (!m.take("row") || !m.take("col") || m.types.size() != 4 || !operands(in, 4, 4)) return unsupported(in);
  if (m.type(1) != m.type(2) || m.type(0) != m.type(3)) return unsupported(in);
  for (const Shape& shape : kShapes) {
    if (shape.d != m.type(0) || shape.ab != m.type(1) || !m.take(shape.name)) continue;
    Extra extra;
    const int bytes = shape.d == Type::f64 ? 8 : 4;
    if (!packed_registers(in.operands[1], shape.a_count, false, extra.ins, bytes) ||
        !packed_registers(in.operands[2], shape.b_count, false, extra.ins, bytes) ||
        !packed_registers(in.operands[3], shape.d_count, false, extra.ins, bytes) ||
        !packed_registers(in.operands[0], shape.d_count, true, extra.outs, bytes)) {
      return false;
    }
    program.uses_warps = true;
    Op op;
    op.kind = InsKind::effect;
    op.effect = mma_effect(shape.kind);
    op.varying = true;
    op.extra = static_cast<std::uint32_t>(program.extras.size());
    program.extras.push_back(std::move(extra));
    emit(op);
    return true;
  }
  return unsupported(in);
}

}  // namespace tensor_fusion::sim::ptx
