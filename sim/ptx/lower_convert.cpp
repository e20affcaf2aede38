// mov, cvt, cvta and isspacep.
#include "sim/ptx/lower.h"

namespace tensor_fusion::sim::ptx {
namespace {

bool is_pair(Type type) { return type == Type::f16x2 || type == Type::bf16x2; }
bool is_float8_pair(Type type) { return type == Type::e4m3x2 || type == Type::e5m2x2; }

}  // namespace

bool Lowerer::move_instruction(const Instruction& in, Modifiers& m) {
  if (m.types.size() != 1 || !operands(in, 2, 2)) return unsupported(in);
  const Type type = m.type();
  const Operand& d = in.operands[0];
  const Operand& a = in.operands[1];
  const int total = bytes_of(type);
  if (total > 8) return unsupported(in);
  if (d.kind == OperandKind::vector) {
    const std::size_t count = d.elements.size();
    const int width = count == 0 ? 0 : total / static_cast<int>(count);
    if (count < 2 || width * static_cast<int>(count) != total || width == 0)
      return fail(d, "vector does not fit the type of '" + std::string(in.opcode) + "'");
    const Reg source = use(a, unsigned_of(total));
    if (source == kNoReg) return false;
    for (std::size_t i = 0; i < count; ++i) {
      const Operand& element = d.elements[i];
      if (element.kind == OperandKind::symbol && element.symbol.kind == SymbolKind::sink) continue;
      const Reg target = def(element, unsigned_of(width));
      if (target == kNoReg || !alu({.op = AluOp::extract,
                                    .type = unsigned_of(width),
                                    .from = unsigned_of(total),
                                    .variant = static_cast<std::uint8_t>(i)},
                                   table_.logic, target, source))
        return false;
    }
    return true;
  }
  if (a.kind == OperandKind::vector) {
    std::size_t count = a.elements.size();
    int width = count == 0 ? 0 : total / static_cast<int>(count);
    if ((count != 2 && count != 4 && count != 8) || width * static_cast<int>(count) != total || width == 0) {
      return fail(a, "vector does not fit the type of '" + std::string(in.opcode) + "'");
    }
    Reg parts[8];
    for (std::size_t i = 0; i < count; ++i) {
      parts[i] = use(a.elements[i], unsigned_of(width));
      if (parts[i] == kNoReg) return false;
    }
    const Reg target = def(d, unsigned_of(total));
    if (target == kNoReg) return false;
    for (; count > 1; count /= 2, width *= 2) {
      for (std::size_t i = 0; i < count / 2; ++i) {
        const Reg joined = count == 2 ? target : make(width * 2);
        if (!alu({.op = AluOp::pack, .type = unsigned_of(width * 2), .from = unsigned_of(width)}, table_.logic, joined,
                 parts[2 * i], parts[2 * i + 1]))
          return false;
        parts[i] = joined;
      }
    }
    return true;
  }
  const Reg source = use(a, type);
  if (source == kNoReg) return false;
  const Reg target = def(d, type);
  if (target == kNoReg) return false;
  move(target, source);
  return true;
}

bool Lowerer::convert(const Instruction& in, Modifiers& m) {
  if (m.take("pack")) return unsupported(in);
  AluKey key;
  key.op = AluOp::cvt;
  key.rounding = m.take_rounding();
  key.ftz = m.take("ftz");
  key.sat = m.take("sat");
  key.relu = m.take("relu");
  const bool satfinite = m.take("satfinite");
  // The handlers of rare conversions are general and read from the instruction what to do.
  const auto how = [&] {
    return static_cast<std::int64_t>(key.rounding) | (key.ftz ? 0x100 : 0) | (key.sat ? 0x200 : 0) |
           (key.relu ? 0x400 : 0) | (satfinite ? 0x800 : 0);
  };
  if (m.types.size() != 2) return unsupported(in);
  key.type = m.type(0);
  key.from = m.type(1);
  if (key.type == Type::pred || key.from == Type::pred) return unsupported(in);
  const Operand& d = in.operands.empty() ? Operand{} : in.operands[0];
  if ((is_pair(key.type) || is_float8_pair(key.type)) && key.from == Type::f32) {  // d = {low: b, high: a}
    if (!operands(in, 3, 3)) return false;
    const Reg a = use(in.operands[1], Type::f32);
    const Reg b = use(in.operands[2], Type::f32);
    const Reg target = def(d, key.type);
    if (a == kNoReg || b == kNoReg || target == kNoReg) return false;
    if (is_float8_pair(key.type)) return satfinite && alu(key, table_.convert, target, a, b, kNoReg, how());
    key.type = key.type == Type::f16x2 ? Type::f16 : Type::bf16;
    const Reg high = make(2);
    const Reg low = make(2);
    return alu(key, table_.convert, high, a, kNoReg, kNoReg, how()) &&
           alu(key, table_.convert, low, b, kNoReg, kNoReg, how()) &&
           alu({.op = AluOp::pack, .type = Type::u32, .from = Type::u16}, table_.logic, target, low, high);
  }
  if (!operands(in, 2, 2)) return false;
  if (is_float8_pair(key.type) && !satfinite) return unsupported(in);
  const Reg a = use(in.operands[1], key.from);
  const Reg target = def(d, key.type);
  if (a == kNoReg || target == kNoReg) return false;
  if (key.type == Type::tf32) {
    if (key.from != Type::f32 ||
        (key.rounding != Rounding::rna && key.rounding != Rounding::rn && key.rounding != Rounding::rz))
      return unsupported(in);
    return alu(key, table_.convert, target, a, kNoReg, kNoReg, how());
  }
  const bool float_to = is_floating(key.type);
  const bool float_from = is_floating(key.from);
  if (!float_to && !float_from) {
    if (key.rounding != Rounding::none) return unsupported(in);
    if (!key.sat && bytes_of(key.type) == bytes_of(key.from)) {
      move(target, a);
      return true;
    }
    if (!key.sat && !is_signed(key.from)) key.type = unsigned_of(bytes_of(key.type));
  } else if (!float_to) {
    if (key.rounding == Rounding::none) key.rounding = Rounding::rzi;
    if (key.rounding <= Rounding::rp) return unsupported(in);
  } else if (!float_from || bytes_of(key.type) < bytes_of(key.from) ||
             (bytes_of(key.type) == 2 && key.type != key.from)) {
    if (key.rounding == Rounding::none) key.rounding = Rounding::rn;
    if (key.rounding > Rounding::rp) return unsupported(in);
  } else if (key.type == key.from) {
    if (key.rounding != Rounding::none && key.rounding <= Rounding::rp) return unsupported(in);
    if (key.rounding == Rounding::none && !key.ftz && !key.sat && !key.relu) {
      move(target, a);
      return true;
    }
  }
  return alu(key, table_.convert, target, a, kNoReg, kNoReg, how());
}

// A cluster is one block here: every address is in block 0, and block 0's is the address itself.
bool Lowerer::cluster_address(const Instruction& in, Modifiers& m) {
  m.take("shared::cluster");
  const bool maps = in.parts[0] == "mapa";
  if (m.types.size() != 1 || !operands(in, maps ? 3 : 2, maps ? 3 : 2)) return unsupported(in);
  const Reg a = maps ? use(in.operands[1], m.type()) : value(0, 4);
  const Reg d = def(in.operands[0], maps ? m.type() : Type::u32);
  if (a == kNoReg || d == kNoReg) return false;
  move(d, a);
  return true;
}

bool Lowerer::convert_address(const Instruction& in, Modifiers& m) {
  std::uint64_t window = 0;
  const bool to = m.take("to");
  bool known = false;
  constexpr std::pair<std::string_view, std::uint64_t> kSpaces[] = {{"global", 0},
                                                                    {"const", 0},
                                                                    {"shared", kSharedWindow},
                                                                    {"shared::cta", kSharedWindow},
                                                                    {"shared::cluster", kSharedWindow},
                                                                    {"local", kLocalWindow},
                                                                    {"param", kParamWindow},
                                                                    {"param::entry", kParamWindow}};
  for (const auto& [name, base] : kSpaces) {
    if (!known && m.take(name)) {
      window = base;
      known = true;
    }
  }
  if (!known || !operands(in, 2, 2)) return unsupported(in);
  if (in.parts[0] == "isspacep") {
    const Reg a = use(in.operands[1], Type::u64);
    const Reg p = def(in.operands[0], Type::pred);
    const Reg top = make(8);
    if (a == kNoReg || p == kNoReg) return false;
    return alu({.op = AluOp::shr, .type = Type::u64}, table_.logic, top, a, value(56, 4)) &&
           alu({.op = AluOp::compare, .type = Type::u64, .compare = Compare::eq}, table_.logic, p, top,
               value(window >> 56, 8));
  }
  if (m.types.size() != 1 || bytes_of(m.type()) != 8)
    return fail(in, "only 64-bit addresses are supported in '" + std::string(in.opcode) + "'");
  const Reg a = use(in.operands[1], Type::u64);
  const Reg d = def(in.operands[0], Type::u64);
  if (a == kNoReg || d == kNoReg) return false;
  if (window == 0) {
    move(d, a);
    return true;
  }
  return alu({.op = AluOp::add, .type = Type::u64}, table_.integer, d, a, value(to ? 0 - window : window, 8));
}

}  // namespace tensor_fusion::sim::ptx
