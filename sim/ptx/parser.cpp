#include "sim/ptx/parser.h"

#include <bit>
#include <charconv>

namespace tensor_fusion::sim::ptx {
namespace {

constexpr std::size_t kMaxParameterBytes = 32764;

}  // namespace

std::size_t lay_out(std::vector<Parameter>& parameters) {
  std::size_t end = 0;
  for (Parameter& parameter : parameters) {
    parameter.offset = (end + parameter.align - 1) / parameter.align * parameter.align;
    end = parameter.offset + parameter.size;
  }
  return end;
}

Parser::Parser(std::string_view text, const ParseOptions& options) : lexer_(text), options_(options) {
  take();
  take();
}

bool Parser::fail_at(const Token& token, std::string message) {
  if (error_.message.empty()) {
    error_.line = token.line;
    error_.column = token.column;
    error_.message = std::move(message);
  }
  return false;
}

std::string Parser::shown() const {
  if (token_.kind == TokenKind::end) return "end of text";
  return "'" + std::string(token_.text.substr(0, 60)) + "'";
}

bool Parser::expect(std::string_view punctuation) {
  if (!token_.is(punctuation))
    return fail("syntax error: expected '" + std::string(punctuation) + "' before " + shown());
  take();
  return true;
}

bool Parser::accept(std::string_view punctuation) {
  if (!token_.is(punctuation)) return false;
  take();
  return true;
}

bool Parser::skip_to_semicolon() {
  while (!token_.is(";")) {
    if (token_.kind == TokenKind::end) return fail("syntax error: expected ';' before end of text");
    take();
  }
  take();
  return true;
}

bool Parser::constant(std::int64_t& out) {
  const bool negative = accept("-");
  if (token_.kind != TokenKind::integer) return fail("syntax error: expected an integer before " + shown());
  out = static_cast<std::int64_t>(negative ? 0 - token_.bits : token_.bits);
  take();
  return true;
}

bool Parser::parse() {
  if (!header()) return false;
  while (token_.kind != TokenKind::end) {
    if (!module_statement()) return false;
  }
  return true;
}

bool Parser::header() {
  if (token_.kind != TokenKind::directive || token_.text != "version") {
    return fail("Missing .version directive at start of file");
  }
  take();
  double version = 0;
  const auto [end, code] = std::from_chars(token_.text.data(), token_.text.data() + token_.text.size(), version);
  if (code != std::errc{} || end != token_.text.data() + token_.text.size() || version < 1 || version > 99) {
    return fail("malformed .version " + shown());
  }
  syntax_.isa_version = static_cast<int>(version * 10 + 0.5);
  take();
  if (token_.kind != TokenKind::directive || token_.text != "target") return fail("Missing .target directive");
  take();
  if (token_.kind != TokenKind::word || !token_.text.starts_with("sm_")) return fail("unknown .target " + shown());
  std::string_view digits = token_.text.substr(3);
  while (!digits.empty() && (digits.back() == 'a' || digits.back() == 'f')) digits.remove_suffix(1);
  const auto [digits_end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), syntax_.target);
  if (error != std::errc{} || digits_end != digits.data() + digits.size()) return fail("unknown .target " + shown());
  if (syntax_.target > options_.device_capability) {
    return fail("SM version specified by .target is higher than the device's sm_" +
                std::to_string(options_.device_capability));
  }
  take();
  while (accept(",")) take();
  if (token_.kind == TokenKind::directive && token_.text == "address_size") {
    take();
    if (token_.kind != TokenKind::integer || token_.bits != 64) return fail("only .address_size 64 is supported");
    take();
  }
  return true;
}

