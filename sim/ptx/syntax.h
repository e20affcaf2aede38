#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/ptx/ptx.h"
#include "sim/ptx/type.h"

// What the parser hands to the lowering: a module with every name resolved. The views point into the parsed text.
namespace tensor_fusion::sim::ptx {

inline constexpr std::uint32_t kNoIndex = 0xffffffffU;

enum class Space : std::uint8_t { none, reg, param, global, constant, shared, local, frame };

enum class SymbolKind : std::uint8_t {
  none,
  reg,
  special,
  variable,
  parameter,
  result,
  global,
  function,
  label,
  sink,
  prototype,
  targets
};

struct Symbol {
  SymbolKind kind = SymbolKind::none;
  std::uint32_t index = kNoIndex;  // register, variable, parameter, global, function, label or special register number
};

enum class OperandKind : std::uint8_t { symbol, integer, float32, float64, vector, address, list };

struct Operand {
  OperandKind kind = OperandKind::integer;
  Symbol symbol;                    // symbol, or the base of an address (none: absolute)
  std::uint64_t bits = 0;           // immediate
  std::int64_t offset = 0;          // of an address, or of symbol+offset
  bool inverted = false;            // !%p
  std::uint32_t second = kNoIndex;  // %p|%q: the register behind the bar
  std::vector<Operand> elements;    // vector and list
  std::string_view text;
  int line = 0;
  int column = 0;
};

struct Instruction {
  std::string_view opcode;              // "ld.global.f32"
  std::vector<std::string_view> parts;  // "ld", "global", "f32"
  std::vector<Operand> operands;
  std::uint32_t guard = kNoIndex;  // register
  bool guard_inverted = false;
  int line = 0;
  int column = 0;
};

// A variable inside a function (or at module level in shared space).
struct Variable {
  std::string name;
  Space space = Space::none;
  std::size_t size = 0;
  std::size_t align = 1;
  std::size_t offset = 0;  // in its space; frame: in the function's frame
  bool dynamic = false;    // extern shared array without a size
};

struct Prototype {
  std::vector<Parameter> results;
  std::vector<Parameter> parameters;
};

struct Function {
  std::string name;
  bool is_kernel = false;
  bool has_body = false;
  bool no_return = false;
  Prototype prototype;
  std::optional<std::array<std::uint32_t, 3>> maxntid;
  std::optional<std::array<std::uint32_t, 3>> reqntid;
  std::vector<Type> registers;
  std::vector<std::uint32_t> variables;  // those declared inside, positions in Syntax::variables
  std::vector<Prototype> call_prototypes;
  std::vector<std::vector<std::uint32_t>> branch_targets;  // label numbers
  std::vector<std::uint32_t> labels;                       // label number → instruction number
  std::vector<std::string_view> label_names;
  std::vector<Instruction> instructions;
  int line = 0;
};

struct Syntax {
  int target = 0;
  int isa_version = 0;
  std::vector<Global> globals;
  std::vector<Function> functions;
  std::vector<Variable> variables;
};

[[nodiscard]] std::expected<Syntax, ParseError> parse_syntax(std::string_view text, const ParseOptions& options);

// The number of a special register such as %tid.x, or nothing.
[[nodiscard]] std::optional<std::uint32_t> special_register(std::string_view name);

// Puts parameters behind each other by their alignment; returns the bytes they take together.
std::size_t lay_out(std::vector<Parameter>& parameters);

}  // namespace tensor_fusion::sim::ptx
