// The approximate functions. Each is a short polynomial in doubles rounded to f32 at the end: well inside the error the
// hardware allows itself, and the same bits on every machine, because no step may be fused.
#include "sim/ptx/alu/real.h"

namespace tensor_fusion::sim::ptx::TF_PTX_ISA {
namespace {

constexpr double kMagic = 6755399441055744.0;  // 1.5 · 2^52: adding it rounds to a whole number

struct MathExp2 {
  static double wide(double x) {
    const double clamped = x < -1000.0 ? -1000.0 : x > 1000.0 ? 1000.0 : x;
    const double shifted = clamped + kMagic;
    const double f = clamped - (shifted - kMagic);
    double p = 1.01780860092396959520e-7;
    p = p * f + 1.32154867901443052734e-6;
    p = p * f + 1.52527338040598402800e-5;
    p = p * f + 1.54035303933816099544e-4;
    p = p * f + 1.33335581464284434234e-3;
    p = p * f + 9.61812910762847716197e-3;
    p = p * f + 5.55041086648215799531e-2;
    p = p * f + 2.40226506959100712333e-1;
    p = p * f + 6.93147180559945309417e-1;
    p = p * f + 1.0;
    return p * bits_as<double>((bits(shifted) << 52) + 0x3ff0000000000000ULL);
  }
  static float f(float x) {
    const auto out = static_cast<float>(wide(static_cast<double>(x)));
    return x != x ? bits_as<float>(0x7fffffffU) : out;
  }
};

struct MathLog2 {
  static float f(float a) {
    const uint64_t raw = bits(static_cast<double>(a));
    const uint64_t shifted = raw - 0x3fe6a09e667f3bcdULL + (uint64_t{2048} << 52);  // √½; biased to stay positive
    const uint64_t biased = shifted >> 52;
    const double e = bits_as<double>(biased | 0x4330000000000000ULL) - (4503599627370496.0 + 2048.0);
    const double m = bits_as<double>(raw - ((biased - 2048) << 52));
    const double s = (m - 1.0) / (m + 1.0);
    const double z = s * s;
    double p = 0.22195308321368667;
    p = p * z + 0.26230818925253878;
    p = p * z + 0.32059889797532519;
    p = p * z + 0.41219858311113241;
    p = p * z + 0.57707801635558535;
    p = p * z + 0.96179669392597561;
    p = p * z + 2.88539008177792681;
    auto out = static_cast<float>(e + s * p);
    out = a == 0.0F ? bits_as<float>(0xff800000U) : out;
    out = bits(a) == 0x7f800000U ? a : out;
    return a < 0.0F || a != a ? bits_as<float>(0x7fffffffU) : out;
  }
};

struct MathRsqrt {
  static float f(float a) { return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(a))); }
};

struct MathTanh {
  static float f(float a) {
    const auto x = static_cast<double>(a);
    const double big = 1.0 - 2.0 / (MathExp2::wide(x * 2.88539008177792681) + 1.0);
    const double z = x * x;
    const double small = x * (1.0 - z * (0.33333333333333333 - z * (0.13333333333333333 - z * 0.053968253968253968)));
    const float out = static_cast<float>(z < 1e-4 ? small : big);
    return a != a ? bits_as<float>(0x7fffffffU) : out;
  }
};

// Quadrant 0: sine, 1: cosine.
inline float wave(float a, uint64_t quadrant) {
  const auto x = static_cast<double>(a);
  const double shifted = x * 0.63661977236758134308 + kMagic;
  const double n = shifted - kMagic;
  // π/2 in three parts, the first two short enough for exact products
  const double y = ((x - n * 1.57079632673412561417) - n * 6.07710050630396597660e-11) - n * 2.02226624879595063154e-21;
  const double z = y * y;
  const double sine =
      y * (1.0 + z * (-1.66666666666666666667e-1 +
                      z * (8.33333333333333333333e-3 +
                           z * (-1.98412698412698412698e-4 +
                                z * (2.75573192239858906526e-6 +
                                     z * (-2.50521083854417187751e-8 + z * 1.60590438368216145994e-10))))));
  const double cosine =
      1.0 + z * (-0.5 + z * (4.16666666666666666667e-2 +
                             z * (-1.38888888888888888889e-3 +
                                  z * (2.48015873015873015873e-5 +
                                       z * (-2.75573192239858906526e-7 +
                                            z * (2.08767569878680989792e-9 + z * -1.14707455977297247139e-11))))));
  const uint64_t q = bits(shifted) + quadrant;
  const double out = (q & 1) != 0 ? cosine : sine;
  return static_cast<float>(bits_as<double>(bits(out) ^ ((q & 2) << 62)));
}

