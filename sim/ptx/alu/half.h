// f16 and bf16, alone and in pairs: widened, computed, rounded once.
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "sim/ptx/alu/real.h"

namespace tensor_fusion::sim::ptx::TF_PTX_ISA {
namespace {

struct F16 {
  static constexpr uint16_t kNan = 0x7fff;
  static constexpr uint16_t kMinNormal = 0x0400;
  static float wide(uint16_t h) { return float_of_half(h); }
  static uint16_t of(float x) { return half_of_float(x); }
  static uint16_t of_odd(double x) { return static_cast<uint16_t>(narrow<10, 5>(x, Rounding::rn, false)); }
  static void load(const uint16_t* from, float* to) {
#if defined(__F16C__)
    for (int i = 0; i < 32; i += 8) {
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    }
#else
    TF_LANES for (int i = 0; i < 32; ++i) to[i] = wide(from[i]);
#endif
  }
  static void store(const float* from, uint16_t* to) {
#if defined(__F16C__)
    for (int i = 0; i < 32; i += 8) {
      const __m256 x = _mm256_loadu_ps(from + i);
      const __m128i h = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), h);
    }
    TF_LANES for (int i = 0; i < 32; ++i) to[i] = (to[i] & 0x7fff) > 0x7c00 ? kNan : to[i];
#else
    TF_LANES for (int i = 0; i < 32; ++i) to[i] = of(from[i]);
#endif
  }
};

struct BF16 {
  static constexpr uint16_t kNan = 0x7fff;
  static constexpr uint16_t kMinNormal = 0x0080;
  static float wide(uint16_t h) { return float_of_bf(h); }
  static uint16_t of(float x) { return bf_of_float(x); }
  static uint16_t of_odd(double x) { return static_cast<uint16_t>(narrow<7, 8>(x, Rounding::rn, false)); }
  static void load(const uint16_t* from, float* to) { TF_LANES for (int i = 0; i < 32; ++i) to[i] = wide(from[i]); }
  static void store(const float* from, uint16_t* to) { TF_LANES for (int i = 0; i < 32; ++i) to[i] = of(from[i]); }
};

struct HAdd {
  static float f(float a, float b) { return a + b; }
};
struct HSub {
  static float f(float a, float b) { return a - b; }
};
struct HMul {
  static float f(float a, float b) { return a * b; }
};
template <bool Max, bool Nan>
struct HExtreme {
  static float f(float a, float b) {
    const bool first = Max ? a > b : a < b;
    const bool second = Max ? b > a : b < a;
    const float equal = bits_as<float>(Max ? bits(a) & bits(b) : bits(a) | bits(b));
    const float nan = bits_as<float>(0x7fffffffU);
    float out = first ? a : second ? b : equal;
    out = a != a ? (Nan ? nan : b) : out;
    out = b != b ? (Nan || a != a ? nan : a) : out;
    return out;
  }
};

template <class H, bool Ftz>
inline void flush(uint16_t* x) {
  if constexpr (Ftz) {
    TF_LANES for (int i = 0; i < 32; ++i) x[i] = (x[i] & 0x7fff) < H::kMinNormal ? x[i] & 0x8000 : x[i];
  }
}

// Op in f32 is enough: 24 bits hold the result of one operation on 11 bits well enough to round again.
template <class H, class Op, bool Ftz, bool Sat, int Groups>
void half_binary(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
  for (uint32_t w = first; w < last; ++w) {
    for (int g = 0; g < Groups; ++g) {
      uint16_t ha[32];
      uint16_t hb[32];
      memcpy(ha, lanes_at<uint16_t>(r, in.a, w) + 32 * g, sizeof ha);
      memcpy(hb, lanes_at<uint16_t>(r, in.b, w) + 32 * g, sizeof hb);
      flush<H, Ftz>(ha);
      flush<H, Ftz>(hb);
      float a[32];
      float b[32];
      H::load(ha, a);
      H::load(hb, b);
      TF_LANES for (int i = 0; i < 32; ++i) a[i] = saturated<Sat>(Op::f(a[i], b[i]));
      uint16_t* d = lanes_at<uint16_t>(r, in.d, w) + 32 * g;
      H::store(a, d);
      flush<H, Ftz>(d);
    }
  }
}

template <class H, bool Ftz, bool Sat, bool Relu, int Groups>
void half_fma(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
  for (uint32_t w = first; w < last; ++w) {
    for (int g = 0; g < Groups; ++g) {
      uint16_t h[3][32];
      float x[3][32];
      memcpy(h[0], lanes_at<uint16_t>(r, in.a, w) + 32 * g, sizeof h[0]);
      memcpy(h[1], lanes_at<uint16_t>(r, in.b, w) + 32 * g, sizeof h[1]);
      memcpy(h[2], lanes_at<uint16_t>(r, in.c, w) + 32 * g, sizeof h[2]);
      for (int k = 0; k < 3; ++k) {
        flush<H, Ftz>(h[k]);
        H::load(h[k], x[k]);
      }
      uint16_t* d = lanes_at<uint16_t>(r, in.d, w) + 32 * g;
      for (int i = 0; i < 32; ++i) {
        double sum = odd_sum(static_cast<double>(x[0][i]) * static_cast<double>(x[1][i]), static_cast<double>(x[2][i]));
        sum = saturated<Sat>(sum);
        if (Relu && sum <= 0) sum = 0;
        d[i] = H::of_odd(sum);
      }
      flush<H, Ftz>(d);
    }
  }
}

