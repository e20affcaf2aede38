// Branches, calls and barriers.
#include <algorithm>

#include "sim/ptx/lower.h"

namespace tensor_fusion::sim::ptx {
namespace {

constexpr std::size_t kMaxFrame = (std::size_t{1} << 21) - 1;

std::int64_t packed_copy(std::size_t from, std::size_t to, std::size_t size) {
  return static_cast<std::int64_t>(from | (to << 21) | (size << 42));
}

}  // namespace

bool Lowerer::branch(const Instruction& in, Modifiers& m) {
  const std::string_view base = in.parts[0];
  m.take("uni");
  if (base == "bra") {
    if (!operands(in, 1, 1)) return false;
    Op op;
    op.kind = InsKind::branch;
    emit(op);
    label_fixes_.push_back({program.ops.size() - 1, in.operands[0].symbol.index, kNoIndex});
    return true;
  }
  const std::optional<std::size_t> skip = jump_unless_guarded();
  if (base == "brx") {
    if (!m.take("idx") || !operands(in, 2, 2)) return false;
    const Operand& list = in.operands[1];
    if (list.kind != OperandKind::symbol || list.symbol.kind != SymbolKind::targets)
      return fail(list, "brx.idx needs a list of labels");
    Op op;
    op.kind = InsKind::branch_index;
    op.a = use(in.operands[0], Type::u32);
    if (op.a == kNoReg) return false;
    op.extra = static_cast<std::uint32_t>(program.extras.size());
    program.extras.emplace_back();
    const auto& labels = function_->branch_targets[list.symbol.index];
    program.extras.back().targets.resize(labels.size());
    emit(op);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      label_fixes_.push_back({program.ops.size() - 1, labels[i], static_cast<std::uint32_t>(i)});
    }
  } else {
    if (!operands(in, 0, 0)) return false;
    Op op;
    op.kind = base == "ret"    ? InsKind::ret
              : base == "exit" ? InsKind::exit
              : base == "trap" ? InsKind::trap
                               : InsKind::breakpoint;
    emit(op);
  }
  land(skip);
  return true;
}

// Nothing but a branch has a guard of its own: who does not pass it jumps over what follows, to where it lands.
std::optional<std::size_t> Lowerer::jump_unless_guarded() {
  if (guard_ == kNoReg) return std::nullopt;
  const std::size_t jump = program.ops.size();
  Op op;
  op.kind = InsKind::branch;
  guard_inverted_ = !guard_inverted_;
  emit(op);
  guard_ = kNoReg;
  return jump;
}

void Lowerer::land(std::optional<std::size_t> jump) {
  if (jump) program.ops[*jump].target = static_cast<std::uint32_t>(program.ops.size());
}

