// Functions with instructions of their own: approximations (of kernels named about_…, which are compared with a
// tolerance), rounding modes, halves of both kinds.
#include "ordinary.inc"

#ifdef __NVPTX__
#define CHOOSE(device, host) device
#else
#include <fenv.h>
#define CHOOSE(device, host) host
double exp2(double), log2(double), sin(double), cos(double), tanh(double), sqrt(double), fmod(double, double);
static f64 rounded(int mode, char what, int narrow, f64 x, f64 y, f64 z) {
  volatile f64 r;
  volatile f64 a = x, b = y, c = z;
  volatile f32 fa = (f32)x, fb = (f32)y, fc = (f32)z;
  fesetround(mode);
  if (narrow) {
    volatile f32 f;
    switch (what) {
      case '+':
        f = fa + fb;
        break;
      case '*':
        f = fa * fb;
        break;
      case '/':
        f = fa / fb;
        break;
      case 'q':
        f = __builtin_sqrtf(fa);
        break;
      default:
        f = __builtin_fmaf(fa, fb, fc);
    }
    r = f;
  } else
    switch (what) {
      case '+':
        r = a + b;
        break;
      case '*':
        r = a * b;
        break;
      case '/':
        r = a / b;
        break;
      case 'q':
        r = __builtin_sqrt(a);
        break;
      default:
        r = __builtin_fma(a, b, c);
    }
  fesetround(FE_TONEAREST);
  return r;
}
#endif
#define ABOUT(x) bits64((f64)(x))
EACH(about_exp2, u64, u64, {
  const f32 x = (f32)within(a, 20);
  return ABOUT(CHOOSE(__nvvm_ex2_approx_f(x), exp2(x)));
})
EACH(about_exp2_flushed, u64, u64, {
  const f32 x = (f32)within(a, 20);
  return ABOUT(CHOOSE(__nvvm_ex2_approx_ftz_f(x), exp2(x)));
})
EACH(about_log2, u64, u64, {
  const f32 x = (f32)(within(a >> 1, 1000) + 0.01);
  return ABOUT(CHOOSE(__nvvm_lg2_approx_f(x), log2(x)));
})
EACH(about_sine, u64, u64, {
  const f32 x = (f32)within(a, 3);
  return ABOUT(CHOOSE(__nvvm_sin_approx_f(x), sin(x)));
})
EACH(about_cosine, u64, u64, {
  const f32 x = (f32)within(a, 3);
  return ABOUT(CHOOSE(__nvvm_cos_approx_f(x), cos(x)));
})
EACH(about_one_over_root, u64, u64, {
  const f32 x = (f32)(within(a >> 1, 1000) + 0.1);
  return ABOUT(CHOOSE(__nvvm_rsqrt_approx_f(x), 1 / sqrt(x)));
})
EACH(about_one_over_root_of_double, u64, u64, {
  const f64 x = within(a >> 1, 1000) + 0.1;
  return ABOUT(CHOOSE(__nvvm_rsqrt_approx_d(x), 1 / sqrt(x)));
})
EACH(about_one_over, u64, u64, {
  const f32 x = (f32)(within(a >> 1, 1000) + 0.1);
  return ABOUT(CHOOSE(__nvvm_rcp_approx_ftz_f(x), 1.0 / x));
})
EACH(about_quotient, u64, u64, {
  const f32 x = (f32)within(a, 100), y = (f32)(within(b >> 1, 1000) + 0.1);
  return ABOUT(CHOOSE(__nvvm_div_approx_f(x, y), (f64)x / y));
})
EACH(about_root, u64, u64, {
  const f32 x = (f32)within(a >> 1, 1000);
  return ABOUT(CHOOSE(__nvvm_sqrt_approx_f(x), sqrt(x)));
})
EACH(rounding_32, u64, u64, {
  u64 h = 1;
  const f32 x = (f32)within(a, 1e4), y = (f32)(within(b, 3) + 4), z = (f32)within(c, 1e3);
#define ONE(op, mode, code, ...)                                                             \
  MIX(bits32(CHOOSE(__nvvm_##op##_##mode##_f(__VA_ARGS__), (f32)rounded(code,                \
                                                                        *#op == 'a'   ? '+'  \
                                                                        : *#op == 'm' ? '*'  \
                                                                        : *#op == 'd' ? '/'  \
                                                                        : *#op == 's' ? 'q'  \
                                                                                      : 'f', \
                                                                        1, x, y, z))))
#define ALL4(op, ...)                      \
  ONE(op, rn, FE_TONEAREST, __VA_ARGS__);  \
  ONE(op, rz, FE_TOWARDZERO, __VA_ARGS__); \
  ONE(op, rm, FE_DOWNWARD, __VA_ARGS__);   \
  ONE(op, rp, FE_UPWARD, __VA_ARGS__)
  ALL4(add, x, y);
  ALL4(mul, x, y);
  ALL4(div, x, y);
  ALL4(fma, x, y, z);
  return h;
})
EACH(rounding_64, u64, u64, {
  u64 h = 2;
  const f64 x = within(a, 1e4), y = within(b, 3) + 4, z = within(c, 1e3);
#undef ONE
#define ONE(op, mode, code, ...)                                                        \
  MIX(bits64(CHOOSE(__nvvm_##op##_##mode##_d(__VA_ARGS__), rounded(code,                \
                                                                   *#op == 'a'   ? '+'  \
                                                                   : *#op == 'm' ? '*'  \
                                                                   : *#op == 'd' ? '/'  \
                                                                   : *#op == 's' ? 'q'  \
                                                                                 : 'f', \
                                                                   0, x, y, z))))
  ALL4(add, x, y);
  ALL4(mul, x, y);
  ALL4(div, x, y);
  ALL4(fma, x, y, z);
  return h;
})
// What is no number becomes 0, but the lowest number where 64 bits are on either side.
static inline s64 held(f64 x, f64 least, f64 most) {
  return x != x ? 0 : x <= least ? (s64)least : x >= most ? most > 9e18 ? 0x7fffffffffffffffll : (s64)most : (s64)x;
}
EACH(saturating_conversions, u64, u64, {
  u64 h = 3;
  const f32 x = as_f32(a);
  const f64 y = as_f64(b);
  MIX(CHOOSE(__nvvm_f2i_rz(x), (s32)held(x, -2147483648.0, 2147483647.0)));
  MIX(CHOOSE((u32)__nvvm_f2ui_rz(x), (u32)held(x, 0, 4294967295.0)));
  MIX(CHOOSE(__nvvm_d2i_rz(y), y != y ? (s32)0x80000000 : (s32)held(y, -2147483648.0, 2147483647.0)));
  MIX(CHOOSE(__nvvm_f2ll_rz(x), x != x ? (s64)(1ull << 63) : held(x, -9223372036854775808.0, 9.3e18)));
  MIX(CHOOSE(__nvvm_f2i_rm(x), (s32)held(__builtin_floor(x), -2147483648.0, 2147483647.0)));
  MIX(CHOOSE(__nvvm_f2i_rp(x), (s32)held(__builtin_ceil(x), -2147483648.0, 2147483647.0)));
  MIX(bits32(CHOOSE(__nvvm_saturate_f(x), x != x || x < 0 ? 0.0f : x > 1 ? 1.0f : x == 0 ? 0.0f : x)));
  MIX(CHOOSE((u32)__nvvm_d2i_lo(y), (u32)b));
  MIX(CHOOSE((u32)__nvvm_d2i_hi(y), (u32)(b >> 32)));
  MIX(bits64(CHOOSE(__nvvm_lohi_i2d((s32)a, (s32)c & 0x7fefffff), as_f64((u32)a | (u64)((u32)c & 0x7fefffff) << 32))));
  MIX(bits32(CHOOSE(__nvvm_floor_f(x), __builtin_floorf(x))));
  MIX(CHOOSE(__nvvm_bitcast_f2i(x), (s32)a));
  MIX(CHOOSE((u64)__nvvm_bitcast_d2ll(y), b));
  return h;
})
EACH(remainders, u64, u64, {
  u64 h = 4;
  const f32 x = (f32)(s32)(a >> 45), y = (f32)(s32)((b >> 56) | 1);
  const f64 u = (f64)(s64)(a >> 30), v = (f64)((c >> 50) | 1);
  MIX(bits32(CHOOSE(__builtin_fmodf(x, y), (f32)fmod(x, y))));
  MIX(bits64(CHOOSE(__builtin_fmod(u, v), fmod(u, v))));
  return h;
})
typedef f16 f16x2 __attribute__((ext_vector_type(2)));
typedef union {
  u32 u;
  f16x2 f;
} Pair;
static inline u64 pair_bits(f16x2 x) { return bits16(x.x) | bits16(x.y) << 16; }
static inline f16 fused(f16 x, f16 y,
                        f16 z) {  // exact in a double but for its last rounding, from which a half is rounded to odd
  const f64 p = (f64)x * (f64)y;
  f64 s = p + (f64)z;
  const f64 t = s - p, e = (p - (s - t)) + ((f64)z - t);
  union {
    f64 f;
    u64 u;
  } v;
  v.f = s;
  if (e != 0 && e == e && !(v.u & 1) && s - s == 0) {
    v.u += (e > 0) == (s > 0) ? 1 : -1;
  }
  return (f16)v.f;
}
EACH(half_fused, u64, u64, {
  u64 h = 5;
  const f16 x = as_f16(a), y = as_f16(b), z = as_f16(c);
  MIX(bits16(CHOOSE(__nvvm_fma_rn_f16(x, y, z), fused(x, y, z))));
  Pair p, q, r;
  p.u = (u32)a, q.u = (u32)b, r.u = (u32)c;
  f16x2 d = CHOOSE(__builtin_elementwise_fma(p.f, q.f, r.f),
                   ((f16x2){fused(p.f.x, q.f.x, r.f.x), fused(p.f.y, q.f.y, r.f.y)}));
  MIX(pair_bits(d));
  return h;
})