template <int Quadrant>
void waves(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
  for (uint32_t w = first; w < last; ++w) {
    float* d = lanes_at<float>(r, in.d, w);
    const float* a = lanes_at<float>(r, in.a, w);
    float out[32];
    uint32_t far = 0;
    TF_LANES for (int i = 0; i < 32; ++i) out[i] = wave(a[i], Quadrant);
    for (int i = 0; i < 32; ++i) far |= (bits(a[i]) & 0x7fffffffU) > 0x48800000U ? 1U : 0U;
    if (far != 0) {  // beyond 2^18 the parts above run out of digits
      for (int i = 0; i < 32; ++i) {
        if ((bits(a[i]) & 0x7fffffffU) <= 0x48800000U) continue;
        const auto x = static_cast<double>(a[i]);
        out[i] = static_cast<float>(Quadrant == 0 ? __builtin_sin(x) : __builtin_cos(x));
        if (out[i] != out[i]) out[i] = bits_as<float>(0x7fffffffU);
      }
    }
    memcpy(d, out, sizeof out);
  }
}

template <AluFn Inner>
void flush_around(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
  float source[32];
  float result[32];
  for (uint32_t w = first; w < last; ++w) {
    const float* a = lanes_at<float>(r, in.a, w);
    float* d = lanes_at<float>(r, in.d, w);
    TF_LANES for (int i = 0; i < 32; ++i) source[i] = flushed<true>(a[i]);
    Ins one = in;
    one.a = {0, 0};
    one.d = {static_cast<uint32_t>(sizeof source), 0};
    alignas(64) std::byte both[sizeof source + sizeof result];
    memcpy(both, source, sizeof source);
    Inner(one, both, 0, 1);
    memcpy(result, both + sizeof source, sizeof result);
    TF_LANES for (int i = 0; i < 32; ++i) d[i] = flushed<true>(result[i]);
  }
}

template <AluFn Inner>
AluFn with_ftz(bool ftz) {
  return ftz ? flush_around<Inner> : Inner;
}

struct WideExp2 {
  static double f(double a) { return __builtin_exp2(a); }
};
struct WideLog2 {
  static double f(double a) { return __builtin_log2(a); }
};
struct WideSin {
  static double f(double a) { return __builtin_sin(a); }
};
struct WideCos {
  static double f(double a) { return __builtin_cos(a); }
};
struct WideRsqrt {
  static double f(double a) { return 1.0 / __builtin_sqrt(a); }
};

}  // namespace

AluFn find_math(const AluKey& key) {
  if (key.type == Type::f32) {
    switch (key.op) {
      case AluOp::ex2:
        return with_ftz<unary<MathExp2, float, float>>(key.ftz);
      case AluOp::lg2:
        return with_ftz<unary<MathLog2, float, float>>(key.ftz);
      case AluOp::rsqrt:
        return with_ftz<unary<MathRsqrt, float, float>>(key.ftz);
      case AluOp::tanh:
        return unary<MathTanh, float, float>;
      case AluOp::sin:
        return with_ftz<waves<0>>(key.ftz);
      case AluOp::cos:
        return with_ftz<waves<1>>(key.ftz);
      default:
        return nullptr;
    }
  }
  if (key.type != Type::f64) return nullptr;
  switch (key.op) {
    case AluOp::ex2:
      return unary<WideExp2, double, double>;
    case AluOp::lg2:
      return unary<WideLog2, double, double>;
    case AluOp::rsqrt:
      return unary<WideRsqrt, double, double>;
    case AluOp::sin:
      return unary<WideSin, double, double>;
    case AluOp::cos:
      return unary<WideCos, double, double>;
    default:
      return nullptr;
  }
}

}  // namespace tensor_fusion::sim::ptx::TF_PTX_ISA
