// cvt. The conversions that programs are made of have loops of their own; the rest goes through doubles, which hold
// every other type exactly, and is rounded once.
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "sim/ptx/alu/small_float.h"

namespace tensor_fusion::sim::ptx::TF_PTX_ISA {
namespace {

struct How {
  Rounding rounding;
  bool ftz, sat, relu, finite;
  explicit How(const Ins& in)
      : rounding(static_cast<Rounding>(in.imm & 0xff)),
        ftz((in.imm & 0x100) != 0),
        sat((in.imm & 0x200) != 0),
        relu((in.imm & 0x400) != 0),
        finite((in.imm & 0x800) != 0) {}
};

template <class To, class From>
struct Cast {
  static To f(From a) { return static_cast<To>(a); }
};
template <class To, class From>
struct CastSat {
  static To f(From a) {
    constexpr To most = kSigned<To>
                            ? static_cast<To>(static_cast<typename Traits<To>::U>(~typename Traits<To>::U{0}) >> 1)
                            : static_cast<To>(~To{0});
    constexpr To least = kSigned<To> ? static_cast<To>(~most) : To{0};
    if constexpr (kSigned<From>) {
      if (a < 0) {
        if constexpr (!kSigned<To>)
          return 0;
        else
          return sizeof(From) > sizeof(To) && a < static_cast<From>(least) ? least : static_cast<To>(a);
      }
    }
    using Magnitude = typename Traits<From>::U;
    const uint64_t magnitude = static_cast<Magnitude>(a);
    return magnitude > static_cast<uint64_t>(most) ? most : static_cast<To>(a);
  }
};

template <class To, class From>
AluFn find_cast(const AluKey& key) {
  return key.sat ? unary<CastSat<To, From>, To, From> : unary<Cast<To, From>, To, From>;
}

template <class From>
AluFn find_integer_cast(const AluKey& key) {
  switch (key.type) {
    case Type::b8:
    case Type::u8:
      return find_cast<uint8_t, From>(key);
    case Type::s8:
      return find_cast<int8_t, From>(key);
    case Type::b16:
    case Type::u16:
      return find_cast<uint16_t, From>(key);
    case Type::s16:
      return find_cast<int16_t, From>(key);
    case Type::b32:
    case Type::u32:
      return find_cast<uint32_t, From>(key);
    case Type::s32:
      return find_cast<int32_t, From>(key);
    case Type::b64:
    case Type::u64:
      return find_cast<uint64_t, From>(key);
    case Type::s64:
      return find_cast<int64_t, From>(key);
    default:
      return nullptr;
  }
}

// A 64-bit integer that a double cannot hold keeps a mark of its lower bits in the last bit that it can.
template <class T>
inline double exact_enough(T x) {
  if constexpr (sizeof(T) < 8) {
    return static_cast<double>(x);
  } else {
    const bool negative = kSigned<T> && x < 0;
    uint64_t m = negative ? 0 - static_cast<uint64_t>(x) : static_cast<uint64_t>(x);
    if (m >> 53 != 0) m = (m & ~uint64_t{0xfff}) | ((m & 0xfff) != 0 ? 0x800U : 0U);
    const auto d = static_cast<double>(m);
    return negative ? -d : d;
  }
}

template <class T>
inline void load_doubles(const T* from, double* to) {
  TF_LANES for (int i = 0; i < 32; ++i) to[i] = exact_enough(from[i]);
}
struct RawF16 {
  uint16_t raw;
};
struct RawBF16 {
  uint16_t raw;
};
inline void load_doubles(const float* from, double* to) { TF_LANES for (int i = 0; i < 32; ++i) to[i] = from[i]; }
inline void load_doubles(const double* from, double* to) { TF_LANES for (int i = 0; i < 32; ++i) to[i] = from[i]; }
inline void load_doubles(const RawF16* from, double* to) {
  TF_LANES for (int i = 0; i < 32; ++i) to[i] = float_of_half(from[i].raw);
}
inline void load_doubles(const RawBF16* from, double* to) {
  TF_LANES for (int i = 0; i < 32; ++i) to[i] = float_of_bf(from[i].raw);
}

inline void round_whole(double* x, Rounding rounding) {
  switch (rounding) {
    case Rounding::rni:
      for (int i = 0; i < 32; ++i) x[i] = __builtin_rint(x[i]);
      break;
    case Rounding::rzi:
      for (int i = 0; i < 32; ++i) x[i] = __builtin_trunc(x[i]);
      break;
    case Rounding::rmi:
      for (int i = 0; i < 32; ++i) x[i] = __builtin_floor(x[i]);
      break;
    case Rounding::rpi:
      for (int i = 0; i < 32; ++i) x[i] = __builtin_ceil(x[i]);
      break;
    default:
      break;
  }
}

// No number becomes 0; but the highest bit alone where 64 bits are on either side.
template <class To, class From>
inline constexpr To kOfNan =
    sizeof(To) == 8 || sizeof(From) == 8 ? static_cast<To>(typename Traits<To>::U{1} << (sizeof(To) * 8 - 1)) : To{0};

template <class To, class From>
inline To clamped(double x) {
  using UT = typename Traits<To>::U;
  constexpr To most = kSigned<To> ? static_cast<To>(static_cast<UT>(~UT{0}) >> 1) : static_cast<To>(~To{0});
  constexpr To least = kSigned<To> ? static_cast<To>(~most) : To{0};
  constexpr double above =
      kSigned<To> ? -static_cast<double>(least) : (sizeof(To) == 8 ? 0x1p64 : static_cast<double>(most) + 1.0);
  if (!(x < above)) return x != x ? kOfNan<To, From> : most;
  if (x <= static_cast<double>(least)) return least;
  return static_cast<To>(x);
}

template <class To, class From>
void to_integer(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
  const How how(in);
  for (uint32_t w = first; w < last; ++w) {
    double x[32];
    load_doubles(lanes_at<From>(r, in.a, w), x);
    if (how.ftz)
      for (double& v : x) v = (v < 0 ? -v : v) < 0x1p-126 ? 0 : v;
    round_whole(x, how.rounding);
    To* d = lanes_at<To>(r, in.d, w);
    for (int i = 0; i < 32; ++i) d[i] = clamped<To, From>(x[i]);
  }
}

struct TruncS32 {
  static int32_t f(float a) {
    const float low = a >= -2147483648.0F ? a : -2147483648.0F;
    const int32_t whole = static_cast<int32_t>(low < 2147483520.0F ? low : 2147483520.0F);
    const int32_t out = a >= 2147483648.0F ? INT32_MAX : whole;
    return a != a ? 0 : out;
  }
};

template <class From>
AluFn find_to_integer(const AluKey& key) {
  switch (key.type) {
    case Type::u8:
      return to_integer<uint8_t, From>;
    case Type::s8:
      return to_integer<int8_t, From>;
    case Type::u16:
      return to_integer<uint16_t, From>;
    case Type::s16:
      return to_integer<int16_t, From>;
    case Type::u32:
      return to_integer<uint32_t, From>;
    case Type::s32:
      return to_integer<int32_t, From>;
    case Type::u64:
      return to_integer<uint64_t, From>;
    case Type::s64:
      return to_integer<int64_t, From>;
    default:
      return nullptr;
  }
}

template <class To, class From>
struct CastUnit {
  static To f(From a) { return saturated<true>(static_cast<To>(a)); }
};

template <class From>
AluFn find_to_real(const AluKey& key) {
  if (key.type == Type::f32) {
    if (key.sat) return in_mode<unary<CastUnit<float, From>, float, From>>(key.rounding);
    return in_mode<unary<Cast<float, From>, float, From>>(key.rounding);
  }
  if (key.sat) return in_mode<unary<CastUnit<double, From>, double, From>>(key.rounding);
  return in_mode<unary<Cast<double, From>, double, From>>(key.rounding);
}

inline void shape(double* x, const How& how) {
  for (int i = 0; i < 32; ++i) {
    if (how.sat) x[i] = saturated<true>(x[i]);
    if (how.relu && x[i] <= 0) x[i] = 0;
  }
}

// Anything to f16 (M 10) or bf16 (M 7).
template <int M, int E, class From>
void to_half(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
  const How how(in);
  for (uint32_t w = first; w < last; ++w) {
    double x[32];
    load_doubles(lanes_at<From>(r, in.a, w), x);
    if (how.ftz && sizeof(From) == 4)
      for (double& v : x) v = (v < 0 ? -v : v) < 0x1p-126 ? v * 0.0 : v;
    round_whole(x, how.rounding);
    shape(x, how);
    uint16_t* d = lanes_at<uint16_t>(r, in.d, w);
    const Rounding rounding = how.rounding > Rounding::rp ? Rounding::rn : how.rounding;
    for (int i = 0; i < 32; ++i) d[i] = static_cast<uint16_t>(narrow<M, E>(x[i], rounding, how.finite));
  }
}

// To f32 or f64 from what they hold exactly, or to the same type with integral rounding.
template <class To, class From>
void to_wide(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
  const How how(in);
  for (uint32_t w = first; w < last; ++w) {
    double x[32];
    load_doubles(lanes_at<From>(r, in.a, w), x);
    if (how.ftz)
      for (double& v : x) v = (v < 0 ? -v : v) < 0x1p-126 ? v * 0.0 : v;
    round_whole(x, how.rounding);
    shape(x, how);
    To* d = lanes_at<To>(r, in.d, w);
    for (int i = 0; i < 32; ++i) d[i] = static_cast<To>(x[i]);
  }
}

struct HalfToFloat {
  static void run(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
    for (uint32_t w = first; w < last; ++w) {
      const uint16_t* a = lanes_at<uint16_t>(r, in.a, w);
      float* d = lanes_at<float>(r, in.d, w);
#if defined(__F16C__)
      for (int i = 0; i < 32; i += 8)
        _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i))));
      TF_LANES for (int i = 0; i < 32; ++i) d[i] = d[i] != d[i] ? bits_as<float>(0x7fffffffU) : d[i];
#else
      TF_LANES for (int i = 0; i < 32; ++i) d[i] = float_of_half(a[i]);
#endif
    }
  }
};

