#pragma once

// Pieces of floating-point semantics that several tables share.
#include <fenv.h>

#include "sim/ptx/alu/kernel.h"

namespace tensor_fusion::sim::ptx::TF_PTX_ISA {
namespace {

template <class T>
struct Real;
template <>
struct Real<float> {
  using Bits = uint32_t;
  static constexpr uint32_t kSign = 0x80000000U;
  static constexpr uint32_t kInfinity = 0x7f800000U;
  static constexpr uint32_t kMinNormal = 0x00800000U;
  static constexpr uint32_t kNan = 0x7fffffffU;
};
template <>
struct Real<double> {
  using Bits = uint64_t;
  static constexpr uint64_t kSign = 0x8000000000000000ULL;
  static constexpr uint64_t kInfinity = 0x7ff0000000000000ULL;
  static constexpr uint64_t kMinNormal = 0x0010000000000000ULL;
  static constexpr uint64_t kNan = 0x7fffffffffffffffULL;
};

template <class T>
inline auto bits(T x) {
  return bits_as<typename Real<T>::Bits>(x);
}

// A subnormal becomes a zero of its sign.
template <bool Ftz, class T>
inline T flushed(T x) {
  if constexpr (!Ftz) {
    return x;
  } else {
    const auto b = bits(x);
    const auto magnitude = b & ~Real<T>::kSign;
    return bits_as<T>(magnitude < Real<T>::kMinNormal ? b & Real<T>::kSign : b);
  }
}

// Into [0, 1]; NaN becomes +0.
template <bool Sat, class T>
inline T saturated(T x) {
  if constexpr (!Sat) {
    return x;
  } else {
    const T low = x > T{0} ? x : T{0};
    return low < T{1} ? low : T{1};
  }
}

// Runs a handler in another rounding mode. No compiler knows what a mode does to arithmetic, so it must not know which
// handler is called: g++ 12 at -O1 leaves the call out altogether when it does.
template <AluFn Inner, int Mode>
void rounded(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
  AluFn handler = Inner;
  asm volatile("" : "+r"(handler) : : "memory");
  const int before = fegetround();
  fesetround(Mode);
  handler(in, r, first, last);
  asm volatile("" : : : "memory");
  fesetround(before);
}

template <AluFn Inner>
AluFn in_mode(Rounding rounding) {
  switch (rounding) {
    case Rounding::rz:
      return rounded<Inner, FE_TOWARDZERO>;
    case Rounding::rm:
      return rounded<Inner, FE_DOWNWARD>;
    case Rounding::rp:
      return rounded<Inner, FE_UPWARD>;
    default:
      return Inner;
  }
}

// setp's word on two numbers, of which either may be none.
template <Compare C, class T>
inline uint8_t compares(T a, T b) {
  switch (C) {
    case Compare::eq:
      return a == b;
    case Compare::ne:
      return (a < b) | (a > b);
    case Compare::lt:
      return a < b;
    case Compare::le:
      return a <= b;
    case Compare::equ:
      return !((a < b) | (a > b));
    case Compare::neu:
      return a != b;
    case Compare::ltu:
      return !(a >= b);
    case Compare::leu:
      return !(a > b);
    case Compare::num:
      return (a == a) & (b == b);
    default:
      return (a != a) | (b != b);
  }
}

// A floating result of 1 + E + M bits, rounded once. `finite`: overflow gives the largest number. E4M3 (E 4, M 3) has
// no infinity.
template <int M, int E>
inline uint32_t narrow(double x, Rounding rounding, bool finite) {
  constexpr int kBias = (1 << (E - 1)) - 1;
  constexpr uint32_t kSign = 1U << (M + E);
  constexpr bool kNoInfinity = M == 3 && E == 4;
  constexpr uint32_t kInfinity = ((1U << E) - 1) << M;
  constexpr uint32_t kLargest = kNoInfinity ? 0x7e : kInfinity - 1;
  const uint64_t b = bits(x);
  const uint32_t sign = (b >> 63) != 0 ? kSign : 0;
  const auto exponent = static_cast<int>((b >> 52) & 0x7ff);
  uint64_t mantissa = b & 0xfffffffffffffULL;
  if (exponent == 0x7ff) {
    if (mantissa != 0) return kSign - 1;
    return sign | (finite || kNoInfinity ? kLargest : kInfinity);
  }
  int e = exponent != 0 ? exponent - 1023 : -1022;
  if (exponent != 0) mantissa |= uint64_t{1} << 52;
  if (mantissa == 0) return sign;
  int shift = 52 - M;
  const bool tiny = e < 1 - kBias;
  if (tiny) shift += 1 - kBias - e;
  if (shift > 62) shift = 62;
  uint64_t q = mantissa >> shift;
  const uint64_t rest = mantissa & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  bool up = false;
  switch (rounding) {
    case Rounding::rz:
      break;
    case Rounding::rm:
      up = sign != 0 && rest != 0;
      break;
    case Rounding::rp:
      up = sign == 0 && rest != 0;
      break;
    case Rounding::rna:
      up = rest >= half;
      break;
    default:
      up = rest > half || (rest == half && (q & 1) != 0);
      break;
  }
  q += up ? 1 : 0;
  const int64_t out =
      tiny ? static_cast<int64_t>(q) : (static_cast<int64_t>(e + kBias - 1) << M) + static_cast<int64_t>(q);
  if (out > static_cast<int64_t>(kLargest)) {
    const bool toward_zero =
        rounding == Rounding::rz || (rounding == Rounding::rm && sign == 0) || (rounding == Rounding::rp && sign != 0);
    return sign | (finite || kNoInfinity || toward_zero ? kLargest : kInfinity);
  }
  return sign | static_cast<uint32_t>(out);
}

inline float float_of_half(uint16_t h) {
  const uint32_t magnitude = h & 0x7fffU;
  uint32_t b = bits(bits_as<float>(magnitude << 13) * 0x1p112F);
  b |= magnitude >= 0x7c00 ? 0x7f800000U : 0U;
  b = magnitude > 0x7c00 ? 0x7fffffffU : b | (static_cast<uint32_t>(h & 0x8000U) << 16);
  return bits_as<float>(b);
}

inline uint16_t half_of_float(float x) {
  const uint32_t b = bits(x);
  const uint32_t magnitude = b & 0x7fffffffU;
  const uint32_t sign = (b >> 16) & 0x8000U;
  const uint32_t tiny = bits(bits_as<float>(magnitude) + 0.5F) - 0x3f000000U;
  const uint32_t normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
  uint32_t out = magnitude < 0x38800000U ? tiny : normal;
  out = magnitude >= 0x477ff000U ? 0x7c00U : out;
  out = magnitude > 0x7f800000U ? 0x7fffU : (out | sign);
  return static_cast<uint16_t>(out);
}

inline float float_of_bf(uint16_t h) { return bits_as<float>(static_cast<uint32_t>(h) << 16); }

inline uint16_t bf_of_float(float x) {
  const uint32_t b = bits(x);
  const uint32_t out = (b + 0x7fffU + ((b >> 16) & 1U)) >> 16;
  return static_cast<uint16_t>((b & 0x7fffffffU) > 0x7f800000U ? 0x7fffU : out);
}

// The double nearest to an exact sum that two doubles hold together, with the last bit set when it is not exact
// (round to odd): rounding that once more to a narrow type is as good as rounding the exact sum.
inline double odd_sum(double a, double b) {
  const double s = a + b;
  const double t = s - a;
  const double error = (a - (s - t)) + (b - t);
  const uint64_t raw = bits(s);
  const bool inexact = error != 0 && (raw & 1) == 0 && (raw & 0x7ff0000000000000ULL) != 0x7ff0000000000000ULL;
  const bool away = (error > 0) == (s > 0);
  return inexact ? bits_as<double>(away ? raw + 1 : raw - 1) : s;
}

}  // namespace
}  // namespace tensor_fusion::sim::ptx::TF_PTX_ISA
