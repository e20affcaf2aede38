// Inside a function: declarations, labels and instructions.
#include <charconv>

#include "sim/ptx/parser.h"
#include "sim/ptx/special.h"

namespace tensor_fusion::sim::ptx {

bool Parser::body() {
  scope_parents_.clear();
  scope_labels_.clear();
  open_scopes_.clear();
  pending_.clear();
  std::size_t depth = 0;
  do {
    if (token_.is("{")) {
      if (++depth > 200) return fail("blocks are nested too deeply");
      scope_parents_.push_back(open_scopes_.empty() ? kNoIndex : static_cast<std::uint32_t>(open_scopes_.back()));
      open_scopes_.push_back(scope_labels_.size());
      scope_labels_.emplace_back();
      scopes_.emplace_back();
      take();
    } else if (token_.is("}")) {
      --depth;
      open_scopes_.pop_back();
      scopes_.pop_back();
      take();
    } else if (token_.kind == TokenKind::directive) {
      if (!body_directive()) return false;
    } else if (token_.kind == TokenKind::word && ahead_.is(":")) {
      const Token name = token_;
      take();
      take();
      if (token_.kind == TokenKind::directive &&
          (token_.text == "callprototype" || token_.text == "branchtargets" || token_.text == "calltargets")) {
        if (!label_directive(name.text)) return false;
      } else if (!scope_labels_[open_scopes_.back()]
                      .emplace(name.text, static_cast<std::uint32_t>(function_->instructions.size()))
                      .second) {
        return fail_at(name, "duplicate label '" + std::string(name.text) + "'");
      }
    } else if (token_.is(";")) {
      take();
    } else if (token_.kind == TokenKind::word || token_.is("@")) {
      if (!instruction()) return false;
    } else {
      return fail("syntax error at " + shown());
    }
  } while (depth > 0);
  return bind_labels();
}

bool Parser::bind_labels() {
  for (const PendingLabel& label : pending_) {
    std::size_t scope = label.scope_id;
    while (true) {
      if (const auto found = scope_labels_[scope].find(label.name); found != scope_labels_[scope].end()) {
        function_->labels[label.number] = found->second;
        break;
      }
      if (scope_parents_[scope] == kNoIndex) {
        return fail_at(label.at, "Label '" + std::string(label.name) + "' is not defined");
      }
      scope = scope_parents_[scope];
    }
  }
  return true;
}

std::uint32_t Parser::label_number(std::string_view name) {
  const std::size_t scope = open_scopes_.back();
  const auto number = static_cast<std::uint32_t>(function_->labels.size());
  function_->labels.push_back(kNoIndex);
  function_->label_names.push_back(name);
  pending_.push_back({scope, name, token_, number});
  return number;
}

bool Parser::label_directive(std::string_view label) {
  const std::string_view word = token_.text;
  take();
  if (word == "callprototype") {
    Prototype prototype;
    if (!parameter_list(prototype.results, SymbolKind::none, nullptr)) return false;
    if (token_.kind != TokenKind::word) return fail("syntax error: expected '_' before " + shown());
    take();
    if (!parameter_list(prototype.parameters, SymbolKind::none, nullptr)) return false;
    while (token_.kind == TokenKind::directive) take();
    scopes_.back().symbols[label] = {SymbolKind::prototype,
                                     static_cast<std::uint32_t>(function_->call_prototypes.size())};
    function_->call_prototypes.push_back(std::move(prototype));
    return expect(";");
  }
  if (word == "calltargets") return skip_to_semicolon();
  std::vector<std::uint32_t> targets;
  do {
    if (token_.kind != TokenKind::word) return fail("syntax error: expected a label before " + shown());
    targets.push_back(label_number(token_.text));
    take();
  } while (accept(","));
  scopes_.back().symbols[label] = {SymbolKind::targets, static_cast<std::uint32_t>(function_->branch_targets.size())};
  function_->branch_targets.push_back(std::move(targets));
  return expect(";");
}

bool Parser::body_directive() {
  const std::string_view word = token_.text;
  if (word == "reg") {
    take();
    return register_declaration();
  }
  if (word == "local" || word == "shared" || word == "param") {
    take();
    return local_variable(word == "local" ? Space::local : word == "shared" ? Space::shared : Space::frame);
  }
  if (word == "loc") {
    const int line = token_.line;
    while (token_.line == line && token_.kind != TokenKind::end && !token_.is("}")) take();
    return true;
  }
  if (word == "pragma") return skip_to_semicolon();
  return fail("unsupported directive '." + std::string(word) + "'");
}

bool Parser::register_declaration() {
  Declaration declaration;
  if (!declaration_type(declaration)) return false;
  if (declaration.vector != 1) return fail("unsupported: vector registers");
  if (declaration.type == Type::b128) return fail("unsupported type '.b128' of a register");
  do {
    if (token_.kind != TokenKind::word) return fail("syntax error: expected a register name before " + shown());
    const Token name = token_;
    take();
    if (accept("<")) {
      if (token_.kind != TokenKind::integer || token_.bits > 10000000) return fail("malformed register count");
      scopes_.back().ranges.push_back({name.text, static_cast<std::uint32_t>(token_.bits), declaration.type, {}});
      take();
      if (!expect(">")) return false;
    } else {
      scopes_.back().symbols[name.text] = {SymbolKind::reg, static_cast<std::uint32_t>(function_->registers.size())};
      function_->registers.push_back(declaration.type);
    }
  } while (accept(","));
  return expect(";");
}

bool Parser::local_variable(Space space) {
  Declaration declaration;
  if (!declaration_type(declaration)) return false;
  do {
    Token name;
    std::size_t count = 1;
    bool open = false;
    if (!declared_name(name, count, open)) return false;
    const std::size_t element = static_cast<std::size_t>(bytes_of(declaration.type) * declaration.vector);
    if (count > (1U << 26) / element) return fail_at(name, "array is too large");
    Variable variable{std::string(name.text), space, element * count, declaration.align, 0, open};
    const auto index = static_cast<std::uint32_t>(syntax_.variables.size());
    scopes_.back().symbols[name.text] = {SymbolKind::variable, index};
    function_->variables.push_back(index);
    syntax_.variables.push_back(std::move(variable));
  } while (accept(","));
  return expect(";");
}

bool Parser::resolve(std::string_view name, Symbol& out, const Token& at) {
  if (name == "_") {
    out = {SymbolKind::sink, 0};
    return true;
  }
  std::size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  std::uint32_t number = kNoIndex;
  if (digits < name.size() && (name[digits] != '0' || digits + 1 == name.size())) {
    std::from_chars(name.data() + digits, name.data() + name.size(), number);
  }
  for (std::size_t i = scopes_.size(); i-- > 0;) {
    Scope& scope = scopes_[i];
    if (const auto found = scope.symbols.find(name); found != scope.symbols.end()) {
      out = found->second;
      return true;
    }
    if (number == kNoIndex) continue;
    for (Range& range : scope.ranges) {
      // The prefix may itself end in digits: "%r1<4>" makes %r10 … %r13.
      if (name.size() <= range.prefix.size() || !name.starts_with(range.prefix)) continue;
      const std::string_view rest = name.substr(range.prefix.size());
      std::uint32_t member = kNoIndex;
      const auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), member);
      if (code != std::errc{} || end != rest.data() + rest.size() || member >= range.count) continue;
      if (rest.size() > 1 && rest[0] == '0') continue;
      if (range.numbers.size() <= member) range.numbers.resize(member + 1, kNoIndex);
      if (range.numbers[member] == kNoIndex) {
        range.numbers[member] = static_cast<std::uint32_t>(function_->registers.size());
        function_->registers.push_back(range.type);
      }
      out = {SymbolKind::reg, range.numbers[member]};
      return true;
    }
  }
  if (const auto special = special_register(name)) {
    out = {SymbolKind::special, *special};
    return true;
  }
  if (const auto found = module_.symbols.find(name); found != module_.symbols.end()) {
    out = found->second;
    return true;
  }
  return fail_at(at, "Unknown symbol '" + std::string(name) + "'");
}

