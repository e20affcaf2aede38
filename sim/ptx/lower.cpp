#include "sim/ptx/lower.h"

#include <algorithm>
#include <bit>

namespace tensor_fusion::sim::ptx {
namespace {

std::uint64_t truncated(std::uint64_t bits, int width) {
  return width >= 8 ? bits : bits & ((std::uint64_t{1} << (width * 8)) - 1);
}

bool is_launch_constant(Special special) {
  switch (special) {
    case Special::ntid_x:
    case Special::ntid_y:
    case Special::ntid_z:
    case Special::nctaid_x:
    case Special::nctaid_y:
    case Special::nctaid_z:
    case Special::nwarpid:
    case Special::nsmid:
    case Special::dynamic_smem_size:
    case Special::total_smem_size:
    case Special::cluster_nctaid:
    case Special::gridid:
    case Special::zero:
      return true;
    default:
      return false;
  }
}

bool changes_while_running(Special special) {
  switch (special) {
    case Special::clock:
    case Special::clock_hi:
    case Special::clock64:
    case Special::globaltimer:
    case Special::globaltimer_lo:
    case Special::globaltimer_hi:
      return true;
    default:
      return false;
  }
}

}  // namespace

Modifiers::Modifiers(const Instruction& instruction) {
  for (std::size_t i = 1; i < instruction.parts.size(); ++i) {
    if (const auto type = type_named(instruction.parts[i])) {
      types.push_back(*type);
    } else {
      rest.push_back(instruction.parts[i]);
    }
  }
}

bool Modifiers::take(std::string_view word) {
  const auto found = std::find(rest.begin(), rest.end(), word);
  if (found == rest.end()) return false;
  rest.erase(found);
  return true;
}

Rounding Modifiers::take_rounding() {
  constexpr std::pair<std::string_view, Rounding> kNames[] = {
      {"rn", Rounding::rn},   {"rz", Rounding::rz},   {"rm", Rounding::rm},
      {"rp", Rounding::rp},   {"rni", Rounding::rni}, {"rzi", Rounding::rzi},
      {"rmi", Rounding::rmi}, {"rpi", Rounding::rpi}, {"rna", Rounding::rna}};
  for (const auto& [name, rounding] : kNames) {
    if (take(name)) return rounding;
  }
  return Rounding::none;
}

Lowerer::Lowerer(const Syntax& syntax, std::uint32_t kernel, const AluTable& table)
    : syntax_(syntax), kernel_(kernel), table_(table) {}

bool Lowerer::fail(const Instruction& in, std::string message) {
  if (error.message.empty()) error = {in.line, in.column, std::move(message)};
  return false;
}

bool Lowerer::fail(const Operand& operand, std::string message) {
  if (error.message.empty()) error = {operand.line, operand.column, std::move(message)};
  return false;
}

bool Lowerer::unsupported(const Instruction& in) {
  return fail(in, "unsupported instruction '" + std::string(in.opcode) + "'");
}

bool Lowerer::leftover(const Instruction& in, const Modifiers& m) {
  if (m.rest.empty()) return true;
  return fail(in,
              "unsupported modifier '." + std::string(m.rest[0]) + "' of instruction '" + std::string(in.opcode) + "'");
}

bool Lowerer::operands(const Instruction& in, std::size_t least, std::size_t most) {
  if (in.operands.size() >= least && in.operands.size() <= most) return true;
  return fail(in, "Arguments mismatch for instruction '" + std::string(in.parts[0]) + "'");
}

// ---- registers

Reg Lowerer::make(int width, bool temporary) {
  RegInfo info;
  info.width = static_cast<std::uint8_t>(width);
  info.temporary = temporary;
  info.owner = function_index_;
  program.regs.push_back(info);
  return static_cast<Reg>(program.regs.size() - 1);
}

Reg Lowerer::value(std::uint64_t bits, int width) {
  bits = truncated(bits, width);
  auto& known = values_[std::countr_zero(static_cast<unsigned>(width))];
  const auto [found, fresh] = known.try_emplace(bits, 0);
  if (fresh) {
    found->second = make(width, false);
    program.regs.back().kind = RegClass::value;
    program.regs.back().value = bits;
  }
  return found->second;
}

Reg Lowerer::global_address(std::uint32_t index, std::int64_t offset) {
  const std::uint64_t key =
      (std::uint64_t{1} << 60) | (std::uint64_t{index} << 36) | (static_cast<std::uint64_t>(offset) & 0xfffffffffULL);
  const auto [found, fresh] = other_constants_.try_emplace(key, 0);
  if (fresh) {
    found->second = make(8, false);
    program.regs.back().kind = RegClass::global;
    program.regs.back().index = index;
    program.regs.back().value = static_cast<std::uint64_t>(offset);
  }
  return found->second;
}

Reg Lowerer::launch_parameter(std::size_t offset, int width) {
  const std::uint64_t key = (std::uint64_t{2} << 60) | (std::uint64_t{offset} << 8) | static_cast<std::uint64_t>(width);
  const auto [found, fresh] = other_constants_.try_emplace(key, 0);
  if (fresh) {
    found->second = make(width, false);
    program.regs.back().kind = RegClass::parameter;
    program.regs.back().value = offset;
  }
  return found->second;
}

Reg Lowerer::special(std::uint32_t number) {
  const auto which = static_cast<Special>(number);
  if (changes_while_running(which)) {
    const bool wide = which == Special::clock64 || which == Special::globaltimer;
    const Reg d = make(wide ? 8 : 4);
    effect(special_effect(), d, kNoReg, kNoReg, kNoReg, static_cast<std::int64_t>(number)).varying = true;
    return d;
  }
  if (which == Special::laneid || (which >= Special::lanemask_eq && which <= Special::lanemask_gt))
    program.uses_warps = true;
  const std::uint64_t key = (std::uint64_t{3} << 60) | number;
  const auto [found, fresh] = other_constants_.try_emplace(key, 0);
  if (fresh) {
    found->second = make(4, false);
    program.regs.back().kind = is_launch_constant(which) ? RegClass::launch : RegClass::input;
    program.regs.back().index = number;
  }
  return found->second;
}

Reg Lowerer::frame_base() {
  if (function_->is_kernel) return value(0, 8);
  return frame_base_;
}

Reg Lowerer::mapped(std::uint32_t ptx_register) {
  if (alias_[ptx_register] != kNoReg) return alias_[ptx_register];
  Reg& reg = mapped_[ptx_register];
  if (reg == kNoReg) reg = make(bytes_of(function_->registers[ptx_register]), false);
  return reg;
}

Reg Lowerer::resize(Reg from, int width, bool sign) {
  const int have = program.regs[from].width;
  if (have == width) return from;
  if (program.regs[from].kind == RegClass::value) {
    std::uint64_t bits = program.regs[from].value;
    if (sign && have < width && (bits >> (have * 8 - 1)) != 0) bits |= ~((std::uint64_t{1} << (have * 8)) - 1);
    return value(bits, width);
  }
  const Reg d = make(width);
  AluKey key;
  key.op = AluOp::cvt;
  key.type = unsigned_of(width);
  key.from = unsigned_of(have);
  if (sign && have < width) {
    key.from = have == 1 ? Type::s8 : have == 2 ? Type::s16 : Type::s32;
    key.type = width == 2 ? Type::s16 : width == 4 ? Type::s32 : Type::s64;
  }
  alu(key, table_.convert, d, from);
  return d;
}

Reg Lowerer::immediate(const Operand& operand, Type type) {
  std::uint64_t bits = operand.bits;
  if (operand.kind == OperandKind::float32) {
    if (type == Type::f64 || bytes_of(type) == 8) {
      bits = std::bit_cast<std::uint64_t>(static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits))));
    }
  } else if (operand.kind == OperandKind::float64) {
    if (type == Type::f32 || type == Type::b32) {
      bits = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
    }
  } else if (type == Type::f32) {
    bits = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int64_t>(bits)));
  } else if (type == Type::f64) {
    bits = std::bit_cast<std::uint64_t>(static_cast<double>(static_cast<std::int64_t>(bits)));
  } else if (type == Type::pred) {
    bits = bits != 0 ? 1 : 0;
  }
  return value(bits, bytes_of(type));
}

