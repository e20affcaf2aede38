// Variables of the module and what they start with.
#include <algorithm>
#include <bit>
#include <cstring>

#include "sim/ptx/parser.h"

namespace tensor_fusion::sim::ptx {

bool Parser::global_variable(Space space, Declaration declaration) {
  if (!declaration_type(declaration)) return false;
  while (true) {
    Token name;
    std::size_t count = 1;
    bool open = false;
    if (!declared_name(name, count, open)) return false;
    const std::size_t element = static_cast<std::size_t>(bytes_of(declaration.type) * declaration.vector);
    if (count > kMaxVariableBytes / element) return fail_at(name, "array is too large");
    const auto known = module_.symbols.find(name.text);
    if (space == Space::shared) {
      if (known != module_.symbols.end())
        return fail_at(name, "duplicate definition of '" + std::string(name.text) + "'");
      Variable variable{std::string(name.text), space, element * count, declaration.align, 0, open};
      if (variable.size > (1U << 30)) return fail_at(name, "array is too large");
      module_.symbols[name.text] = {SymbolKind::variable, static_cast<std::uint32_t>(syntax_.variables.size())};
      syntax_.variables.push_back(std::move(variable));
    } else {
      Global global;
      global.name = name.text;
      global.space = space == Space::global ? GlobalSpace::global : GlobalSpace::constant;
      global.align = declaration.align;
      global.is_extern = declaration.is_extern;
      global.visible = declaration.visible;
      std::size_t elements = 0;
      if (accept("=")) {
        if (!initializer(global, declaration.type, elements)) return false;
        if (open)
          count = (elements + static_cast<std::size_t>(declaration.vector) - 1) /
                  static_cast<std::size_t>(declaration.vector);
      }
      global.size = element * count;
      if (global.initial.size() > global.size)
        return fail_at(name, "too many initial values for '" + global.name + "'");
      std::uint32_t index = static_cast<std::uint32_t>(syntax_.globals.size());
      if (known != module_.symbols.end()) {
        if (known->second.kind != SymbolKind::global || !syntax_.globals[known->second.index].is_extern) {
          return fail_at(name, "duplicate definition of '" + global.name + "'");
        }
        index = known->second.index;
        if (!global.is_extern) syntax_.globals[index] = std::move(global);
      } else {
        syntax_.globals.push_back(std::move(global));
        module_.symbols[name.text] = {SymbolKind::global, index};
      }
    }
    if (accept(",")) continue;
    return expect(";");
  }
}

bool Parser::value(Value& out) {
  bool negative = false;
  while (token_.is("-") || token_.is("+")) {
    negative ^= token_.is("-");
    take();
  }
  if (token_.kind == TokenKind::integer) {
    out.bits = token_.bits;
    take();
    if (token_.is("(")) {  // 0xFF00(symbol): one byte of an address
      take();
      if (!std::has_single_bit(out.bits / 0xff) || out.bits % 0xff != 0) return fail("malformed mask of an address");
      out.mask_shift = std::countr_zero(out.bits);
      return value(out) && expect(")");
    }
    if (negative) out.bits = 0 - out.bits;
    return true;
  }
  if (token_.kind == TokenKind::float32 || token_.kind == TokenKind::float64) {
    out.is_float32 = token_.kind == TokenKind::float32;
    out.is_float64 = !out.is_float32;
    out.bits = token_.bits;
    if (negative) out.bits ^= out.is_float32 ? 0x80000000ULL : 0x8000000000000000ULL;
    take();
    return true;
  }
  if (token_.kind != TokenKind::word) return fail("syntax error: expected a value before " + shown());
  if (token_.text == "generic") {
    take();
    if (!expect("(")) return false;
    if (!value(out) || !expect(")")) return false;
  } else {
    if (!resolve(token_.text, out.symbol, token_)) return false;
    if (out.symbol.kind != SymbolKind::global && out.symbol.kind != SymbolKind::function) {
      return fail("an initial value cannot refer to " + shown());
    }
    take();
  }
  return addends(out.addend);
}

bool Parser::store_value(Global& global, Type type, std::size_t position, const Value& value) {
  const std::size_t width = static_cast<std::size_t>(bytes_of(type));
  const std::size_t offset = position * width;
  if (offset + width > (std::size_t{1} << 30)) return fail("too many initial values");
  if (global.initial.size() < offset + width) global.initial.resize(offset + width);
  if (value.symbol.kind != SymbolKind::none) {
    if (value.mask_shift < 0 && width != 8 && width != 4) return fail("an address needs 8 bytes");
    Relocation relocation;
    relocation.offset = offset;
    relocation.width = std::min<std::size_t>(width, 8);
    relocation.shift = std::max(value.mask_shift, 0);
    relocation.target = value.symbol.kind == SymbolKind::global ? RelocationTarget::global : RelocationTarget::function;
    relocation.index = value.symbol.index;
    relocation.addend = value.addend;
    global.relocations.push_back(relocation);
    return true;
  }
  std::uint64_t bits = value.bits;
  if (type == Type::f32 && !value.is_float32) {
    const double wide =
        value.is_float64 ? std::bit_cast<double>(bits) : static_cast<double>(static_cast<std::int64_t>(bits));
    bits = std::bit_cast<std::uint32_t>(static_cast<float>(wide));
  } else if (type == Type::f64 && value.is_float32) {
    bits = std::bit_cast<std::uint64_t>(static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits))));
  } else if (type == Type::f64 && !value.is_float64) {
    bits = std::bit_cast<std::uint64_t>(static_cast<double>(static_cast<std::int64_t>(bits)));
  }
  std::memcpy(global.initial.data() + offset, &bits, std::min<std::size_t>(width, 8));
  return true;
}

bool Parser::initializer(Global& global, Type type, std::size_t& elements) {
  if (!token_.is("{")) {
    Value single;
    if (!value(single) || !store_value(global, type, elements, single)) return false;
    ++elements;
    return true;
  }
  if (++depth_ > 16) return fail("initial values are nested too deeply");
  take();
  while (!accept("}")) {
    if (!initializer(global, type, elements)) return false;
    if (!token_.is("}") && !expect(",")) return false;
  }
  --depth_;
  return true;
}

}  // namespace tensor_fusion::sim::ptx