bool Parser::module_statement() {
  Declaration declaration;
  while (true) {
    if (token_.kind != TokenKind::directive) return fail("syntax error at " + shown());
    const std::string_view word = token_.text;
    if (word == "extern") {
      declaration.is_extern = true;
    } else if (word == "visible" || word == "weak" || word == "common") {
      declaration.visible = true;
    } else {
      break;
    }
    take();
  }
  const std::string_view word = token_.text;
  if (word == "entry" || word == "func") {
    take();
    return function(word == "entry", declaration.visible);
  }
  if (word == "global" || word == "const" || word == "shared") {
    take();
    const Space space = word == "global" ? Space::global : word == "const" ? Space::constant : Space::shared;
    return global_variable(space, declaration);
  }
  if (word == "file" || word == "loc") {
    const int line = token_.line;
    while (token_.line == line && token_.kind != TokenKind::end) take();
    return true;
  }
  if (word == "pragma" || word == "alias") return skip_to_semicolon();
  if (word == "section") {
    while (!token_.is("}")) {
      if (token_.kind == TokenKind::end) return fail("syntax error: .section without '}'");
      take();
    }
    take();
    return true;
  }
  return fail("unsupported directive '." + std::string(word) + "'");
}

bool Parser::declaration_type(Declaration& declaration) {
  while (token_.kind == TokenKind::directive) {
    const std::string_view word = token_.text;
    if (word == "align") {
      take();
      if (token_.kind != TokenKind::integer || !std::has_single_bit(token_.bits) || token_.bits > 4096) {
        return fail(".align needs a power of two, not " + shown());
      }
      declaration.align = token_.bits;
    } else if (word == "v2" || word == "v4" || word == "v8") {
      declaration.vector = word[1] - '0';
    } else if (word == "ptr" || word == "global" || word == "const" || word == "shared" || word == "local" ||
               word == "param" || word == "attribute") {
      // of a kernel parameter: what it points to
    } else if (const auto type = type_named(word)) {
      declaration.type = *type;
    } else if (word == "texref" || word == "samplerref" || word == "surfref") {
      return fail("unsupported type '." + std::string(word) + "'");
    } else {
      return fail("syntax error: expected a type before '." + std::string(word) + "'");
    }
    take();
  }
  if (declaration.type == Type::none) return fail("syntax error: expected a type before " + shown());
  const std::size_t natural = static_cast<std::size_t>(bytes_of(declaration.type) * declaration.vector);
  if (declaration.align == 0) declaration.align = natural;
  return true;
}

bool Parser::dimensions(std::size_t& count, bool& open) {
  while (accept("[")) {
    if (accept("]")) {
      open = true;
      count = 0;
      continue;
    }
    std::int64_t value = 0;
    if (!constant(value)) return false;
    if (value < 0 || static_cast<std::uint64_t>(value) > kMaxVariableBytes ||
        (value != 0 && count > kMaxVariableBytes / static_cast<std::uint64_t>(value))) {
      return fail("array is too large");
    }
    count *= static_cast<std::size_t>(value);
    if (!expect("]")) return false;
  }
  return true;
}

// A name that begins to mean something, and how many of it there are. `open`: as many as it turns out.
bool Parser::declared_name(Token& name, std::size_t& count, bool& open) {
  if (token_.kind != TokenKind::word) return fail("syntax error: expected a name before " + shown());
  name = token_;
  take();
  return dimensions(count, open);
}

bool Parser::parameter_list(std::vector<Parameter>& parameters, SymbolKind kind, Scope* scope) {
  if (!accept("(")) return true;
  while (!accept(")")) {
    if (!parameters.empty() && !expect(",")) return false;
    if (token_.kind != TokenKind::directive || (token_.text != "param" && token_.text != "reg")) {
      return fail("syntax error: expected .param before " + shown());
    }
    if (token_.text == "reg") return fail("unsupported: .reg parameters of a function");
    take();
    Declaration declaration;
    if (!declaration_type(declaration)) return false;
    Token name;
    std::size_t count = 1;
    bool open = false;
    if (!declared_name(name, count, open)) return false;
    if (open) return fail_at(name, "unsupported: parameter array without a size");
    Parameter parameter;
    parameter.name = name.text;
    parameter.size = static_cast<std::size_t>(bytes_of(declaration.type) * declaration.vector) * count;
    parameter.align = declaration.align;
    if (parameter.size > kMaxParameterBytes) return fail_at(name, "parameter is too large");
    const Symbol symbol{kind, static_cast<std::uint32_t>(parameters.size())};
    if (scope != nullptr && name.text != "_") scope->symbols[name.text] = symbol;
    parameters.push_back(std::move(parameter));
  }
  if (lay_out(parameters) > kMaxParameterBytes) return fail("parameters take more than 32764 bytes");
  return true;
}

