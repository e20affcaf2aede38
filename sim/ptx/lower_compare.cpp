// set, setp, selp and slct.
#include <optional>
#include <utility>

#include "sim/ptx/lower.h"

namespace tensor_fusion::sim::ptx {

bool Lowerer::compare(const Instruction& in, Modifiers& m) {
  const bool to_predicate = in.parts[0] == "setp";
  constexpr std::pair<std::string_view, Compare> kNames[] = {
      {"eq", Compare::eq},   {"ne", Compare::ne},   {"lt", Compare::lt},   {"le", Compare::le},   {"gt", Compare::gt},
      {"ge", Compare::ge},   {"equ", Compare::equ}, {"neu", Compare::neu}, {"ltu", Compare::ltu}, {"leu", Compare::leu},
      {"gtu", Compare::gtu}, {"geu", Compare::geu}, {"num", Compare::num}, {"nan", Compare::nan}};
  constexpr std::pair<std::string_view, Compare> kUnsigned[] = {
      {"lo", Compare::lt}, {"ls", Compare::le}, {"hi", Compare::gt}, {"hs", Compare::ge}};
  AluKey key;
  key.op = AluOp::compare;
  bool found = false;
  bool is_unsigned = false;
  for (const auto& [name, compare] : kNames) {
    if (!found && m.take(name)) {
      key.compare = compare;
      found = true;
    }
  }
  for (const auto& [name, compare] : kUnsigned) {
    if (!found && m.take(name)) {
      key.compare = compare;
      found = is_unsigned = true;
    }
  }
  if (!found) return unsupported(in);
  std::optional<AluOp> combine;
  if (m.take("and"))
    combine = AluOp::bit_and;
  else if (m.take("or"))
    combine = AluOp::bit_or;
  else if (m.take("xor"))
    combine = AluOp::bit_xor;
  key.ftz = m.take("ftz");
  if (m.types.size() != (to_predicate ? 1U : 2U)) return unsupported(in);
  const Type type = m.types.back();
  key.type = is_unsigned ? unsigned_of(bytes_of(type)) : type;
  if (type == Type::pred || bytes_of(type) < 2) return unsupported(in);
  if (!operands(in, combine ? 4 : 3, combine ? 4 : 3)) return false;
  if (!is_floating(type) && key.compare > Compare::ge) return unsupported(in);
  const Operand& target = in.operands[0];
  Reg a = use(in.operands[1], type);
  Reg b = use(in.operands[2], type);
  if (a == kNoReg || b == kNoReg) return false;
  const Reg c = combine ? use(in.operands[3], Type::pred) : kNoReg;
  if (combine && c == kNoReg) return false;

  const bool pair = type == Type::f16x2 || type == Type::bf16x2;
  const auto one = [&](Reg x, Reg y, Reg into) {
    AluKey k = key;
    AluFn (*table)(const AluKey&) = !is_floating(type)            ? table_.logic
                                    : bytes_of(type) == 2 || pair ? table_.half
                                                                  : table_.floating;
    if (pair) k.type = type == Type::f16x2 ? Type::f16 : Type::bf16;
    // gt and ge are lt and le the other way round.
    constexpr std::pair<Compare, Compare> kSwaps[] = {{Compare::gt, Compare::lt},
                                                      {Compare::ge, Compare::le},
                                                      {Compare::gtu, Compare::ltu},
                                                      {Compare::geu, Compare::leu}};
    for (const auto& [from, to] : kSwaps) {
      if (k.compare == from) {
        k.compare = to;
        std::swap(x, y);
        break;
      }
    }
    return alu(k, table, into, x, y);
  };
  const auto combined = [&](Reg raw, bool inverted) {
    Reg x = raw;
    if (inverted) {
      x = make(1);
      alu({.op = AluOp::bit_xor, .type = Type::pred}, table_.logic, x, raw, value(1, 1));
    }
    if (!combine) return x;
    const Reg y = make(1);
    alu({.op = *combine, .type = Type::pred}, table_.logic, y, x, c);
    return y;
  };

  if (pair) {
    if (!to_predicate || combine || target.second == kNoIndex) return unsupported(in);
    Reg halves[4];
    for (int i = 0; i < 4; ++i) {
      halves[i] = make(2);
      if (!alu(
              {.op = AluOp::extract, .type = Type::u16, .from = Type::u32, .variant = static_cast<std::uint8_t>(i & 1)},
              table_.logic, halves[i], i < 2 ? a : b))
        return false;
    }
    const Reg p = def(target, Type::pred);
    Operand second = target;
    second.symbol = {SymbolKind::reg, target.second};
    const Reg q = def(second, Type::pred);
    return p != kNoReg && q != kNoReg && one(halves[0], halves[2], p) && one(halves[1], halves[3], q);
  }
  if (to_predicate) {
    const Reg p = def(target, Type::pred);
    if (p == kNoReg) return false;
    if (!combine && target.second == kNoIndex) return one(a, b, p);
    const Reg raw = make(1);
    if (!one(a, b, raw)) return false;
    const Reg first = combined(raw, false);
    if (target.second == kNoIndex) {
      move(p, first);
      return true;
    }
    const Reg inverse = combined(raw, true);
    Operand second = target;
    second.symbol = {SymbolKind::reg, target.second};
    const Reg q = def(second, Type::pred);
    if (q == kNoReg) return false;
    move(p, first);
    move(q, inverse);
    return true;
  }
  const Type result = m.type();
  const Reg raw = make(1);
  const Reg d = def(target, result);
  if (d == kNoReg || !one(a, b, raw)) return false;
  const Reg truth = combined(raw, false);
  const Reg yes = result == Type::f32    ? value(0x3f800000, 4)
                  : result == Type::f16  ? value(0x3c00, 2)
                  : result == Type::bf16 ? value(0x3f80, 2)
                                         : value(~0ULL, bytes_of(result));
  return alu({.op = AluOp::select, .type = unsigned_of(bytes_of(result))}, table_.logic, d, yes,
             value(0, bytes_of(result)), truth);
}

bool Lowerer::select(const Instruction& in, Modifiers& m) {
  if (!operands(in, 4, 4)) return false;
  const bool selp = in.parts[0] == "selp";
  if (m.types.size() != (selp ? 1U : 2U)) return unsupported(in);
  const Type type = m.type();
  if (bytes_of(type) < 2 && type != Type::pred) return unsupported(in);
  const Reg a = use(in.operands[1], type);
  const Reg b = use(in.operands[2], type);
  if (a == kNoReg || b == kNoReg) return false;
  Reg p = kNoReg;
  if (selp) {
    p = use(in.operands[3], Type::pred);
  } else {
    m.take("ftz");
    const Type by = m.type(1);
    const Reg c = use(in.operands[3], by);
    p = make(1);
    if (c == kNoReg || (by != Type::s32 && by != Type::f32)) return unsupported(in);
    // c >= 0; -0.0 counts as zero, NaN as negative
    if (!alu({.op = AluOp::compare, .type = by, .compare = Compare::le},
             by == Type::s32 ? table_.logic : table_.floating, p, value(0, 4), c))
      return false;
  }
  const Reg d = def(in.operands[0], type);
  return p != kNoReg && d != kNoReg &&
         alu({.op = AluOp::select, .type = unsigned_of(bytes_of(type))}, table_.logic, d, a, b, p);
}

}  // namespace tensor_fusion::sim::ptx