bool Lowerer::call(const Instruction& in, Modifiers& m) {
  m.take("uni");
  const std::optional<std::size_t> skip = jump_unless_guarded();
  const Operand* results = nullptr;
  const Operand* arguments = nullptr;
  const Operand* callee = nullptr;
  const Operand* prototype = nullptr;
  for (const Operand& operand : in.operands) {
    if (operand.kind == OperandKind::list) {
      (callee == nullptr ? results : arguments) = &operand;
    } else if (callee == nullptr) {
      callee = &operand;
    } else {
      prototype = &operand;
    }
  }
  if (callee == nullptr || callee->kind != OperandKind::symbol) return fail(in, "call needs a function");
  const auto frame_variable = [&](const Operand& operand, std::size_t& at, std::size_t& size) {
    if (operand.kind != OperandKind::symbol || operand.symbol.kind != SymbolKind::variable ||
        syntax_.variables[operand.symbol.index].space != Space::frame) {
      return fail(operand, "unsupported: an argument of a call that is no .param variable");
    }
    at = variable_offset_[operand.symbol.index];
    size = syntax_.variables[operand.symbol.index].size;
    return true;
  };

  const bool direct = callee->symbol.kind == SymbolKind::function;
  const Prototype* shape = nullptr;
  Layout layout;
  if (direct) {
    const Function& function = syntax_.functions[callee->symbol.index];
    if (!function.has_body) {
      if (!builtin_call(in, function.name, results, arguments)) return false;
      land(skip);
      return true;
    }
    if (function.is_kernel) return fail(*callee, "a kernel cannot be called");
    shape = &function.prototype;
    layout = layouts_[callee->symbol.index];
  } else {
    if (callee->symbol.kind != SymbolKind::reg || prototype == nullptr ||
        prototype->symbol.kind != SymbolKind::prototype) {
      return fail(in, "an indirect call needs a register and a prototype");
    }
    shape = &function_->call_prototypes[prototype->symbol.index];
    std::size_t end = 0;
    for (const Parameter& p : shape->results) {
      end = (end + p.align - 1) / p.align * p.align;
      layout.results.push_back(end);
      end += p.size;
    }
    for (const Parameter& p : shape->parameters) {
      end = (end + p.align - 1) / p.align * p.align;
      layout.parameters.push_back(end);
      end += p.size;
    }
  }
  const std::size_t argument_count = arguments == nullptr ? 0 : arguments->elements.size();
  const std::size_t result_count = results == nullptr ? 0 : results->elements.size();
  if (argument_count != shape->parameters.size() || result_count > shape->results.size()) {
    return fail(in, "call does not match the function's parameters");
  }
  const std::size_t frame = layouts_[function_index_].bytes;
  if (frame + 65536 > kMaxFrame) return fail(in, "local variables of a calling function take too much memory");
  for (std::size_t i = 0; i < argument_count; ++i) {
    std::size_t at = 0;
    std::size_t size = 0;
    if (!frame_variable(arguments->elements[i], at, size)) return false;
    effect(copy_local_effect(), kNoReg, frame_base(), kNoReg, kNoReg,
           packed_copy(at, frame + layout.parameters[i], std::min(size, shape->parameters[i].size)));
  }
  const bool saves = recursive_[function_index_];
  if (saves) {
    effect(save_frame_effect(), kNoReg, kNoReg).extra = static_cast<std::uint32_t>(program.extras.size());
    program.extras.emplace_back();
  }
  Op op;
  op.kind = direct ? InsKind::call : InsKind::call_indirect;
  op.a = frame_base();
  op.b = direct ? kNoReg : use(*callee, Type::u64);
  op.target = direct ? callee->symbol.index : kNoIndex;
  op.imm = static_cast<std::int64_t>(frame);
  emit(op);
  if (saves) {
    effect(restore_frame_effect(), kNoReg, kNoReg).extra = static_cast<std::uint32_t>(program.extras.size());
    program.extras.emplace_back();
  }
  for (std::size_t i = 0; i < result_count; ++i) {
    std::size_t at = 0;
    std::size_t size = 0;
    if (!frame_variable(results->elements[i], at, size)) return false;
    effect(copy_local_effect(), kNoReg, frame_base(), kNoReg, kNoReg,
           packed_copy(frame + layout.results[i], at, std::min(size, shape->results[i].size)));
  }
  land(skip);
  return true;
}

