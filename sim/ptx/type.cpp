#include "sim/ptx/type.h"

#include <array>
#include <utility>

namespace tensor_fusion::sim::ptx {
namespace {

constexpr std::array<std::pair<std::string_view, Type>, 25> kNames{{
    {"pred", Type::pred},     {"b8", Type::b8},       {"b16", Type::b16},     {"b32", Type::b32},
    {"b64", Type::b64},       {"b128", Type::b128},   {"u8", Type::u8},       {"u16", Type::u16},
    {"u32", Type::u32},       {"u64", Type::u64},     {"s8", Type::s8},       {"s16", Type::s16},
    {"s32", Type::s32},       {"s64", Type::s64},     {"f16", Type::f16},     {"f32", Type::f32},
    {"f64", Type::f64},       {"bf16", Type::bf16},   {"tf32", Type::tf32},   {"f16x2", Type::f16x2},
    {"bf16x2", Type::bf16x2}, {"u16x2", Type::u16x2}, {"s16x2", Type::s16x2}, {"e4m3x2", Type::e4m3x2},
    {"e5m2x2", Type::e5m2x2},
}};

}  // namespace

std::optional<Type> type_named(std::string_view name) {
  for (const auto& [text, type] : kNames) {
    if (text == name) return type;
  }
  return std::nullopt;
}

int bytes_of(Type type) {
  switch (type) {
    case Type::none:
      return 0;
    case Type::pred:
    case Type::b8:
    case Type::u8:
    case Type::s8:
      return 1;
    case Type::b16:
    case Type::u16:
    case Type::s16:
    case Type::f16:
    case Type::bf16:
    case Type::e4m3x2:
    case Type::e5m2x2:
      return 2;
    case Type::b64:
    case Type::u64:
    case Type::s64:
    case Type::f64:
      return 8;
    case Type::b128:
      return 16;
    default:
      return 4;
  }
}

bool is_signed(Type type) { return type == Type::s8 || type == Type::s16 || type == Type::s32 || type == Type::s64; }

bool is_integer(Type type) { return type >= Type::b8 && type <= Type::s64 && type != Type::b128; }

bool is_floating(Type type) { return type >= Type::f16 && type <= Type::bf16x2; }

Type unsigned_of(int bytes) {
  return bytes == 1 ? Type::u8 : bytes == 2 ? Type::u16 : bytes == 4 ? Type::u32 : Type::u64;
}

}  // namespace tensor_fusion::sim::ptx