bool Parser::instruction() {
  Instruction instruction;
  if (accept("@")) {
    instruction.guard_inverted = accept("!");
    Symbol symbol;
    if (token_.kind != TokenKind::word) return fail("syntax error: expected a predicate before " + shown());
    if (!resolve(token_.text, symbol, token_)) return false;
    if (symbol.kind != SymbolKind::reg || function_->registers[symbol.index] != Type::pred) {
      return fail("a guard must be a predicate, not " + shown());
    }
    instruction.guard = symbol.index;
    take();
  }
  if (token_.kind != TokenKind::word) return fail("syntax error: expected an instruction before " + shown());
  instruction.opcode = token_.text;
  instruction.line = token_.line;
  instruction.column = token_.column;
  for (std::string_view rest = token_.text; !rest.empty();) {
    const std::size_t dot = rest.find('.');
    instruction.parts.push_back(rest.substr(0, dot));
    rest = dot == std::string_view::npos ? std::string_view{} : rest.substr(dot + 1);
  }
  take();
  const bool is_branch = instruction.parts[0] == "bra";
  while (!token_.is(";")) {
    if (!instruction.operands.empty() && !expect(",")) return false;
    Operand operand_read;
    operand_read.line = token_.line;
    operand_read.column = token_.column;
    operand_read.text = token_.text;
    if (is_branch) {
      if (token_.kind != TokenKind::word) return fail("syntax error: expected a label before " + shown());
      operand_read.kind = OperandKind::symbol;
      operand_read.symbol = {SymbolKind::label, label_number(token_.text)};
      take();
    } else if (!operand(operand_read)) {
      return false;
    }
    if (instruction.operands.size() >= 16) return fail("too many operands");
    instruction.operands.push_back(std::move(operand_read));
  }
  take();
  function_->instructions.push_back(std::move(instruction));
  return true;
}

}  // namespace tensor_fusion::sim::ptx
