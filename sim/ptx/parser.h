#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "sim/ptx/lexer.h"
#include "sim/ptx/syntax.h"

namespace tensor_fusion::sim::ptx {

inline constexpr std::size_t kMaxVariableBytes = std::size_t{1} << 40;

// Recursive descent over one module. The first error stops it: every method that can fail returns false and leaves the
// error in error(). Used once.
class Parser {
 public:
  Parser(std::string_view text, const ParseOptions& options);
  bool parse();
  [[nodiscard]] Syntax& result() { return syntax_; }
  [[nodiscard]] ParseError error() const { return error_; }

 private:
  struct Range {  // .reg .b32 %r<6>
    std::string_view prefix;
    std::uint32_t count;
    Type type;
    std::vector<std::uint32_t> numbers;
  };
  struct Scope {
    std::unordered_map<std::string_view, Symbol> symbols;
    std::vector<Range> ranges;
  };
  struct Declaration {
    Type type = Type::none;
    int vector = 1;
    std::size_t align = 0;
    bool is_extern = false;
    bool visible = false;
  };
  struct Value {  // of an initialiser
    std::uint64_t bits = 0;
    Symbol symbol;
    std::int64_t addend = 0;
    bool is_float64 = false;
    bool is_float32 = false;
    int mask_shift = -1;
  };

  // module level
  bool module_statement();
  bool header();
  bool function(bool is_kernel, bool visible);
  bool performance_directives(Function& function);
  bool parameter_list(std::vector<Parameter>& parameters, SymbolKind kind, Scope* scope);
  bool global_variable(Space space, Declaration declaration);
  bool initializer(Global& global, Type type, std::size_t& elements);
  bool value(Value& out);
  bool store_value(Global& global, Type type, std::size_t position, const Value& value);
  bool declaration_type(Declaration& declaration);
  bool dimensions(std::size_t& count, bool& open);
  bool declared_name(Token& name, std::size_t& count, bool& open);

  // function level
  bool body();
  bool body_directive();
  bool register_declaration();
  bool local_variable(Space space);
  bool instruction();
  bool label_directive(std::string_view label);
  bool operand(Operand& out);
  bool name_operand(Operand& out);
  bool address(Operand& out);
  bool list(Operand& out, std::string_view close);
  bool resolve(std::string_view name, Symbol& out, const Token& at);
  std::uint32_t label_number(std::string_view name);
  bool bind_labels();
  bool constant(std::int64_t& out);
  bool addends(std::int64_t& sum);

  // tokens
  void take() {
    token_ = ahead_;
    ahead_ = lexer_.next();
  }
  bool expect(std::string_view punctuation);
  bool accept(std::string_view punctuation);
  bool fail(std::string message) { return fail_at(token_, std::move(message)); }
  bool fail_at(const Token& token, std::string message);
  bool skip_to_semicolon();
  std::string shown() const;

  Lexer lexer_;
  Token token_;
  Token ahead_;
  const ParseOptions& options_;
  Syntax syntax_;
  ParseError error_;
  Scope module_;
  std::vector<Scope> scopes_;
  struct PendingLabel {
    std::size_t scope_id;
    std::string_view name;
    Token at;
    std::uint32_t number;
  };
  std::vector<std::uint32_t> scope_parents_;                                       // of every block of this function
  std::vector<std::unordered_map<std::string_view, std::uint32_t>> scope_labels_;  // label → instruction
  std::vector<std::size_t> open_scopes_;
  std::vector<PendingLabel> pending_;
  Function* function_ = nullptr;
  std::unordered_map<std::string_view, std::uint32_t> functions_;
  int depth_ = 0;
};

}  // namespace tensor_fusion::sim::ptx
