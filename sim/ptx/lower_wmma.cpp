// wmma.load, wmma.store and wmma.mma.
#include <algorithm>
#include <array>
#include <bit>

#include "sim/ptx/lower.h"
#include "sim/ptx/wmma.h"

namespace tensor_fusion::sim::ptx {
namespace {

struct Shape {
  std::string_view name;
  std::uint8_t m, n;
  std::uint16_t k;
};
constexpr Shape kShapes[] = {{"m16n16k16", 16, 16, 16}, {"m8n32k16", 8, 32, 16}, {"m32n8k16", 32, 8, 16},
                             {"m16n16k8", 16, 16, 8},   {"m8n8k4", 8, 8, 4},     {"m8n8k32", 8, 8, 32},
                             {"m8n8k128", 8, 8, 128}};

constexpr std::pair<std::string_view, WmmaElement> kElements[] = {
    {"f16", WmmaElement::f16}, {"bf16", WmmaElement::bf16}, {"tf32", WmmaElement::tf32}, {"f32", WmmaElement::f32},
    {"f64", WmmaElement::f64}, {"s8", WmmaElement::s8},     {"u8", WmmaElement::u8},     {"s4", WmmaElement::s4},
    {"u4", WmmaElement::u4},   {"b1", WmmaElement::b1},     {"s32", WmmaElement::s32}};

std::uint8_t pair_of(WmmaElement low, WmmaElement high) {
  return static_cast<std::uint8_t>(static_cast<unsigned>(low) | static_cast<unsigned>(high) << 4);
}

// The shape that goes with the factors' elements.
bool fits(const WmmaCode& code, WmmaElement factor) {
  switch (factor) {
    case WmmaElement::tf32:
      return code.m == 16 && code.k == 8;
    case WmmaElement::f64:
      return code.k == 4;
    case WmmaElement::s4:
    case WmmaElement::u4:
      return code.k == 32;
    case WmmaElement::b1:
      return code.k == 128;
    case WmmaElement::f32:
    case WmmaElement::s32:
      return false;  // sums only
    default:
      return code.k == 16;
  }
}

// What the factors of one kind are summed up in.
bool sums(WmmaElement factor, WmmaElement sum) {
  switch (factor) {
    case WmmaElement::f16:
      return sum == WmmaElement::f16 || sum == WmmaElement::f32;
    case WmmaElement::bf16:
    case WmmaElement::tf32:
      return sum == WmmaElement::f32;
    case WmmaElement::f64:
      return sum == WmmaElement::f64;
    default:
      return sum == WmmaElement::s32;
  }
}

// Where no factor is named: whether some that this shape has are summed up in it.
bool fits_sum(const WmmaCode& code, WmmaElement sum) {
  return std::ranges::any_of(kElements,
                             [&](const auto& known) { return fits(code, known.second) && sums(known.second, sum); });
}

int register_bytes(WmmaElement element) { return element == WmmaElement::f64 ? 8 : 4; }

}  // namespace

// Integers of mixed signs, of four bits and of one, and results that do not wrap.
bool Lowerer::integer_mma(const Instruction& in, Modifiers& m) {
  constexpr Shape kOfMma[] = {{"m8n8k16", 8, 8, 16},     {"m16n8k16", 16, 8, 16},  {"m16n8k32", 16, 8, 32},
                              {"m8n8k32", 8, 8, 32},     {"m16n8k64", 16, 8, 64},  {"m8n8k128", 8, 8, 128},
                              {"m16n8k128", 16, 8, 128}, {"m16n8k256", 16, 8, 256}};
  WmmaCode code;
  const Shape* shape = nullptr;
  std::vector<WmmaElement> elements;
  for (const std::string_view part : in.parts) {
    const auto* known = std::ranges::find(kOfMma, part, &Shape::name);
    if (known != std::end(kOfMma)) shape = known;
    for (const auto& [name, element] : kElements)
      if (part == name) elements.push_back(element);
  }
  if (shape == nullptr || elements.size() != 4 || elements[0] != WmmaElement::s32 || elements[3] != WmmaElement::s32)
    return unsupported(in);
  const std::size_t bits = bits_of(elements[1]), row_bits = shape->k * bits;
  if (bits > 8 || bits != bits_of(elements[2]) || (row_bits != 128 && (row_bits != 256 || shape->m != 16)))
    return unsupported(in);
  code.m = shape->m, code.n = shape->n, code.k = shape->k;
  code.elements_ab = pair_of(elements[1], elements[2]);
  code.elements_cd = pair_of(WmmaElement::s32, WmmaElement::s32);
  if (m.take("satfinite")) code.flags |= WmmaCode::kSaturates;
  if (m.take("and")) code.flags |= WmmaCode::kByAnd;
  for (const std::string_view word : {"sync", "aligned", "row", "col", "xor", "popc", "s4", "u4", "b1"})
    while (m.take(word)) {
    }
  m.take(shape->name);
  if (!operands(in, 4, 4)) return false;
  Extra extra;
  if (!packed_registers(in.operands[1], shape->m * row_bits / 1024, false, extra.ins) ||
      !packed_registers(in.operands[2], shape->n * row_bits / 1024, false, extra.ins) ||
      !packed_registers(in.operands[3], shape->m / 4U, false, extra.ins) ||
      !packed_registers(in.operands[0], shape->m / 4U, true, extra.outs))
    return false;
  program.uses_warps = true;
  Op op;
  op.kind = InsKind::effect;
  op.effect = integer_mma_effect();
  op.varying = true;
  op.imm = std::bit_cast<std::int64_t>(code);
  op.extra = static_cast<std::uint32_t>(program.extras.size());
  program.extras.push_back(std::move(extra));
  emit(op);
  return true;
}

bool Lowerer::wmma(const Instruction& in, Modifiers& m) {
  WmmaCode code;
  const Shape* shape = nullptr;
  std::vector<WmmaElement> elements;
  for (const std::string_view part : in.parts) {
    const auto* known = std::ranges::find(kShapes, part, &Shape::name);
    if (known != std::end(kShapes)) shape = known;
    for (const auto& [name, element] : kElements)
      if (part == name) elements.push_back(element);
  }
  if (shape == nullptr || in.parts.size() < 2) return unsupported(in);
  code.m = shape->m, code.n = shape->n, code.k = shape->k;
  const std::string_view action = in.parts[1];
  const bool by_and = m.take("and");
  for (const std::string_view word :
       {"load", "store", "mma", "sync", "aligned", "row", "rn", "rz", "rm", "rp", "popc", "xor", "s4", "u4", "b1"})
    while (m.take(word)) {
    }
  m.take(shape->name);
  program.uses_warps = true;
  Op op;
  op.kind = InsKind::effect;
  op.varying = true;
  Extra extra;
  const auto finish_op = [&] {
    op.imm = std::bit_cast<std::int64_t>(code);
    op.extra = static_cast<std::uint32_t>(program.extras.size());
    program.extras.push_back(std::move(extra));
    emit(op);
    return true;
  };
  if (action == "mma") {
    while (m.take("col")) {  // registers hold a matrix in one order, whatever order it had in memory
    }
    if (m.take("satfinite")) code.flags |= WmmaCode::kSaturates;
    if (by_and) code.flags |= WmmaCode::kByAnd;
    if (!operands(in, 4, 4)) return false;
    if (elements.size() == 2)  // of halves: the results' are named alone
      elements = {elements[0], WmmaElement::f16, WmmaElement::f16, elements[1]};
    if (elements.size() != 4 || elements[1] != elements[2] || !fits(code, elements[1]) ||
        !sums(elements[1], elements[0]) || !sums(elements[1], elements[3]))
      return unsupported(in);
    const int bytes = register_bytes(elements[1]);
    code.elements_cd = pair_of(elements[3], elements[0]);
    code.elements_ab = pair_of(elements[1], elements[2]);
    if (!packed_registers(in.operands[1], registers_of(code.a(), code.m, code.k, true), false, extra.ins, bytes) ||
        !packed_registers(in.operands[2], registers_of(code.b(), code.k, code.n, true), false, extra.ins, bytes) ||
        !packed_registers(in.operands[3], registers_of(code.c(), code.m, code.n, false), false, extra.ins, bytes) ||
        !packed_registers(in.operands[0], registers_of(code.d(), code.m, code.n, false), true, extra.outs, bytes))
      return false;
    op.effect = wmma_multiply_effect();
    return finish_op();
  }
  const bool loads = action == "load";
  if ((!loads && action != "store") || elements.size() != 1 || !operands(in, 2, 3)) return unsupported(in);
  const WmmaMatrix matrix = m.take("a") ? WmmaMatrix::a : m.take("b") ? WmmaMatrix::b : WmmaMatrix::c;
  m.take(loads ? "c" : "d");
  const bool is_factor = matrix != WmmaMatrix::c;
  if (is_factor ? !fits(code, elements[0]) : !fits_sum(code, elements[0])) return unsupported(in);
  code.elements_ab = pair_of(elements[0], elements[0]);
  code.elements_cd = code.elements_ab;
  if (m.take("col")) code.flags |= WmmaCode::kByColumns;
  AddressSpace space = AddressSpace::generic;
  bool param = false;
  memory_space(m, space, param);
  if (param) return unsupported(in);
  code.set_place(matrix, static_cast<unsigned>(space));
  Address at;
  if (!address(in.operands[loads ? 1 : 0], space, false, at)) return false;
  if (!packed_registers(in.operands[loads ? 0 : 1], registers_of(elements[0], code.rows(), code.columns(), is_factor),
                        loads, loads ? extra.outs : extra.ins, register_bytes(elements[0])))
    return false;
  op.a = make(8);
  alu({.op = AluOp::add, .type = Type::u64}, table_.integer, op.a, at.base,
      value(static_cast<std::uint64_t>(at.offset), 8));
  const bool by_columns = (code.flags & WmmaCode::kByColumns) != 0;
  op.b = in.operands.size() == 3 ? use(in.operands[2], Type::u32)
                                 : value(by_columns ? code.rows() : code.columns(), 4);  // side by side
  op.effect = loads ? wmma_load_effect() : wmma_store_effect();
  if (op.b == kNoReg) return false;
  return finish_op();
}

}  // namespace tensor_fusion::sim::ptx