bool Parser::performance_directives(Function& function) {
  while (token_.kind == TokenKind::directive) {
    const std::string_view word = token_.text;
    if (word == "noreturn") {
      function.no_return = true;
      take();
    } else if (word == "maxntid" || word == "reqntid" || word == "minnctapersm" || word == "maxnreg" ||
               word == "maxnctapersm" || word == "reqnctapercluster" || word == "maxclusterrank") {
      take();
      std::array<std::uint32_t, 3> sizes{1, 1, 1};
      std::size_t count = 0;
      do {
        std::int64_t value = 0;
        if (!constant(value)) return false;
        if (count < 3) sizes[count++] = static_cast<std::uint32_t>(value);
      } while (accept(","));
      if (word == "maxntid") function.maxntid = sizes;
      if (word == "reqntid") function.reqntid = sizes;
    } else if (word == "explicitcluster" || word == "blocksareclusters" || word == "unique") {
      take();
    } else if (word == "pragma") {
      if (!skip_to_semicolon()) return false;
    } else if (word == "abi_preserve" || word == "abi_preserve_control") {
      take();
      take();
    } else {
      return fail("unsupported directive '." + std::string(word) + "'");
    }
  }
  return true;
}

bool Parser::function(bool is_kernel, bool visible) {
  static_cast<void>(visible);
  Scope scope;
  Function function;
  function.is_kernel = is_kernel;
  function.line = token_.line;
  if (!is_kernel && token_.is("(")) {
    if (!parameter_list(function.prototype.results, SymbolKind::result, &scope)) return false;
  }
  if (token_.kind != TokenKind::word) return fail("syntax error: expected a function name before " + shown());
  const Token name = token_;
  function.name = name.text;
  take();
  if (!parameter_list(function.prototype.parameters, SymbolKind::parameter, &scope)) return false;
  if (!performance_directives(function)) return false;

  std::uint32_t index = static_cast<std::uint32_t>(syntax_.functions.size());
  if (const auto found = functions_.find(name.text); found != functions_.end()) {
    index = found->second;
    if (syntax_.functions[index].has_body && token_.is("{")) {
      return fail_at(name, "duplicate definition of function '" + function.name + "'");
    }
    if (syntax_.functions[index].is_kernel != is_kernel) return fail_at(name, "'" + function.name + "' redeclared");
    if (!token_.is("{")) {
      accept(";");
      return true;
    }
    syntax_.functions[index] = std::move(function);
  } else {
    if (module_.symbols.contains(name.text)) return fail_at(name, "duplicate definition of '" + function.name + "'");
    functions_[name.text] = index;
    module_.symbols[name.text] = {SymbolKind::function, index};
    syntax_.functions.push_back(std::move(function));
  }
  if (accept(";")) return true;
  if (!token_.is("{")) return fail("syntax error: expected a function body before " + shown());
  function_ = &syntax_.functions[index];
  function_->has_body = true;
  scopes_.clear();
  scopes_.push_back(std::move(scope));
  const bool good = body();
  function_ = nullptr;
  scopes_.clear();
  return good;
}

std::expected<Syntax, ParseError> parse_syntax(std::string_view text, const ParseOptions& options) {
  Parser parser(text, options);
  if (!parser.parse()) return std::unexpected(parser.error());
  return std::move(parser.result());
}

}  // namespace tensor_fusion::sim::ptx
