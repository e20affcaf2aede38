// Arithmetic, logic and shifts.
#include <algorithm>
#include <bit>

#include "sim/ptx/lower.h"

namespace tensor_fusion::sim::ptx {
namespace {

struct NamedOp {
  std::string_view name;
  AluOp op;
  std::size_t sources;
};

template <std::size_t N>
const NamedOp* find(const NamedOp (&list)[N], std::string_view name) {
  for (const NamedOp& entry : list) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

constexpr NamedOp kFloating[] = {
    {"add", AluOp::add, 2},     {"sub", AluOp::sub, 2},   {"mul", AluOp::mul_lo, 2},        {"fma", AluOp::fma, 3},
    {"mad", AluOp::fma, 3},     {"div", AluOp::div, 2},   {"rcp", AluOp::rcp, 1},           {"sqrt", AluOp::sqrt, 1},
    {"rsqrt", AluOp::rsqrt, 1}, {"ex2", AluOp::ex2, 1},   {"lg2", AluOp::lg2, 1},           {"sin", AluOp::sin, 1},
    {"cos", AluOp::cos, 1},     {"tanh", AluOp::tanh, 1}, {"abs", AluOp::abs, 1},           {"neg", AluOp::neg, 1},
    {"min", AluOp::min, 2},     {"max", AluOp::max, 2},   {"copysign", AluOp::copysign, 2}, {"testp", AluOp::testp, 1}};

constexpr NamedOp kInteger[] = {{"add", AluOp::add, 2}, {"sub", AluOp::sub, 2},     {"div", AluOp::div, 2},
                                {"rem", AluOp::rem, 2}, {"abs", AluOp::abs, 1},     {"neg", AluOp::neg, 1},
                                {"min", AluOp::min, 2}, {"max", AluOp::max, 2},     {"popc", AluOp::popc, 1},
                                {"clz", AluOp::clz, 1}, {"bfind", AluOp::bfind, 1}, {"brev", AluOp::brev, 1},
                                {"sad", AluOp::sad, 3}};

bool is_half(Type type) {
  return type == Type::f16 || type == Type::f16x2 || type == Type::bf16 || type == Type::bf16x2;
}

}  // namespace

bool Lowerer::simple(const Instruction& in, Modifiers& m, AluOp op, std::size_t sources) {
  AluKey key;
  key.op = op;
  key.type = m.type();
  return integer(in, m, key, sources);
}

bool Lowerer::arithmetic(const Instruction& in, Modifiers& m) {
  const std::string_view base = in.parts[0];
  if (base == "and" || base == "or" || base == "xor" || base == "not" || base == "cnot" || base == "lop3")
    return logic(in, m);
  if (base == "shl" || base == "shr" || base == "shf" || base == "prmt" || base == "bfe" || base == "bfi" ||
      base == "fns" || base == "dp4a" || base == "dp2a") {
    return shift(in, m);
  }
  if (base == "addc" || base == "subc" || base == "madc" || std::ranges::find(m.rest, "cc") != m.rest.end())
    return carry(in, m);
  if (base == "mul24" || base == "mad24") return multiply(in, m);
  const Type type = m.type();
  if (type == Type::none) return unsupported(in);
  if (is_floating(type)) {
    if (const NamedOp* op = find(kFloating, base)) return floating(in, m, op->op, op->sources);
    return unsupported(in);
  }
  if (base == "mul" || base == "mad") return multiply(in, m);
  const NamedOp* op = find(kInteger, base);
  if (op == nullptr) return unsupported(in);
  return simple(in, m, op->op, op->sources);
}

bool Lowerer::integer(const Instruction& in, Modifiers& m, AluKey key, std::size_t sources) {
  if (m.types.size() != 1 || !operands(in, sources + 1, sources + 1)) return unsupported(in);
  const Type type = m.type();
  const bool counts = key.op == AluOp::popc || key.op == AluOp::clz || key.op == AluOp::bfind;
  key.sat = m.take("sat");
  key.relu = m.take("relu");
  if (key.op == AluOp::bfind) key.variant = m.take("shiftamt") ? 1 : 0;
  if (bytes_of(type) < 2 || type == Type::pred) return unsupported(in);
  if (key.sat && type != Type::s32) return unsupported(in);
  Reg source[3] = {kNoReg, kNoReg, kNoReg};
  for (std::size_t i = 0; i < sources; ++i) {
    source[i] = use(in.operands[i + 1], type);
    if (source[i] == kNoReg) return false;
  }
  const Reg d = def(in.operands[0], counts ? Type::u32 : type);
  return d != kNoReg && alu(key, table_.integer, d, source[0], source[1], source[2]);
}

bool Lowerer::multiply(const Instruction& in, Modifiers& m) {
  const std::string_view base = in.parts[0];
  const bool adds = base == "mad" || base == "mad24";
  const bool is24 = base == "mul24" || base == "mad24";
  const bool wide = m.take("wide");
  const bool hi = m.take("hi");
  const bool lo = m.take("lo");
  const Type type = m.type();
  const int width = bytes_of(type);
  if (m.types.size() != 1 || (!wide && !hi && !lo) || width < 2 || !is_integer(type) || (wide && width > 4))
    return unsupported(in);
  if (is24 && (width != 4 || wide)) return unsupported(in);
  if (!operands(in, adds ? 4 : 3, adds ? 4 : 3)) return false;
  const Type result = !wide             ? type
                      : is_signed(type) ? (width == 2 ? Type::s32 : Type::s64)
                                        : (width == 2 ? Type::u32 : Type::u64);
  AluKey key;
  key.type = type;
  key.sat = m.take("sat");
  if (key.sat && !(hi && adds && type == Type::s32)) return unsupported(in);
  if (is24)
    key.op = adds ? (hi ? AluOp::mad24_hi : AluOp::mad24_lo) : (hi ? AluOp::mul24_hi : AluOp::mul24_lo);
  else if (adds)
    key.op = wide ? AluOp::mad_wide : hi ? AluOp::mad_hi : AluOp::mad_lo;
  else
    key.op = wide ? AluOp::mul_wide : hi ? AluOp::mul_hi : AluOp::mul_lo;
  Reg a = use(in.operands[1], type);
  Reg b = use(in.operands[2], type);
  const Reg c = adds ? use(in.operands[3], result) : kNoReg;
  const Reg d = def(in.operands[0], result);
  if (a == kNoReg || b == kNoReg || d == kNoReg || (adds && c == kNoReg)) return false;
  if (lo && !is24) {  // by a power of two: a shift
    if (program.regs[a].kind == RegClass::value) std::swap(a, b);
    const RegInfo& factor = program.regs[b];
    if (factor.kind == RegClass::value && std::has_single_bit(factor.value)) {
      key.op = AluOp::shl_add;
      key.type = unsigned_of(width);
      return alu(key, table_.integer, d, a, adds ? c : value(0, width), kNoReg, std::countr_zero(factor.value));
    }
  }
  return alu(key, table_.integer, d, a, b, c);
}

bool Lowerer::carry(const Instruction& in, Modifiers& m) {
  const std::string_view base = in.parts[0];
  const bool sets = m.take("cc");
  const bool reads = base.back() == 'c' && base != "cc" && (base == "addc" || base == "subc" || base == "madc");
  const bool subtracts = base.starts_with("sub");
  const bool multiplies = base.starts_with("mad");
  const bool hi = m.take("hi");
  m.take("lo");
  const Type type = m.type();
  if (m.types.size() != 1 || !is_integer(type) || bytes_of(type) < 4) return unsupported(in);
  if (!operands(in, multiplies ? 4 : 3, multiplies ? 4 : 3)) return false;
  if (carry_ == kNoReg) carry_ = make(4, false);
  Reg a = use(in.operands[1], type);
  Reg b = use(in.operands[2], type);
  if (a == kNoReg || b == kNoReg) return false;
  if (multiplies) {
    const Reg c = use(in.operands[3], type);
    const Reg product = make(bytes_of(type));
    if (c == kNoReg || !alu({.op = hi ? AluOp::mul_hi : AluOp::mul_lo, .type = type}, table_.integer, product, a, b))
      return false;
    a = product;
    b = c;
  }
  const Reg d = def(in.operands[0], type);
  const Reg in_carry = reads ? carry_ : value(0, 4);
  const Type plain = unsigned_of(bytes_of(type));
  const Reg sum = make(bytes_of(type));
  if (!alu({.op = subtracts ? AluOp::sub_borrow : AluOp::add_carry, .type = plain}, table_.integer, sum, a, b,
           in_carry))
    return false;
  if (sets && !alu({.op = subtracts ? AluOp::borrow_out : AluOp::carry_out, .type = plain}, table_.integer, carry_, a,
                   b, in_carry))
    return false;
  move(d, sum);
  return d != kNoReg;
}

bool Lowerer::logic(const Instruction& in, Modifiers& m) {
  const std::string_view base = in.parts[0];
  const Type type = m.type();
  if (m.types.size() != 1) return unsupported(in);
  AluKey key;
  key.type = type;
  std::size_t sources = 2;
  std::int64_t imm = 0;
  if (base == "and")
    key.op = AluOp::bit_and;
  else if (base == "or")
    key.op = AluOp::bit_or;
  else if (base == "xor")
    key.op = AluOp::bit_xor;
  else if (base == "lop3") {
    key.op = AluOp::lop3;
    sources = 3;
  } else {
    key.op = base == "not" ? AluOp::bit_not : AluOp::cnot;
    sources = 1;
  }
  if (base == "lop3") {
    if (!operands(in, 5, 5)) return false;
    if (in.operands[4].kind != OperandKind::integer || in.operands[4].bits > 255)
      return fail(in.operands[4], "lop3 needs a table from 0 to 255");
    imm = static_cast<std::int64_t>(in.operands[4].bits);
  } else if (!operands(in, sources + 1, sources + 1)) {
    return false;
  }
  Reg source[3] = {kNoReg, kNoReg, kNoReg};
  for (std::size_t i = 0; i < sources; ++i) {
    source[i] = use(in.operands[i + 1], type);
    if (source[i] == kNoReg) return false;
  }
  const Reg d = def(in.operands[0], type);
  if (d == kNoReg) return false;
  if (type == Type::pred && base == "not") {
    key.op = AluOp::bit_xor;
    source[1] = value(1, 1);
  }
  key.type = type == Type::pred ? Type::pred : unsigned_of(bytes_of(type));
  return alu(key, table_.logic, d, source[0], source[1], source[2], imm);
}

bool Lowerer::shift(const Instruction& in, Modifiers& m) {
  const std::string_view base = in.parts[0];
  const Type type = m.type();
  AluKey key;
  key.type = type;
  if (base == "shl" || base == "shr") {
    if (m.types.size() != 1 || bytes_of(type) < 2 || !operands(in, 3, 3)) return unsupported(in);
    key.op = base == "shl" ? AluOp::shl : AluOp::shr;
    const Reg a = use(in.operands[1], type);
    const Reg b = use(in.operands[2], Type::u32);
    const Reg d = def(in.operands[0], type);
    if (a == kNoReg || b == kNoReg || d == kNoReg) return false;
    return alu(key, table_.logic, d, a, b);
  }
  if (base == "bfi") {
    if (m.types.size() != 1 || !operands(in, 5, 5)) return unsupported(in);
    const Reg fields = make(4);
    const Reg position = use(in.operands[3], Type::u32);
    const Reg length = use(in.operands[4], Type::u32);
    const Reg a = use(in.operands[1], type);
    const Reg b = use(in.operands[2], type);
    const Reg d = def(in.operands[0], type);
    if (a == kNoReg || b == kNoReg || d == kNoReg || position == kNoReg || length == kNoReg) return false;
    key.op = AluOp::bfi;
    return alu({.op = AluOp::fields, .type = Type::u32}, table_.integer, fields, position, length) &&
           alu(key, table_.integer, d, a, b, fields);
  }
  if (!operands(in, 4, 4)) return false;
  Type types[3] = {type, Type::u32, Type::u32};
  Type result = type;
  AluFn (*table)(const AluKey&) = table_.integer;
  if (base == "bfe") {
    key.op = AluOp::bfe;
  } else if (base == "fns") {
    key.op = AluOp::fns;
    types[2] = Type::s32;
  } else if (base == "shf") {
    key.op = m.take("l") ? AluOp::shf_l : AluOp::shf_r;
    m.take("r");
    key.variant = m.take("wrap") ? 1 : 0;
    m.take("clamp");
    if (type != Type::b32) return unsupported(in);
  } else if (base == "prmt") {
    key.op = AluOp::prmt;
    constexpr std::string_view kModes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
    for (std::uint8_t i = 0; i < 6; ++i) {
      if (m.take(kModes[i])) key.variant = static_cast<std::uint8_t>(i + 1);
    }
    if (type != Type::b32) return unsupported(in);
  } else {  // dp4a.a.b, dp2a.lo.a.b
    if (m.types.size() != 2) return unsupported(in);
    key.op = base == "dp4a" ? AluOp::dp4a : AluOp::dp2a;
    key.from = m.type(1);
    if (base == "dp2a") {
      key.variant = m.take("hi") ? 1 : 0;
      m.take("lo");
    }
    result = is_signed(key.type) || is_signed(key.from) ? Type::s32 : Type::u32;
  }
  Reg source[3];
  for (std::size_t i = 0; i < 3; ++i) {
    source[i] = use(in.operands[i + 1], types[i]);
    if (source[i] == kNoReg) return false;
  }
  const Reg d = def(in.operands[0], result);
  return d != kNoReg && alu(key, table, d, source[0], source[1], source[2]);
}

bool Lowerer::floating(const Instruction& in, Modifiers& m, AluOp op, std::size_t sources) {
  AluKey key;
  key.op = op;
  key.type = m.type();
  if (m.types.size() != 1) return unsupported(in);
  key.rounding = m.take_rounding();
  key.ftz = m.take("ftz");
  key.sat = m.take("sat");
  key.nan = m.take("NaN");
  key.relu = m.take("relu");
  const bool approx = m.take("approx") || m.take("full");
  m.take("noftz");
  if (op == AluOp::min || op == AluOp::max) {
    if (m.take("xorsign")) {
      if (!m.take("abs")) return unsupported(in);
      key.variant = 1;
    }
    // Three-input forms of newer targets fall out as a mismatch of arguments.
  }
  if (key.rounding > Rounding::rp) return unsupported(in);
  Type result = key.type;
  if (op == AluOp::testp) {
    constexpr std::string_view kTests[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
    bool found = false;
    for (std::uint8_t i = 0; i < 6 && !found; ++i) {
      found = m.take(kTests[i]);
      key.variant = i;
    }
    if (!found) return unsupported(in);
    result = Type::pred;
  }
  if (!operands(in, sources + 1, sources + 1)) return false;
  Reg source[3] = {kNoReg, kNoReg, kNoReg};
  for (std::size_t i = 0; i < sources; ++i) {
    source[i] = use(in.operands[i + 1], key.type);
    if (source[i] == kNoReg) return false;
  }
  const Reg d = def(in.operands[0], result);
  if (d == kNoReg) return false;
  if (op == AluOp::copysign) std::swap(source[0], source[1]);  // copysign.f32 d, a, b: the sign of a on b
  const bool is_math = op == AluOp::rsqrt || op == AluOp::ex2 || op == AluOp::lg2 || op == AluOp::sin ||
                       op == AluOp::cos || op == AluOp::tanh;
  if (!approx && key.rounding == Rounding::none && (op == AluOp::div || op == AluOp::rcp || op == AluOp::sqrt) &&
      key.type == Type::f64) {
    return unsupported(in);
  }
  if (is_half(key.type)) {
    if (key.rounding > Rounding::rn) return unsupported(in);
    return alu(key, table_.half, d, source[0], source[1], source[2]);
  }
  return alu(key, is_math ? table_.math : table_.floating, d, source[0], source[1], source[2]);
}

}  // namespace tensor_fusion::sim::ptx