struct ToHalf {
  static uint16_t f(float a) { return half_of_float(a); }
};
struct ToBf {
  static uint16_t f(float a) { return bf_of_float(a); }
};
struct OfBf {
  static float f(uint16_t a) { return float_of_bf(a); }
};
struct TruncF32 {
  static float f(float a) { return __builtin_truncf(a); }
};
template <bool Ftz, bool Sat>
struct Narrow32 {
  static float f(double a) { return saturated<Sat>(flushed<Ftz>(static_cast<float>(a))); }
};
template <bool Ftz>
struct Widen {
  static double f(float a) { return static_cast<double>(flushed<Ftz>(a)); }
};

template <class From>
AluFn find_from_real(const AluKey& key) {
  switch (key.type) {
    case Type::f16:
      return to_half<10, 5, From>;
    case Type::bf16:
      return to_half<7, 8, From>;
    case Type::f32:
      return to_wide<float, From>;
    case Type::f64:
      return to_wide<double, From>;
    default:
      return find_to_integer<From>(key);
  }
}

template <class From>
AluFn find_from_integer(const AluKey& key) {
  if (key.type == Type::f32 || key.type == Type::f64) return find_to_real<From>(key);
  if (key.type == Type::f16) return to_half<10, 5, From>;
  if (key.type == Type::bf16) return to_half<7, 8, From>;
  return find_integer_cast<From>(key);
}