Reg Lowerer::use_symbol(const Operand& operand, Type type) {
  const auto offset = static_cast<std::uint64_t>(operand.offset);
  const int width = bytes_of(type);
  switch (operand.symbol.kind) {
    case SymbolKind::special:
      return resize(special(operand.symbol.index), width, false);
    case SymbolKind::global:
      return resize(global_address(operand.symbol.index, operand.offset), width, false);
    case SymbolKind::function:
      return value(function_address(operand.symbol.index) + offset, width);
    case SymbolKind::variable: {
      const Variable& variable = syntax_.variables[operand.symbol.index];
      const std::uint64_t at = variable_offset_[operand.symbol.index] + offset;
      if (variable.space == Space::shared) {
        if (variable.dynamic) program.uses_dynamic_shared = true;
        return value(at, width);
      }
      if (function_->is_kernel) return value(at, width);
      const Reg d = make(8);
      alu({.op = AluOp::add, .type = Type::u64}, table_.integer, d, frame_base(), value(at, 8));
      return resize(d, width, false);
    }
    case SymbolKind::parameter:
    case SymbolKind::result: {
      if (function_->is_kernel) {
        return value(function_->prototype.parameters[operand.symbol.index].offset + offset, width);
      }
      const Layout& layout = layouts_[function_index_];
      const std::size_t in_frame = operand.symbol.kind == SymbolKind::parameter
                                       ? layout.parameters[operand.symbol.index]
                                       : layout.results[operand.symbol.index];
      const Reg d = make(8);
      alu({.op = AluOp::add, .type = Type::u64}, table_.integer, d, frame_base(), value(in_frame + offset, 8));
      return resize(d, width, false);
    }
    default:
      break;
  }
  fail(operand, "operand '" + std::string(operand.text.substr(0, 60)) + "' cannot be used here");
  return kNoReg;
}

