// Whole functions: which are reached, where their variables lie, which registers are only names for constants.
#include <algorithm>

#include "sim/ptx/lower.h"

namespace tensor_fusion::sim::ptx {
namespace {

constexpr std::size_t kRecursionBytes = 32768;
constexpr std::size_t kMaxProgramOps = 4000000;

std::size_t align_up(std::size_t value, std::size_t align) { return (value + align - 1) / align * align; }

template <class Visit>
void each_symbol(const Operand& operand, const Visit& visit) {
  if (operand.symbol.kind != SymbolKind::none) visit(operand.symbol);
  for (const Operand& element : operand.elements) each_symbol(element, visit);
}

}  // namespace

bool Lowerer::writes_first_operand(const Instruction& in) {
  constexpr std::string_view kReaders[] = {
      "st",   "red",  "bra",   "brx",       "call", "membar",  "fence",   "prefetch",      "prefetchu",     "ret",
      "exit", "trap", "brkpt", "nanosleep", "cp",   "pmevent", "discard", "applypriority", "griddepcontrol"};
  if (in.operands.empty()) return false;
  for (const std::string_view reader : kReaders) {
    if (in.parts[0] == reader) return false;
  }
  if (in.parts[0] == "bar" || in.parts[0] == "barrier") return std::ranges::find(in.parts, "red") != in.parts.end();
  return true;
}

void Lowerer::reach(std::uint32_t start) {
  // Address-taken functions may be the target of any indirect call.
  std::vector<std::uint32_t> taken;
  for (const Global& global : syntax_.globals) {
    for (const Relocation& relocation : global.relocations) {
      if (relocation.target == RelocationTarget::function)
        taken.push_back(static_cast<std::uint32_t>(relocation.index));
    }
  }
  for (const Function& function : syntax_.functions) {
    for (const Instruction& in : function.instructions) {
      if (in.parts[0] == "call") continue;
      for (const Operand& operand : in.operands) {
        each_symbol(operand, [&](const Symbol& symbol) {
          if (symbol.kind == SymbolKind::function) taken.push_back(symbol.index);
        });
      }
    }
  }
  callees_.assign(syntax_.functions.size(), {});
  std::vector<bool> seen(syntax_.functions.size());
  std::vector<std::uint32_t> todo{start};
  seen[start] = true;
  while (!todo.empty()) {
    const std::uint32_t index = todo.back();
    todo.pop_back();
    reached_.push_back(index);
    auto& callees = callees_[index];
    for (const Instruction& in : syntax_.functions[index].instructions) {
      if (in.parts[0] != "call") continue;
      bool direct = false;
      for (const Operand& operand : in.operands) {
        if (operand.kind == OperandKind::symbol && operand.symbol.kind == SymbolKind::function) {
          callees.push_back(operand.symbol.index);
          direct = true;
        }
      }
      if (!direct) callees.insert(callees.end(), taken.begin(), taken.end());
    }
    std::ranges::sort(callees);
    callees.erase(std::ranges::unique(callees).begin(), callees.end());
    std::erase_if(callees, [&](std::uint32_t callee) {
      return !syntax_.functions[callee].has_body || syntax_.functions[callee].is_kernel;
    });
    for (const std::uint32_t callee : callees) {
      if (!seen[callee]) todo.push_back(callee);
      seen[callee] = true;
    }
  }
}

void Lowerer::find_recursion() {
  recursive_.assign(syntax_.functions.size(), false);
  for (const std::uint32_t start : reached_) {
    std::vector<bool> seen(syntax_.functions.size());
    std::vector<std::uint32_t> todo = callees_[start];
    while (!todo.empty()) {
      const std::uint32_t index = todo.back();
      todo.pop_back();
      if (index == start) recursive_[start] = true;
      if (seen[index]) continue;
      seen[index] = true;
      todo.insert(todo.end(), callees_[index].begin(), callees_[index].end());
    }
  }
}

void Lowerer::lay_out_frames() {
  layouts_.assign(syntax_.functions.size(), {});
  variable_offset_.assign(syntax_.variables.size(), 0);
  std::size_t shared = 0;
  std::vector<bool> placed(syntax_.variables.size());
  std::vector<std::uint32_t> dynamic;
  for (const std::uint32_t index : reached_) {
    const Function& function = syntax_.functions[index];
    Layout& layout = layouts_[index];
    std::size_t end = 0;
    const auto place = [&](std::size_t size, std::size_t align) {
      const std::size_t at = align_up(end, align);
      end = at + size;
      return at;
    };
    if (!function.is_kernel) {
      for (const Parameter& parameter : function.prototype.results)
        layout.results.push_back(place(parameter.size, parameter.align));
      for (const Parameter& parameter : function.prototype.parameters)
        layout.parameters.push_back(place(parameter.size, parameter.align));
    }
    for (const std::uint32_t variable : function.variables) {
      const Variable& v = syntax_.variables[variable];
      if (v.space != Space::shared) variable_offset_[variable] = place(v.size, v.align);
    }
    layout.bytes = align_up(end, 16);
    const auto shared_variable = [&](std::uint32_t variable) {
      const Variable& v = syntax_.variables[variable];
      if (v.space != Space::shared || placed[variable]) return;
      placed[variable] = true;
      if (v.dynamic) {
        dynamic.push_back(variable);
        return;
      }
      variable_offset_[variable] = align_up(shared, v.align);
      shared = variable_offset_[variable] + v.size;
    };
    for (const std::uint32_t variable : function.variables) shared_variable(variable);
    for (const Instruction& in : function.instructions) {
      for (const Operand& operand : in.operands) {
        each_symbol(operand, [&](const Symbol& symbol) {
          if (symbol.kind == SymbolKind::variable) shared_variable(symbol.index);
        });
      }
    }
  }
  for (const std::uint32_t variable : dynamic) {
    shared = align_up(shared, std::max<std::size_t>(16, syntax_.variables[variable].align));
  }
  for (const std::uint32_t variable : dynamic) variable_offset_[variable] = shared;
  program.static_shared_bytes = shared;
  // Longest chain of frames; with recursion a fixed allowance on top.
  std::vector<std::size_t> below(syntax_.functions.size());
  bool recursive = false;
  for (const std::uint32_t index : reached_) recursive = recursive || recursive_[index];
  for (std::size_t round = 0; round < (recursive ? 1 : reached_.size()); ++round) {
    bool changed = false;
    for (const std::uint32_t index : reached_) {
      std::size_t most = 0;
      for (const std::uint32_t callee : callees_[index]) most = std::max(most, layouts_[callee].bytes + below[callee]);
      if (most != below[index]) changed = true;
      below[index] = most;
    }
    if (!changed) break;
  }
  program.local_bytes = layouts_[kernel_].bytes + below[kernel_] + (recursive ? kRecursionBytes : 0);
}

bool Lowerer::run() {
  const Function& kernel = syntax_.functions[kernel_];
  std::size_t parameter_bytes = 0;
  for (const Parameter& parameter : kernel.prototype.parameters) parameter_bytes = parameter.offset + parameter.size;
  program.parameter_bytes = parameter_bytes;
  program.kernel = kernel_;
  reach(kernel_);
  find_recursion();
  lay_out_frames();
  program.entries.assign(syntax_.functions.size(), kNoIndex);
  frame_bases_.assign(syntax_.functions.size(), kNoReg);
  for (const std::uint32_t index : reached_) {
    function_index_ = index;
    if (!syntax_.functions[index].is_kernel) frame_bases_[index] = make(8, false);
  }
  for (const std::uint32_t index : reached_) {
    if (!function(index)) return false;
  }
  program.frame_bases = frame_bases_;
  program.has_calls = reached_.size() > 1;
  bool effects = program.has_calls;
  for (std::size_t i = 0; i < program.ops.size() && !effects; ++i) {
    const Op& op = program.ops[i];
    const bool backward = (op.kind == InsKind::branch) && op.target <= i;
    effects = backward || (op.kind != InsKind::alu && op.kind != InsKind::nop && op.kind != InsKind::branch &&
                           op.kind != InsKind::ret && op.kind != InsKind::exit);
  }
  program.effect_free = !effects;
  return true;
}

Reg Lowerer::alias_of(const Instruction& in) {
  if (in.guard != kNoIndex || in.operands.size() != 2 || !writes_first_operand(in)) return kNoReg;
  const Operand& d = in.operands[0];
  const Operand& a = in.operands[1];
  if (d.kind != OperandKind::symbol || d.symbol.kind != SymbolKind::reg || d.second != kNoIndex) return kNoReg;
  if (defs_[d.symbol.index] != 1) return kNoReg;
  const int width = bytes_of(function_->registers[d.symbol.index]);
  const Type last = in.parts.size() > 1 ? type_named(in.parts.back()).value_or(Type::none) : Type::none;
  if (last == Type::none || bytes_of(last) != width) return kNoReg;
  const std::string_view base = in.parts[0];
  if (base == "ld" && in.parts.size() == 3 && in.parts[1] == "param" && function_->is_kernel &&
      a.kind == OperandKind::address && a.symbol.kind == SymbolKind::parameter) {
    const Parameter& parameter = function_->prototype.parameters[a.symbol.index];
    const std::int64_t at = static_cast<std::int64_t>(parameter.offset) + a.offset;
    if (at < 0 || static_cast<std::uint64_t>(at) + static_cast<std::uint64_t>(width) > program.parameter_bytes)
      return kNoReg;
    return launch_parameter(static_cast<std::size_t>(at), width);
  }
  const bool is_move = base == "mov" && in.parts.size() == 2;
  const bool is_global_cvta =
      base == "cvta" && (in.parts[in.parts.size() - 2] == "global" || in.parts[in.parts.size() - 2] == "const");
  if (!is_move && !is_global_cvta) return kNoReg;
  if (a.kind == OperandKind::integer || a.kind == OperandKind::float32 || a.kind == OperandKind::float64)
    return immediate(a, last);
  if (a.kind != OperandKind::symbol) return kNoReg;
  Reg source = kNoReg;
  if (a.symbol.kind == SymbolKind::reg) {
    if (a.inverted) return kNoReg;
    source = alias_[a.symbol.index];
  } else if (a.symbol.kind == SymbolKind::global) {
    source = global_address(a.symbol.index, a.offset);
  } else if (a.symbol.kind == SymbolKind::special) {
    const auto which = static_cast<Special>(a.symbol.index);
    if (which >= Special::clock && which <= Special::globaltimer_hi) return kNoReg;
    source = special(a.symbol.index);
  } else if (is_move && a.symbol.kind == SymbolKind::variable && width == 8 &&
             (function_->is_kernel || syntax_.variables[a.symbol.index].space == Space::shared)) {
    source = use_symbol(a, last);
  }
  if (source == kNoReg || program.regs[source].width != width) return kNoReg;
  return source;
}

void Lowerer::find_aliases() {
  defs_.assign(function_->registers.size(), 0);
  const auto count = [&](const Operand& operand) {
    each_symbol(operand, [&](const Symbol& symbol) {
      if (symbol.kind == SymbolKind::reg && defs_[symbol.index] < 2) ++defs_[symbol.index];
    });
    if (operand.second != kNoIndex && defs_[operand.second] < 2) ++defs_[operand.second];
  };
  for (const Instruction& in : function_->instructions) {
    if (writes_first_operand(in)) count(in.operands[0]);
  }
  for (int round = 0; round < 2; ++round) {
    for (const Instruction& in : function_->instructions) {
      if (in.operands.empty() || in.operands[0].symbol.kind != SymbolKind::reg) continue;
      in_ = &in;
      Reg& alias = alias_[in.operands[0].symbol.index];
      if (alias == kNoReg) alias = alias_of(in);
    }
  }
  in_ = nullptr;
}

bool Lowerer::function(std::uint32_t index) {
  function_index_ = index;
  function_ = &syntax_.functions[index];
  mapped_.assign(function_->registers.size(), kNoReg);
  alias_.assign(function_->registers.size(), kNoReg);
  label_fixes_.clear();
  frame_base_ = frame_bases_[index];
  carry_ = kNoReg;
  find_aliases();
  program.entries[index] = static_cast<std::uint32_t>(program.ops.size());
  std::vector<bool> is_target(function_->instructions.size() + 1);
  for (const std::uint32_t at : function_->labels) {
    if (at != kNoIndex) is_target[at] = true;
  }
  std::vector<std::uint32_t> op_of(function_->instructions.size() + 1);
  weight_ = 0;
  const auto flush = [&] {
    if (weight_ == 0) return;
    Op nop;
    nop.weight = static_cast<std::uint16_t>(weight_);
    program.ops.push_back(nop);
    weight_ = 0;
  };
  for (std::size_t i = 0; i < function_->instructions.size(); ++i) {
    if (is_target[i]) flush();
    op_of[i] = static_cast<std::uint32_t>(program.ops.size());
    if (!instruction(function_->instructions[i])) return false;
    if (program.ops.size() > kMaxProgramOps) return fail(function_->instructions[i], "function is too large");
  }
  if (is_target.back()) flush();
  op_of.back() = static_cast<std::uint32_t>(program.ops.size());
  in_ = nullptr;
  guard_ = kNoReg;
  Op end;
  end.kind = InsKind::ret;
  end.weight = static_cast<std::uint16_t>(weight_);
  emit(end);
  patch_labels(program.entries[index], op_of);
  if (recursive_[index]) {  // what a call saves is known only now
    std::vector<Reg> frame;
    for (Reg reg = 0; reg < program.regs.size(); ++reg) {
      const RegInfo& info = program.regs[reg];
      if (info.kind == RegClass::normal && info.owner == index && !info.temporary) frame.push_back(reg);
    }
    for (std::size_t i = program.entries[index]; i < program.ops.size(); ++i) {
      const Op& op = program.ops[i];
      if (op.kind != InsKind::effect) continue;
      if (op.effect == save_frame_effect()) program.extras[op.extra].ins = frame;
      if (op.effect == restore_frame_effect()) program.extras[op.extra].outs = frame;
    }
  }
  return true;
}

bool Lowerer::instruction(const Instruction& in) {
  in_ = &in;
  guard_ = kNoReg;
  const std::size_t before = program.ops.size();
  const bool aliased = !in.operands.empty() && in.operands[0].kind == OperandKind::symbol &&
                       in.operands[0].symbol.kind == SymbolKind::reg && writes_first_operand(in) &&
                       alias_[in.operands[0].symbol.index] != kNoReg;
  if (!aliased) {
    if (in.guard != kNoIndex) {
      guard_ = mapped(in.guard);
      guard_inverted_ = in.guard_inverted;
      if (!in.operands.empty() && in.operands[0].second != kNoIndex) {  // it might write its own guard half way
        const Reg copy = make(1);
        move(copy, guard_);
        guard_ = copy;
      }
    }
    Modifiers m(in);
    const std::string_view base = in.parts[0];
    bool good = false;
    if (base == "ld" || base == "ldu" || base == "st")
      good = load_store(in, m, base == "st");
    else if (base == "mov")
      good = move_instruction(in, m);
    else if (base == "cvt")
      good = convert(in, m);
    else if (base == "mapa" || base == "getctarank")
      good = cluster_address(in, m);
    else if (base == "cvta" || base == "isspacep")
      good = convert_address(in, m);
    else if (base == "setp" || base == "set")
      good = compare(in, m);
    else if (base == "selp" || base == "slct")
      good = select(in, m);
    else if (base == "atom" || base == "red")
      good = atomic(in, m);
    else if (base == "cp")
      good = async_copy(in, m);
    else if (base == "mbarrier")
      good = mbarrier(in, m);
    else if (base == "ldmatrix")
      good = load_matrix(in, m);
    else if (base == "bra" || base == "brx" || base == "ret" || base == "exit" || base == "trap" || base == "brkpt")
      good = branch(in, m);
    else if (base == "call")
      good = call(in, m);
    else if (base == "bar" || base == "barrier" || base == "membar" || base == "fence" || base == "nanosleep" ||
             base == "prefetch" || base == "prefetchu" || base == "discard" || base == "applypriority" ||
             base == "pmevent" || base == "griddepcontrol")
      good = barrier(in, m);
    else if (base == "shfl" || base == "vote" || base == "match" || base == "activemask" || base == "redux" ||
             base == "elect")
      good = warp(in, m);
    else if (base == "mma")
      good = mma(in, m);
    else if (base == "wmma")
      good = wmma(in, m);
    else
      good = arithmetic(in, m);
    if (!good) return error.message.empty() ? unsupported(in) : false;
    if (!leftover(in, m) || !finish()) return false;
  }
  guard_ = kNoReg;
  ++weight_;
  if (program.ops.size() > before) {
    program.ops.back().weight = static_cast<std::uint16_t>(std::min<std::uint32_t>(weight_, 60000));
    weight_ = 0;
  }
  return true;
}

void Lowerer::patch_labels(std::size_t first_op, const std::vector<std::uint32_t>& op_of) {
  static_cast<void>(first_op);
  for (const LabelFix& fix : label_fixes_) {
    const std::uint32_t target = op_of[function_->labels[fix.label]];
    Op& op = program.ops[fix.op];
    if (fix.extra_slot == kNoIndex) {
      op.target = target;
    } else {
      program.extras[op.extra].targets[fix.extra_slot] = target;
    }
  }
}

}  // namespace tensor_fusion::sim::ptx