AluFn find_fast(const AluKey& key) {
  const bool plain = !key.ftz && !key.sat && !key.relu;
  if (key.from == Type::f64 && key.type == Type::f32 && !key.relu) {
    if (key.ftz)
      return key.sat ? in_mode<unary<Narrow32<true, true>, float, double>>(key.rounding)
                     : in_mode<unary<Narrow32<true, false>, float, double>>(key.rounding);
    return key.sat ? in_mode<unary<Narrow32<false, true>, float, double>>(key.rounding)
                   : in_mode<unary<Narrow32<false, false>, float, double>>(key.rounding);
  }
  if (key.from == Type::f32 && key.type == Type::f64 && !key.sat)
    return key.ftz ? unary<Widen<true>, double, float> : unary<Widen<false>, double, float>;
  if (!plain) return nullptr;
  if (key.from == Type::f32) {
    if (key.type == Type::s32 && key.rounding == Rounding::rzi) return unary<TruncS32, int32_t, float>;
    if (key.type == Type::f32 && key.rounding == Rounding::rzi) return unary<TruncF32, float, float>;
    if (key.type == Type::f16 && key.rounding == Rounding::rn) return unary<ToHalf, uint16_t, float>;
    if (key.type == Type::bf16 && key.rounding == Rounding::rn) return unary<ToBf, uint16_t, float>;
  }
  if (key.from == Type::f16 && key.type == Type::f32) return HalfToFloat::run;
  if (key.from == Type::bf16 && key.type == Type::f32) return unary<OfBf, float, uint16_t>;
  return nullptr;
}

}  // namespace

AluFn find_convert(const AluKey& key) {
  if (key.op != AluOp::cvt) return nullptr;
  if (AluFn small = find_small(key)) return small;
  if (AluFn fast = find_fast(key)) return fast;
  switch (key.from) {
    case Type::b8:
    case Type::u8:
      return find_from_integer<uint8_t>(key);
    case Type::s8:
      return find_from_integer<int8_t>(key);
    case Type::b16:
    case Type::u16:
      return find_from_integer<uint16_t>(key);
    case Type::s16:
      return find_from_integer<int16_t>(key);
    case Type::b32:
    case Type::u32:
      return find_from_integer<uint32_t>(key);
    case Type::s32:
      return find_from_integer<int32_t>(key);
    case Type::b64:
    case Type::u64:
      return find_from_integer<uint64_t>(key);
    case Type::s64:
      return find_from_integer<int64_t>(key);
    case Type::f16:
      return find_from_real<RawF16>(key);
    case Type::bf16:
      return find_from_real<RawBF16>(key);
    case Type::f32:
      return find_from_real<float>(key);
    case Type::f64:
      return find_from_real<double>(key);
    default:
      return nullptr;
  }
}

}  // namespace tensor_fusion::sim::ptx::TF_PTX_ISA
