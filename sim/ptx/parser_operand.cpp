// Operands of instructions.
#include "sim/ptx/parser.h"
#include "sim/ptx/special.h"

namespace tensor_fusion::sim::ptx {

bool Parser::list(Operand& out, std::string_view close) {
  if (++depth_ > 8) return fail("operands are nested too deeply");
  take();
  while (!accept(close)) {
    if (!out.elements.empty() && !expect(",")) return false;
    Operand element;
    element.line = token_.line;
    element.column = token_.column;
    element.text = token_.text;
    if (!operand(element)) return false;
    if (out.elements.size() >= 4096) return fail("too many operands");
    out.elements.push_back(std::move(element));
  }
  --depth_;
  return true;
}

bool Parser::operand(Operand& out) {
  if (token_.is("{")) {
    out.kind = OperandKind::vector;
    return list(out, "}");
  }
  if (token_.is("(")) {
    out.kind = OperandKind::list;
    return list(out, ")");
  }
  if (token_.is("[")) return address(out);
  if (accept("!")) out.inverted = true;
  bool negative = false;
  bool complement = false;
  while (token_.is("-") || token_.is("+") || token_.is("~")) {
    if (token_.is("~"))
      complement = !complement;
    else
      negative ^= token_.is("-");
    take();
  }
  if (token_.kind == TokenKind::integer) {
    out.kind = OperandKind::integer;
    out.bits = negative ? 0 - token_.bits : token_.bits;
    if (complement) out.bits = ~out.bits;
    take();
    return true;
  }
  if (token_.kind == TokenKind::float32 || token_.kind == TokenKind::float64) {
    const bool single = token_.kind == TokenKind::float32;
    out.kind = single ? OperandKind::float32 : OperandKind::float64;
    out.bits = token_.bits;
    if (negative) out.bits ^= single ? 0x80000000ULL : 0x8000000000000000ULL;
    take();
    return true;
  }
  if (token_.kind != TokenKind::word || negative || complement) {
    return fail("syntax error: expected an operand before " + shown());
  }
  return name_operand(out);
}

bool Parser::name_operand(Operand& out) {
  out.text = token_.text;
  if (token_.text == "WARP_SZ") {
    out.kind = OperandKind::integer;
    out.bits = 32;
    take();
    return true;
  }
  out.kind = OperandKind::symbol;
  if (!resolve(token_.text, out.symbol, token_)) return false;
  take();
  if (accept("|")) {
    Symbol second;
    if (token_.kind != TokenKind::word) return fail("syntax error: expected a register before " + shown());
    if (!resolve(token_.text, second, token_)) return false;
    if (second.kind != SymbolKind::reg && second.kind != SymbolKind::sink) {
      return fail("expected a register, not " + shown());
    }
    out.second = second.kind == SymbolKind::sink ? kNoIndex : second.index;
    take();
  } else if (token_.is("+") || token_.is("-")) {
    const bool minus = token_.is("-");
    take();
    if (!constant(out.offset)) return false;
    if (minus) out.offset = static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(out.offset));
  } else if (accept("[")) {  // name[index]: the address of a byte of it
    if (!constant(out.offset) || !expect("]")) return false;
  }
  return true;
}

// Any number of "+ 4" and "- 4", which may wrap.
bool Parser::addends(std::int64_t& sum) {
  while (token_.is("+") || token_.is("-")) {
    const bool minus = token_.is("-");
    take();
    std::int64_t addend = 0;
    if (!constant(addend)) return false;
    const auto before = static_cast<std::uint64_t>(sum);
    sum = static_cast<std::int64_t>(minus ? before - static_cast<std::uint64_t>(addend)
                                          : before + static_cast<std::uint64_t>(addend));
  }
  return true;
}

bool Parser::address(Operand& out) {
  out.kind = OperandKind::address;
  take();
  if (token_.kind == TokenKind::word) {
    if (!resolve(token_.text, out.symbol, token_)) return false;
    out.text = token_.text;
    take();
    if (!addends(out.offset)) return false;
  } else if (!constant(out.offset)) {
    return false;
  }
  return expect("]");
}

std::optional<std::uint32_t> special_register(std::string_view name) {
  struct Entry {
    std::string_view name;
    Special special;
  };
  static constexpr Entry kEntries[] = {
      {"%tid.x", Special::tid_x},
      {"%tid.y", Special::tid_y},
      {"%tid.z", Special::tid_z},
      {"%tid", Special::tid_x},
      {"%ntid.x", Special::ntid_x},
      {"%ntid.y", Special::ntid_y},
      {"%ntid.z", Special::ntid_z},
      {"%ntid", Special::ntid_x},
      {"%ctaid.x", Special::ctaid_x},
      {"%ctaid.y", Special::ctaid_y},
      {"%ctaid.z", Special::ctaid_z},
      {"%ctaid", Special::ctaid_x},
      {"%nctaid.x", Special::nctaid_x},
      {"%nctaid.y", Special::nctaid_y},
      {"%nctaid.z", Special::nctaid_z},
      {"%nctaid", Special::nctaid_x},
      {"%laneid", Special::laneid},
      {"%warpid", Special::warpid},
      {"%nwarpid", Special::nwarpid},
      {"%smid", Special::smid},
      {"%nsmid", Special::nsmid},
      {"%gridid", Special::gridid},
      {"%lanemask_eq", Special::lanemask_eq},
      {"%lanemask_le", Special::lanemask_le},
      {"%lanemask_lt", Special::lanemask_lt},
      {"%lanemask_ge", Special::lanemask_ge},
      {"%lanemask_gt", Special::lanemask_gt},
      {"%clock", Special::clock},
      {"%clock_hi", Special::clock_hi},
      {"%clock64", Special::clock64},
      {"%globaltimer", Special::globaltimer},
      {"%globaltimer_lo", Special::globaltimer_lo},
      {"%globaltimer_hi", Special::globaltimer_hi},
      {"%dynamic_smem_size", Special::dynamic_smem_size},
      {"%total_smem_size", Special::total_smem_size},
      {"%cluster_ctaid.x", Special::zero},
      {"%cluster_ctaid.y", Special::zero},
      {"%cluster_ctaid.z", Special::zero},
      {"%cluster_nctaid.x", Special::cluster_nctaid},
      {"%cluster_nctaid.y", Special::cluster_nctaid},
      {"%cluster_nctaid.z", Special::cluster_nctaid},
      {"%cluster_ctarank", Special::zero},
      {"%cluster_nctarank", Special::cluster_nctaid},
      {"%clusterid.x", Special::ctaid_x},
      {"%clusterid.y", Special::ctaid_y},
      {"%clusterid.z", Special::ctaid_z},
      {"%nclusterid.x", Special::nctaid_x},
      {"%nclusterid.y", Special::nctaid_y},
      {"%nclusterid.z", Special::nctaid_z},
      {"%is_explicit_cluster", Special::zero},
      {"%envreg0", Special::zero},
  };
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return static_cast<std::uint32_t>(entry.special);
  }
  return std::nullopt;
}

}  // namespace tensor_fusion::sim::ptx