Reg Lowerer::use(const Operand& operand, Type type) {
  const int width = bytes_of(type);
  Reg reg = kNoReg;
  switch (operand.kind) {
    case OperandKind::integer:
    case OperandKind::float32:
    case OperandKind::float64:
      return immediate(operand, type);
    case OperandKind::symbol:
      if (operand.symbol.kind != SymbolKind::reg) return use_symbol(operand, type);
      if ((function_->registers[operand.symbol.index] == Type::pred) != (type == Type::pred)) {
        fail(operand, "Arguments mismatch for instruction '" + std::string(in_->parts[0]) + "'");
        return kNoReg;
      }
      reg = mapped(operand.symbol.index);
      if (type != Type::pred) {
        const int have = program.regs[reg].width;
        if (have < width) {
          fail(operand, "Arguments mismatch for instruction '" + std::string(in_->parts[0]) + "'");
          return kNoReg;
        }
        return resize(reg, width, false);
      }
      if (operand.inverted) {
        const Reg d = make(1);
        alu({.op = AluOp::bit_xor, .type = Type::pred}, table_.logic, d, reg, value(1, 1));
        return d;
      }
      return reg;
    default:
      break;
  }
  fail(operand, "Arguments mismatch for instruction '" + std::string(in_->parts[0]) + "'");
  return kNoReg;
}

Reg Lowerer::def(const Operand& operand, Type type) {
  const int width = bytes_of(type);
  if (operand.kind == OperandKind::symbol && operand.symbol.kind == SymbolKind::sink) return make(width);
  if (operand.kind != OperandKind::symbol || operand.symbol.kind != SymbolKind::reg) {
    fail(operand, "a register is expected as destination of '" + std::string(in_->opcode) + "'");
    return kNoReg;
  }
  const Type declared = function_->registers[operand.symbol.index];
  if ((declared == Type::pred) != (type == Type::pred) || bytes_of(declared) < width) {
    fail(operand, "Arguments mismatch for instruction '" + std::string(in_->parts[0]) + "'");
    return kNoReg;
  }
  const Reg target = mapped(operand.symbol.index);
  if (program.regs[target].width == width) return target;
  const Reg temporary = make(width);
  pending_.push_back({temporary, target, is_signed(type)});
  return temporary;
}

// ---- emission

Op& Lowerer::emit(Op op) {
  op.line = in_ != nullptr ? in_->line : 0;
  const bool final = op.kind != InsKind::alu || op.d == kNoReg || !program.regs[op.d].temporary;
  if (guard_ != kNoReg && final) {
    op.guard = guard_;
    op.guard_inverted = guard_inverted_;
  }
  program.ops.push_back(op);
  return program.ops.back();
}

bool Lowerer::alu(const AluKey& key, AluFn (*table)(const AluKey&), Reg d, Reg a, Reg b, Reg c, std::int64_t imm) {
  Op op;
  op.kind = InsKind::alu;
  op.alu = table(key);
  op.d = d;
  op.a = a;
  op.b = b;
  op.c = c;
  op.imm = imm;
  if (op.alu == nullptr) return in_ != nullptr && unsupported(*in_);
  if (d == kNoReg || !error.message.empty()) return false;
  emit(op);
  return true;
}

Op& Lowerer::effect(EffectFn fn, Reg d, Reg a, Reg b, Reg c, std::int64_t imm) {
  Op op;
  op.kind = InsKind::effect;
  op.effect = fn;
  op.d = d;
  op.a = a;
  op.b = b;
  op.c = c;
  op.imm = imm;
  return emit(op);
}

void Lowerer::move(Reg d, Reg a) {
  if (d == kNoReg || a == kNoReg) return;
  const int width = program.regs[d].width;
  alu({.op = AluOp::mov, .type = unsigned_of(width)}, table_.logic, d, a);
}

bool Lowerer::finish() {
  for (const Pending& pending : pending_) {
    const int have = program.regs[pending.temporary].width;
    const int width = program.regs[pending.target].width;
    AluKey key{.op = AluOp::cvt, .type = unsigned_of(width), .from = unsigned_of(have)};
    if (pending.sign) {
      key.from = have == 1 ? Type::s8 : have == 2 ? Type::s16 : Type::s32;
      key.type = width == 2 ? Type::s16 : width == 4 ? Type::s32 : Type::s64;
    }
    alu(key, table_.convert, pending.target, pending.temporary);
  }
  pending_.clear();
  return error.message.empty();
}

std::expected<Program, ParseError> lower(const Syntax& syntax, std::uint32_t kernel, const AluTable& table) {
  Lowerer lowerer(syntax, kernel, table);
  if (!lowerer.run()) return std::unexpected(lowerer.error);
  return std::move(lowerer.program);
}

}  // namespace tensor_fusion::sim::ptx