bool Lowerer::builtin_call(const Instruction& in, const std::string& name, const Operand* results,
                           const Operand* arguments) {
  const auto load = [&](std::size_t index, int width) {
    if (arguments == nullptr || index >= arguments->elements.size()) return kNoReg;
    const Operand& operand = arguments->elements[index];
    if (operand.symbol.kind != SymbolKind::variable || syntax_.variables[operand.symbol.index].space != Space::frame)
      return kNoReg;
    const Reg d = make(width);
    effect(table_.memory(width, 1, static_cast<int>(AddressSpace::local), false), d, frame_base(), kNoReg, kNoReg,
           static_cast<std::int64_t>(variable_offset_[operand.symbol.index]))
        .varying = true;
    return d;
  };
  if (name == "vprintf") {
    const Reg format = load(0, 8);
    const Reg list = load(1, 8);
    if (format == kNoReg || list == kNoReg) return fail(in, "call does not match vprintf");
    const Reg d = make(4);
    effect(printf_effect(), d, format, list).varying = true;
    if (results != nullptr && results->elements.size() == 1 &&
        results->elements[0].symbol.kind == SymbolKind::variable) {
      effect(table_.memory(4, 1, static_cast<int>(AddressSpace::local), true), kNoReg, frame_base(), d, kNoReg,
             static_cast<std::int64_t>(variable_offset_[results->elements[0].symbol.index]));
    }
    return true;
  }
  if (name == "__assertfail" || name == "__assert_fail") {
    Extra extra;
    extra.ins = {load(0, 8), load(1, 8), load(2, 4), load(3, 8)};
    if (std::ranges::find(extra.ins, kNoReg) != extra.ins.end()) return fail(in, "call does not match __assertfail");
    Op& op = effect(assert_effect(), kNoReg, kNoReg);
    op.extra = static_cast<std::uint32_t>(program.extras.size());
    program.extras.push_back(std::move(extra));
    return true;
  }
  if (name == "cudaGraphSetConditional") {
    const Reg handle = load(0, 8);
    const Reg chosen = load(1, 4);
    if (handle == kNoReg || chosen == kNoReg) return fail(in, "call does not match cudaGraphSetConditional");
    effect(set_condition_effect(), kNoReg, handle, chosen);
    return true;
  }
  if (name == "malloc" || name == "free") return fail(in, "unsupported: device-side " + name);
  return fail(in, "Unresolved extern function '" + name + "'");
}

bool Lowerer::barrier(const Instruction& in, Modifiers& m) {
  const std::string_view base = in.parts[0];
  if (base == "membar" || base == "fence") {
    m.rest.clear();
    m.types.clear();
    effect(fence_effect(), kNoReg, kNoReg);
    return true;
  }
  if (base != "bar" && base != "barrier") {  // prefetch, nanosleep, …: hints
    m.rest.clear();
    return true;
  }
  m.take("cta");
  m.take("aligned");
  if (m.take("warp")) {  // lanes of a warp are in step wherever they can be
    m.take("sync");
    program.uses_warps = true;
    return operands(in, 1, 1);
  }
  Op op;
  op.kind = InsKind::barrier;
  if (m.take("cluster")) {  // a cluster is one block here
    m.take("relaxed");
    m.take("acquire");
    m.take("release");
    if (m.take("arrive")) return true;
    if (!m.take("wait")) return false;
    op.a = value(16, 4);
    program.uses_barrier = true;
    emit(op);
    return true;
  }
  const bool red = m.take("red");
  const bool arrive = m.take("arrive");
  m.take("sync");
  Type result = Type::none;
  if (red) {
    op.imm = m.take("popc") ? 2 : m.take("and") ? 3 : m.take("or") ? 4 : 0;
    if (op.imm == 0) return unsupported(in);
    result = op.imm == 2 ? Type::u32 : Type::pred;
    m.types.clear();
  } else if (arrive) {
    op.imm = 1;
  }
  const std::size_t first = red ? 1 : 0;
  const std::size_t count = in.operands.size();
  if (!operands(in, first + (red ? 2 : arrive ? 2 : 1), first + (red ? 3 : 2))) return false;
  const std::optional<std::size_t> skip = jump_unless_guarded();
  op.a = use(in.operands[first], Type::u32);
  if (red) {
    if (count == 4) op.b = use(in.operands[2], Type::u32);
    op.c = use(in.operands[count - 1], Type::pred);
    op.d = def(in.operands[0], result);
    if (op.c == kNoReg || op.d == kNoReg) return false;
  } else if (count > first + 1) {
    op.b = use(in.operands[first + 1], Type::u32);
  }
  if (op.a == kNoReg) return false;
  op.varying = true;
  program.uses_barrier = true;
  emit(op);
  land(skip);
  return true;
}

}  // namespace tensor_fusion::sim::ptx
