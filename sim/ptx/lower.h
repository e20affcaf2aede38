#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/ptx/effects.h"
#include "sim/ptx/ir.h"
#include "sim/ptx/special.h"

namespace tensor_fusion::sim::ptx {

// The dotted words behind an opcode: types in order, and everything else until somebody takes it.
class Modifiers {
 public:
  explicit Modifiers(const Instruction& instruction);
  bool take(std::string_view word);
  Rounding take_rounding();
  [[nodiscard]] Type type(std::size_t i = 0) const { return i < types.size() ? types[i] : Type::none; }

  std::vector<Type> types;
  std::vector<std::string_view> rest;
};

// Turns the instructions of one kernel, and of the functions it reaches, into Ops. Every method that can fail returns
// false (or kNoReg) and leaves the error behind. Used once.
class Lowerer {
 public:
  Lowerer(const Syntax& syntax, std::uint32_t kernel, const AluTable& table);
  bool run();
  Program program;
  ParseError error;

 private:
  struct Address {
    Reg base = kNoReg;
    std::int64_t offset = 0;
    AddressSpace space = AddressSpace::global;
    bool launch_parameter = false;  // of a kernel at a constant place: `offset` in its parameters
  };
  struct Layout {  // of a function's frame
    std::vector<std::size_t> results, parameters;
    std::size_t bytes = 0;
  };

  // functions
  void reach(std::uint32_t function);
  void lay_out_frames();
  bool function(std::uint32_t index);
  bool instruction(const Instruction& in);
  void find_aliases();
  Reg alias_of(const Instruction& in);
  void patch_labels(std::size_t first_op, const std::vector<std::uint32_t>& op_of_instruction);
  void find_recursion();

  // registers and operands
  Reg make(int width, bool temporary = true);
  Reg value(std::uint64_t bits, int width);
  Reg global_address(std::uint32_t index, std::int64_t offset);
  Reg launch_parameter(std::size_t offset, int width);
  Reg special(std::uint32_t number);
  Reg frame_base();
  Reg mapped(std::uint32_t ptx_register);
  Reg use(const Operand& operand, Type type);
  Reg use_symbol(const Operand& operand, Type type);
  Reg resize(Reg from, int width, bool sign);
  Reg immediate(const Operand& operand, Type type);
  Reg def(const Operand& operand, Type type);  // finish() moves it to the register when that is wider
  bool address(const Operand& operand, AddressSpace space, bool param_space, Address& out);
  static bool writes_first_operand(const Instruction& in);

  // emission
  Op& emit(Op op);
  bool alu(const AluKey& key, AluFn (*table)(const AluKey&), Reg d, Reg a, Reg b = kNoReg, Reg c = kNoReg,
           std::int64_t imm = 0);
  Op& effect(EffectFn fn, Reg d, Reg a, Reg b = kNoReg, Reg c = kNoReg, std::int64_t imm = 0);
  void move(Reg d, Reg a);
  bool finish();

  // families; each takes the instruction whose first part is its name
  bool simple(const Instruction& in, Modifiers& m, AluOp op, std::size_t sources);
  bool arithmetic(const Instruction& in, Modifiers& m);
  bool integer(const Instruction& in, Modifiers& m, AluKey key, std::size_t sources);
  bool multiply(const Instruction& in, Modifiers& m);
  bool carry(const Instruction& in, Modifiers& m);
  bool logic(const Instruction& in, Modifiers& m);
  bool shift(const Instruction& in, Modifiers& m);
  bool floating(const Instruction& in, Modifiers& m, AluOp op, std::size_t sources);
  bool compare(const Instruction& in, Modifiers& m);
  bool select(const Instruction& in, Modifiers& m);
  bool move_instruction(const Instruction& in, Modifiers& m);
  bool convert(const Instruction& in, Modifiers& m);
  bool cluster_address(const Instruction& in, Modifiers& m);
  bool convert_address(const Instruction& in, Modifiers& m);
  bool load_store(const Instruction& in, Modifiers& m, bool store);
  bool atomic(const Instruction& in, Modifiers& m);
  bool async_copy(const Instruction& in, Modifiers& m);
  bool mbarrier(const Instruction& in, Modifiers& m);
  bool load_matrix(const Instruction& in, Modifiers& m);
  std::optional<std::size_t> jump_unless_guarded();
  void land(std::optional<std::size_t> jump);
  bool branch(const Instruction& in, Modifiers& m);
  bool call(const Instruction& in, Modifiers& m);
  bool builtin_call(const Instruction& in, const std::string& name, const Operand* results, const Operand* arguments);
  bool barrier(const Instruction& in, Modifiers& m);
  bool warp(const Instruction& in, Modifiers& m);
  bool mma(const Instruction& in, Modifiers& m);
  bool integer_mma(const Instruction& in, Modifiers& m);
  bool wmma(const Instruction& in, Modifiers& m);
  bool memory_space(Modifiers& m, AddressSpace& space, bool& param);
  bool packed_registers(const Operand& operand, std::size_t count, bool out, std::vector<Reg>& regs, int bytes = 4);

  bool operands(const Instruction& in, std::size_t least, std::size_t most);
  bool fail(const Instruction& in, std::string message);
  bool fail(const Operand& operand, std::string message);
  bool unsupported(const Instruction& in);
  bool leftover(const Instruction& in, const Modifiers& m);

  const Syntax& syntax_;
  std::uint32_t kernel_;
  const AluTable& table_;
  std::vector<std::uint32_t> reached_;
  std::vector<Layout> layouts_;
  std::vector<std::size_t> variable_offset_;  // by variable, in its space
  std::vector<bool> recursive_;
  std::vector<std::vector<std::uint32_t>> callees_;
  std::unordered_map<std::uint64_t, Reg> values_[4];  // by width
  std::unordered_map<std::uint64_t, Reg> other_constants_;
  struct LabelFix {
    std::size_t op;
    std::uint32_t label;
    std::uint32_t extra_slot;
  };

  // of the function being lowered
  const Function* function_ = nullptr;
  std::uint32_t function_index_ = 0;
  std::vector<Reg> mapped_;
  std::vector<Reg> alias_;
  std::vector<std::uint8_t> defs_;
  std::vector<LabelFix> label_fixes_;
  Reg frame_base_ = kNoReg;
  Reg carry_ = kNoReg;
  std::vector<Reg> frame_bases_;  // by function

  // of the instruction being lowered
  const Instruction* in_ = nullptr;
  Reg guard_ = kNoReg;
  bool guard_inverted_ = false;
  struct Pending {
    Reg temporary;
    Reg target;
    bool sign;
  };
  std::vector<Pending> pending_;
  std::uint32_t weight_ = 0;
};

}  // namespace tensor_fusion::sim::ptx