template <class H, class Op, int Groups>
void half_unary(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
  for (uint32_t w = first; w < last; ++w) {
    const uint16_t* a = lanes_at<uint16_t>(r, in.a, w);
    uint16_t* d = lanes_at<uint16_t>(r, in.d, w);
    for (int i = 0; i < 32 * Groups; ++i) d[i] = H::of(static_cast<float>(Op::f(static_cast<double>(H::wide(a[i])))));
  }
}

struct HExp2 {
  static double f(double x) { return __builtin_exp2(x); }
};
struct HTanh {
  static double f(double x) { return __builtin_tanh(x); }
};
struct HAbs {
  static uint16_t f(uint16_t a) { return a & 0x7fff; }
};
struct HNeg {
  static uint16_t f(uint16_t a) { return a ^ 0x8000; }
};

template <class H, Compare C>
struct HCompare {
  static uint8_t f(uint16_t x, uint16_t y) {
    const float a = H::wide(x);
    const float b = H::wide(y);
    return compares<C>(a, b);
  }
};

template <class H>
AluFn find_half_compare(Compare compare) {
  switch (compare) {
    case Compare::eq:
      return binary<HCompare<H, Compare::eq>, uint8_t, uint16_t, uint16_t>;
    case Compare::ne:
      return binary<HCompare<H, Compare::ne>, uint8_t, uint16_t, uint16_t>;
    case Compare::lt:
      return binary<HCompare<H, Compare::lt>, uint8_t, uint16_t, uint16_t>;
    case Compare::le:
      return binary<HCompare<H, Compare::le>, uint8_t, uint16_t, uint16_t>;
    case Compare::equ:
      return binary<HCompare<H, Compare::equ>, uint8_t, uint16_t, uint16_t>;
    case Compare::neu:
      return binary<HCompare<H, Compare::neu>, uint8_t, uint16_t, uint16_t>;
    case Compare::ltu:
      return binary<HCompare<H, Compare::ltu>, uint8_t, uint16_t, uint16_t>;
    case Compare::leu:
      return binary<HCompare<H, Compare::leu>, uint8_t, uint16_t, uint16_t>;
    case Compare::num:
      return binary<HCompare<H, Compare::num>, uint8_t, uint16_t, uint16_t>;
    case Compare::nan:
      return binary<HCompare<H, Compare::nan>, uint8_t, uint16_t, uint16_t>;
    default:
      return nullptr;
  }
}

template <class H, class Op, int Groups>
AluFn find_half_binary(const AluKey& key) {
  if (key.ftz) return key.sat ? half_binary<H, Op, true, true, Groups> : half_binary<H, Op, true, false, Groups>;
  return key.sat ? half_binary<H, Op, false, true, Groups> : half_binary<H, Op, false, false, Groups>;
}

template <class H, int Groups>
AluFn find_half_typed(const AluKey& key) {
  switch (key.op) {
    case AluOp::add:
      return find_half_binary<H, HAdd, Groups>(key);
    case AluOp::sub:
      return find_half_binary<H, HSub, Groups>(key);
    case AluOp::mul_lo:
      return find_half_binary<H, HMul, Groups>(key);
    case AluOp::min:
      return key.nan ? find_half_binary<H, HExtreme<false, true>, Groups>(key)
                     : find_half_binary<H, HExtreme<false, false>, Groups>(key);
    case AluOp::max:
      return key.nan ? find_half_binary<H, HExtreme<true, true>, Groups>(key)
                     : find_half_binary<H, HExtreme<true, false>, Groups>(key);
    case AluOp::fma:
      if (key.relu) return key.ftz ? half_fma<H, true, false, true, Groups> : half_fma<H, false, false, true, Groups>;
      if (key.sat) return key.ftz ? half_fma<H, true, true, false, Groups> : half_fma<H, false, true, false, Groups>;
      return key.ftz ? half_fma<H, true, false, false, Groups> : half_fma<H, false, false, false, Groups>;
    case AluOp::ex2:
      return half_unary<H, HExp2, Groups>;
    case AluOp::tanh:
      return half_unary<H, HTanh, Groups>;
    case AluOp::abs:
      return unary<HAbs, uint16_t, uint16_t, 32 * Groups>;
    case AluOp::neg:
      return unary<HNeg, uint16_t, uint16_t, 32 * Groups>;
    case AluOp::compare:
      if constexpr (Groups == 1)
        return find_half_compare<H>(key.compare);
      else
        return nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

AluFn find_half(const AluKey& key) {
  switch (key.type) {
    case Type::f16:
      return find_half_typed<F16, 1>(key);
    case Type::f16x2:
      return find_half_typed<F16, 2>(key);
    case Type::bf16:
      return find_half_typed<BF16, 1>(key);
    case Type::bf16x2:
      return find_half_typed<BF16, 2>(key);
    default:
      return nullptr;
  }
}

}  // namespace tensor_fusion::sim::ptx::TF_PTX_ISA
