#pragma once
// cvt to and from the floating-point types that no register holds: tf32, and pairs of eight bits.
#include "sim/ptx/alu/real.h"

namespace tensor_fusion::sim::ptx::TF_PTX_ISA {
namespace {

struct Tf32Near {
  static uint32_t f(uint32_t b) {
    const uint32_t m = b & 0x7fffffffU;
    return m > 0x7f800000U ? 0x7fffffffU : m == 0x7f800000U ? b : (b + 0x0fffU + ((b >> 13) & 1U)) & ~0x1fffU;
  }
};
struct Tf32Away {
  static uint32_t f(uint32_t b) {
    const uint32_t m = b & 0x7fffffffU;
    return m > 0x7f800000U ? 0x7fffffffU : m == 0x7f800000U ? b : (b + 0x1000U) & ~0x1fffU;
  }
};
struct Tf32Zero {
  static uint32_t f(uint32_t b) {
    const uint32_t m = b & 0x7fffffffU;
    return m > 0x7f800000U ? 0x7fffffffU : b & ~0x1fffU;
  }
};

template <int M, int E>
struct ToFloat8 {  // high byte from a, low byte from b
  static uint16_t f(float a, float b) {
    return static_cast<uint16_t>((narrow<M, E>(static_cast<double>(a), Rounding::rn, true) << 8) |
                                 narrow<M, E>(static_cast<double>(b), Rounding::rn, true));
  }
};
template <int M, int E>
struct PairToFloat8 {
  static uint16_t f(uint32_t a) {
    return ToFloat8<M, E>::f(float_of_half(static_cast<uint16_t>(a >> 16)), float_of_half(static_cast<uint16_t>(a)));
  }
};
template <int M, int E>
inline uint32_t half_of_float8(uint32_t x) {
  const uint32_t sign = (x & 0x80U) << 8;
  const uint32_t m = x & 0x7fU;
  if constexpr (M == 2) return m > 0x7cU ? 0x7fffU : sign | (m << 8);
  if (m == 0x7fU) return 0x7fffU;
  const float magnitude =
      (m >> 3) == 0 ? static_cast<float>(m) * 0x1p-9F : bits_as<float>(((m >> 3) + 120U) << 23 | (m & 7U) << 20);
  return sign | half_of_float(magnitude);
}
template <int M, int E>
struct OfFloat8 {
  static uint32_t f(uint16_t a) {
    return half_of_float8<M, E>(a & 0xffU) | (half_of_float8<M, E>(static_cast<uint32_t>(a >> 8)) << 16);
  }
};

AluFn find_small(const AluKey& key) {
  switch (key.type) {
    case Type::e4m3x2:
      return key.from == Type::f32     ? binary<ToFloat8<3, 4>, uint16_t, float, float>
             : key.from == Type::f16x2 ? unary<PairToFloat8<3, 4>, uint16_t, uint32_t>
                                       : nullptr;
    case Type::e5m2x2:
      return key.from == Type::f32     ? binary<ToFloat8<2, 5>, uint16_t, float, float>
             : key.from == Type::f16x2 ? unary<PairToFloat8<2, 5>, uint16_t, uint32_t>
                                       : nullptr;
    case Type::f16x2:
      return key.from == Type::e4m3x2   ? unary<OfFloat8<3, 4>, uint32_t, uint16_t>
             : key.from == Type::e5m2x2 ? unary<OfFloat8<2, 5>, uint32_t, uint16_t>
                                        : nullptr;
    case Type::tf32:
      return key.rounding == Rounding::rna  ? unary<Tf32Away, uint32_t, uint32_t>
             : key.rounding == Rounding::rz ? unary<Tf32Zero, uint32_t, uint32_t>
                                            : unary<Tf32Near, uint32_t, uint32_t>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace tensor_fusion::sim::ptx::TF_PTX_ISA
