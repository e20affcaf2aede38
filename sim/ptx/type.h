#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tensor_fusion::sim::ptx {

// A PTX scalar type as it stands in an opcode or a declaration.
enum class Type : std::uint8_t {
  none,
  pred,
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f32,
  f64,
  bf16,
  tf32,
  f16x2,
  bf16x2,
  u16x2,
  s16x2,
  e4m3x2,
  e5m2x2
};

[[nodiscard]] std::optional<Type> type_named(std::string_view name);  // "u32", without the dot
[[nodiscard]] int bytes_of(Type type);                                // a predicate has 1
[[nodiscard]] bool is_signed(Type type);                              // s8 … s64
[[nodiscard]] bool is_integer(Type type);                             // b, u and s
[[nodiscard]] bool is_floating(Type type);
[[nodiscard]] Type unsigned_of(int bytes);  // 4 → u32

}  // namespace tensor_fusion::sim::ptx
