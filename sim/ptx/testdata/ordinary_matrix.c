// Matrices in the registers of a warp. The first warp of each block multiplies two, filled in from the block's numbers.
#include "ordinary.inc"

// What a matrix is filled with.
static inline f64 small(u64 x, u32 shift) { return (f64)((s32)(x >> shift & 255) - 128) / 16; }

#ifdef __NVPTX__
#define THREAD __nvvm_read_ptx_sreg_tid_x()
#define FILL(array, count, from, shift, convert)      \
  for (u32 e = THREAD; e < (count); e += BLOCK) {     \
    const u64 x = (from)[first + e % BLOCK];          \
    (array)[e] = convert(x, (shift) + e / BLOCK * 8); \
  }                                                   \
  __nvvm_bar_sync(0)
#define BEGIN                                               \
  const u32 first = __nvvm_read_ptx_sreg_ctaid_x() * BLOCK; \
  (void)n;
#define MATRIX(name) \
  KERNEL name(u64 GLOBAL* out, const u64 GLOBAL* pa, const u64 GLOBAL* pb, const u64 GLOBAL* pc, u32 n)
#else
#define FILL(array, count, from, shift, convert) \
  for (u32 e = 0; e < (count); ++e) (array)[e] = convert((from)[first + e % BLOCK], (shift) + e / BLOCK * 8)
#define MATRIX(name) KERNEL name(u64* out, const u64* pa, const u64* pb, const u64* pc, u32 n)
#endif
#define HALF(x, s) (f16) small(x, s)
#define SINGLE(x, s) (f32) small(x, s)
#define DOUBLE(x, s) (small(x, s) / 3)
#define BYTE(x, s) (u8)((x) >> (s))
#define WORD(x, s) (u32)((x) >> (s))
#define INTEGER(x, s) ((s32)(x) >> 3)

// Host: element (r, c) of a matrix of `rows` by `columns` whose rows, or columns, lie side by side.
#define AT(array, r, c, rows, columns, by_columns) (array)[(by_columns) ? (c) * (rows) + (r) : (r) * (columns) + (c)]
#define PRODUCT(A, B, C, D, M, N, K, ca, cb, cc, cd, a, b, c, T, S, convert)                    \
  for (u32 r = 0; r < (M); ++r)                                                                 \
    for (u32 q = 0; q < (N); ++q) {                                                             \
      S sum = 0;                                                                                \
      for (u32 k = 0; k < (K); ++k) sum += (S)AT(a, r, k, M, K, ca) * (S)AT(b, k, q, K, N, cb); \
      AT((D*)(out + first), r, q, M, N, cd) = convert((S)AT(c, r, q, M, N, cc) + sum);          \
    }
#define BLOCKS for (u32 first = 0; first < n; first += BLOCK)
#define SINGLE_OF(x) (f32)(x)
#define HALF_OF(x) (f16)(f32)(x)
#define WHOLE_OF(x) (s32)(u32)(x)
#define HELD_OF(x) (s32)((x) > 2147483647ll ? 2147483647ll : (x) < -2147483648ll ? -2147483648ll : (x))

MATRIX(halves_to_single) {
#ifdef __NVPTX__
  static f16 SHARED a[256], SHARED b[256];
  static f32 SHARED c[256];
  BEGIN FILL(a, 256, pa, 0, HALF);
  FILL(b, 256, pb, 5, HALF);
  FILL(c, 256, pc, 9, SINGLE);
  if (THREAD < 32) {
    int fa[8], fb[8];
    float fc[8], fd[8];
    __hmma_m16n16k16_ld_a(fa, (const int*)(const f16*)a, 16, 0);
    __hmma_m16n16k16_ld_b(fb, (const int*)(const f16*)b, 16, 1);
    __hmma_m16n16k16_ld_c_f32(fc, (const f32*)c, 16, 0);
    for (int k = 0; k < 8; ++k) fc[k] *= 0.5f;
    __hmma_m16n16k16_mma_f32f32(fd, fa, fb, fc, 1, 0);
    __hmma_m16n16k16_st_c_f32((float*)(out + first), fd, 16, 0);
  }
#else
  BLOCKS {
    f16 a[256], b[256];
    f32 c[256];
    FILL(a, 256, pa, 0, HALF);
    FILL(b, 256, pb, 5, HALF);
    FILL(c, 256, pc, 9, SINGLE);
    for (int k = 0; k < 256; ++k) c[k] *= 0.5f;
    PRODUCT(f16, f16, f32, f32, 16, 16, 16, 0, 1, 0, 0, a, b, c, f32, f64, SINGLE_OF)
  }
#endif
}
MATRIX(halves_to_halves) {
#ifdef __NVPTX__
  static f16 SHARED a[128], SHARED b[512], SHARED c[256];
  BEGIN FILL(a, 128, pa, 0, HALF);
  FILL(b, 512, pb, 5, HALF);
  FILL(c, 256, pc, 9, HALF);
  if (THREAD < 32) {
    int fa[8], fb[8], fc[4], fd[4];
    __hmma_m8n32k16_ld_a(fa, (const int*)(const f16*)a, 8, 1);
    __hmma_m8n32k16_ld_b(fb, (const int*)(const f16*)b, 32, 0);
    __hmma_m8n32k16_ld_c_f16(fc, (const int*)(const f16*)c, 8, 1);
    __hmma_m8n32k16_mma_f16f16(fd, fa, fb, fc, 2, 0);
    __hmma_m8n32k16_st_c_f16((int*)(out + first), fd, 32, 0);
  }
  if (THREAD >= 64) out[first + THREAD] = 0;
#else
  BLOCKS {
    f16 a[128], b[512], c[256];
    FILL(a, 128, pa, 0, HALF);
    FILL(b, 512, pb, 5, HALF);
    FILL(c, 256, pc, 9, HALF);
    PRODUCT(f16, f16, f16, f16, 8, 32, 16, 1, 0, 1, 0, a, b, c, f32, f64, HALF_OF)
    for (u32 k = 64; k < BLOCK; ++k) out[first + k] = 0;
  }
#endif
}
#if !defined(__NVPTX__) || CARD >= 80
MATRIX(bytes) {
#ifdef __NVPTX__
  static u8 SHARED a[512] __attribute__((aligned(32))), SHARED b[128] __attribute__((aligned(32)));
  static s32 SHARED c[256];
  BEGIN FILL(a, 512, pa, 3, BYTE);
  FILL(b, 128, pb, 5, BYTE);
  FILL(c, 256, pc, 0, INTEGER);
  if (THREAD < 32) {
    int fa[4], fb[1], fc[8], fd[8];
    __imma_m32n8k16_ld_a_s8(fa, (const int*)(const u8*)a, 16, 0);
    __imma_m32n8k16_ld_b_s8(fb, (const int*)(const u8*)b, 16, 1);
    __imma_m32n8k16_ld_c(fc, (const s32*)c, 8, 0);
    __imma_m32n8k16_mma_s8(fd, fa, fb, fc, 1, 1);
    __imma_m32n8k16_st_c_i32((int*)(out + first), fd, 32, 1);
  }
#else
  BLOCKS {
    u8 a[512], b[128];
    s32 c[256];
    FILL(a, 512, pa, 3, BYTE);
    FILL(b, 128, pb, 5, BYTE);
    FILL(c, 256, pc, 0, INTEGER);
    PRODUCT(s8, s8, s32, s32, 32, 8, 16, 0, 1, 0, 1, (s8*)a, (s8*)b, c, s32, s64, HELD_OF)
  }
#endif
}
MATRIX(unsigned_bytes) {
#ifdef __NVPTX__
  static u8 SHARED a[256] __attribute__((aligned(32))), SHARED b[256] __attribute__((aligned(32)));
  static s32 SHARED c[256];
  BEGIN FILL(a, 256, pa, 3, BYTE);
  FILL(b, 256, pb, 5, BYTE);
  FILL(c, 256, pc, 0, INTEGER);
  if (THREAD < 32) {
    int fa[2], fb[2], fc[8], fd[8];
    __imma_m16n16k16_ld_a_u8(fa, (const int*)(const u8*)a, 16, 1);
    __imma_m16n16k16_ld_b_u8(fb, (const int*)(const u8*)b, 16, 0);
    __imma_m16n16k16_ld_c(fc, (const s32*)c, 16, 1);
    __imma_m16n16k16_mma_u8(fd, fa, fb, fc, 2, 0);
    __imma_m16n16k16_st_c_i32((int*)(out + first), fd, 16, 0);
  }
#else
  BLOCKS {
    u8 a[256], b[256];
    s32 c[256];
    FILL(a, 256, pa, 3, BYTE);
    FILL(b, 256, pb, 5, BYTE);
    FILL(c, 256, pc, 0, INTEGER);
    PRODUCT(u8, u8, s32, s32, 16, 16, 16, 1, 0, 1, 0, a, b, c, s32, s64, WHOLE_OF)
  }
#endif
}
MATRIX(nibbles) {
#ifdef __NVPTX__
  static u32 SHARED a[32] __attribute__((aligned(32))), SHARED b[32] __attribute__((aligned(32)));
  static s32 SHARED c[64];
  BEGIN FILL(a, 32, pa, 3, WORD);
  FILL(b, 32, pb, 5, WORD);
  FILL(c, 64, pc, 0, INTEGER);
  if (THREAD < 32) {
    int fa[1], fb[1], fc[2], fd[2];
    __imma_m8n8k32_ld_a_s4(fa, (const int*)(const u32*)a, 32, 0);
    __imma_m8n8k32_ld_b_s4(fb, (const int*)(const u32*)b, 32, 1);
    __imma_m8n8k32_ld_c(fc, (const s32*)c, 8, 0);
    __imma_m8n8k32_mma_s4(fd, fa, fb, fc, 1, 0);
    __imma_m8n8k32_st_c_i32((int*)(out + first), fd, 8, 0);
    fa[0] = fb[0] = 0;
    __bmma_m8n8k128_ld_a_b1(fa, (const int*)(const u32*)a, 128, 0);
    __bmma_m8n8k128_ld_b_b1(fb, (const int*)(const u32*)b, 128, 1);
    __bmma_m8n8k128_mma_xor_popc_b1(fd, fa, fb, fc, 1);
    __bmma_m8n8k128_st_c_i32((int*)(out + first + 32), fd, 8, 0);
    __bmma_m8n8k128_mma_and_popc_b1(fd, fa, fb, fc, 1);
    __bmma_m8n8k128_st_c_i32((int*)(out + first + 64), fd, 8, 1);
  }
  if (THREAD >= 96) out[first + THREAD] = 0;
#else
  BLOCKS {
    u32 a[32], b[32];
    s32 c[64];
    s8 na[256], nb[256];
    u8 ba[1024], bb[1024];
    FILL(a, 32, pa, 3, WORD);
    FILL(b, 32, pb, 5, WORD);
    FILL(c, 64, pc, 0, INTEGER);
    for (u32 k = 0; k < 256; ++k)
      na[k] = (s8)((a[k / 8] >> (k % 8 * 4)) << 4) >> 4, nb[k] = (s8)((b[k / 8] >> (k % 8 * 4)) << 4) >> 4;
    PRODUCT(s8, s8, s32, s32, 8, 8, 32, 0, 1, 0, 0, na, nb, c, s32, s64, WHOLE_OF)
    for (u32 k = 0; k < 1024; ++k) ba[k] = a[k / 32] >> (k % 32) & 1, bb[k] = b[k / 32] >> (k % 32) & 1;
    for (u32 r = 0; r < 8; ++r)
      for (u32 q = 0; q < 8; ++q) {
        s32 different = c[r * 8 + q], shared = c[r * 8 + q];
        for (u32 k = 0; k < 128; ++k)
          different += ba[r * 128 + k] ^ bb[q * 128 + k], shared += ba[r * 128 + k] & bb[q * 128 + k];
        ((s32*)(out + first + 32))[r * 8 + q] = different;
        ((s32*)(out + first + 64))[q * 8 + r] = shared;
      }
    for (u32 k = 96; k < BLOCK; ++k) out[first + k] = 0;
  }
#endif
}
MATRIX(doubles) {
#ifdef __NVPTX__
  static f64 SHARED a[32], SHARED b[32], SHARED c[64];
  BEGIN FILL(a, 32, pa, 0, DOUBLE);
  FILL(b, 32, pb, 5, DOUBLE);
  FILL(c, 64, pc, 9, DOUBLE);
  if (THREAD < 32) {
    double fa[1], fb[1], fc[2], fd[2];
    __dmma_m8n8k4_ld_a(fa, (const f64*)a, 4, 0);
    __dmma_m8n8k4_ld_b(fb, (const f64*)b, 4, 1);
    __dmma_m8n8k4_ld_c(fc, (const f64*)c, 8, 1);
    __dmma_m8n8k4_mma_f64(fd, fa, fb, fc, 1, 0);
    __dmma_m8n8k4_st_c_f64((f64*)(out + first), fd, 8, 0);
  }
  if (THREAD >= 64) out[first + THREAD] = 0;
#else
  BLOCKS {
    f64 a[32], b[32], c[64];
    FILL(a, 32, pa, 0, DOUBLE);
    FILL(b, 32, pb, 5, DOUBLE);
    FILL(c, 64, pc, 9, DOUBLE);
    for (u32 r = 0; r < 8; ++r)
      for (u32 q = 0; q < 8; ++q) {
        f64 sum = c[q * 8 + r];
        for (u32 k = 0; k < 4; ++k) sum = __builtin_fma(a[r * 4 + k], b[q * 4 + k], sum);
        ((f64*)(out + first))[r * 8 + q] = sum;
      }
    for (u32 k = 64; k < BLOCK; ++k) out[first + k] = 0;
  }
#endif
}
// The high halves of singles, and singles whose last bits are cut off.
#define UPPER(x, s) (u16)(WORD_OF((f32)small(x, s)) >> 16)
static inline u32 word_of(f32 x) {
  union {
    f32 f;
    u32 u;
  } v;
  v.f = x;
  return v.u;
}
#define WORD_OF(x) word_of(x)
#define CUT(x, s) ((f32)small(x, s) * 1.001f)
MATRIX(shortened_singles) {
#ifdef __NVPTX__
  static u16 SHARED a[256] __attribute__((aligned(32))), SHARED b[256] __attribute__((aligned(32)));
  static f32 SHARED c[256], SHARED ta[128], SHARED tb[128];
  BEGIN FILL(a, 256, pa, 0, UPPER);
  FILL(b, 256, pb, 5, UPPER);
  FILL(c, 256, pc, 9, SINGLE);
  FILL(ta, 128, pb, 2, CUT);
  FILL(tb, 128, pc, 4, CUT);
  if (THREAD < 32) {
    int fa[4], fb[4];
    float fc[8], fd[8];
    __mma_bf16_m16n16k16_ld_a(fa, (const int*)(const u16*)a, 16, 0);
    __mma_bf16_m16n16k16_ld_b(fb, (const int*)(const u16*)b, 16, 0);
    __hmma_m16n16k16_ld_c_f32(fc, (const f32*)c, 16, 0);
    __mma_bf16_m16n16k16_mma_f32(fd, fa, fb, fc, 0, 0);
    __mma_tf32_m16n16k8_ld_a(fa, (const int*)(const f32*)ta, 8, 0);
    __mma_tf32_m16n16k8_ld_b(fb, (const int*)(const f32*)tb, 8, 1);
    __mma_tf32_m16n16k8_mma_f32(fc, fa, fb, fd, 1, 0);
    __mma_m16n16k8_st_c_f32((float*)(out + first), fc, 16, 0);
  }
#else
  BLOCKS {
    u16 a[256], b[256];
    f32 c[256], ta[128], tb[128];
    FILL(a, 256, pa, 0, UPPER);
    FILL(b, 256, pb, 5, UPPER);
    FILL(c, 256, pc, 9, SINGLE);
    FILL(ta, 128, pb, 2, CUT);
    FILL(tb, 128, pc, 4, CUT);
    f32 wa[256], wb[256];
    for (u32 k = 0; k < 256; ++k) {
      union {
        u32 u;
        f32 f;
      } v;
      v.u = (u32)a[k] << 16;
      wa[k] = v.f;
      v.u = (u32)b[k] << 16;
      wb[k] = v.f;
    }
    PRODUCT(f32, f32, f32, f32, 16, 16, 16, 0, 0, 0, 0, wa, wb, c, f32, f64, SINGLE_OF)
    for (u32 k = 0; k < 128; ++k) {
      union {
        u32 u;
        f32 f;
      } v;
      v.f = ta[k];
      v.u &= 0xffffe000u;
      ta[k] = v.f;
      v.f = tb[k];
      v.u &= 0xffffe000u;
      tb[k] = v.f;
    }
    for (u32 k = 0; k < 256; ++k) c[k] = ((f32*)(out + first))[k];
    PRODUCT(f32, f32, f32, f32, 16, 16, 8, 0, 1, 0, 0, ta, tb, c, f32, f64, SINGLE_OF)
  }
#endif
}
// Integers whose registers are what the block's numbers say, so that it shows which element is in which.
#ifdef __NVPTX__
#define MMA_16(code, at)                                                                                     \
  __asm__ volatile("mma.sync.aligned." code " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"     \
                   : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), \
                     "r"(c[2]), "r"(c[3]));                                                                  \
  if (lane < 32)                                                                                             \
  out[first + (at) + lane * 2] = d[0] | (u64)d[1] << 32, out[first + (at) + lane * 2 + 1] = d[2] | (u64)d[3] << 32
#else
static s32 field(u32 word, u32 at, u32 bits, int is_signed) {
  const s32 value = (s32)(word >> (at * bits) & ((1u << bits) - 1));
  return is_signed && value >> (bits - 1) ? value - (1 << bits) : value;
}
#define LANE_WORD(p, l, k) (u32)((p)[first + (k) / 2 * 32 + (l)] >> ((k) % 2 * 32))
static void multiply(u64* out, const u64* pa, const u64* pb, const u64* pc, u32 first, u32 at, u32 m, u32 bits, int sa,
                     int sb, int holds, int logic) {
  const u32 per = 32 / bits, k_count = (m == 16 ? 8 : 4) * per;
  for (u32 r = 0; r < m; ++r)
    for (u32 q = 0; q < 8; ++q) {
      const u32 lane = r % 8 * 4 + q / 2, reg = r / 8 * 2 + q % 2;
      s64 sum = (s32)LANE_WORD(pc, lane, reg);
      for (u32 k = 0; k < k_count; ++k) {
        const u32 part = k / (4 * per);
        const s32 x = field(LANE_WORD(pa, r % 8 * 4 + k / per % 4, part * (m / 8) + r / 8), k % per, bits, sa);
        const s32 y = field(LANE_WORD(pb, q * 4 + k / per % 4, part), k % per, bits, sb);
        sum += logic == 1 ? (x ^ y) & 1 : logic == 2 ? x & y & 1 : (s64)x * y;
      }
      if (holds) sum = HELD_OF(sum);
      ((u32*)(out + first + at))[m == 16 ? lane * 4 + reg : lane * 2 + reg] = (u32)sum;
    }
}
#endif
MATRIX(integer_registers) {
#ifdef __NVPTX__
  BEGIN const u32 lane = THREAD;
  if (lane < 32) {
    u32 a[4], b[2], c[4], d[4];
    const u64 x = pa[first + lane], y = pa[first + 32 + lane], z = pb[first + lane], u = pc[first + lane],
              v = pc[first + 32 + lane];
    a[0] = (u32)x, a[1] = (u32)(x >> 32), a[2] = (u32)y, a[3] = (u32)(y >> 32), b[0] = (u32)z, b[1] = (u32)(z >> 32);
    c[0] = (u32)u, c[1] = (u32)(u >> 32), c[2] = (u32)v, c[3] = (u32)(v >> 32);
    MMA_16("m16n8k32.row.col.satfinite.s32.s8.u8.s32", 0);
    MMA_16("m16n8k64.row.col.s32.u4.s4.s32", 64);
  }
#else
  BLOCKS {
    multiply(out, pa, pb, pc, first, 0, 16, 8, 1, 0, 1, 0);
    multiply(out, pa, pb, pc, first, 64, 16, 4, 0, 1, 0, 0);
  }
#endif
}
MATRIX(single_bits_and_small_matrices) {
#ifdef __NVPTX__
  BEGIN const u32 lane = THREAD;
  if (lane < 32) {
    u32 a[4], b[2], c[4], d[4];
    const u64 x = pa[first + lane], y = pa[first + 32 + lane], z = pb[first + lane], u = pc[first + lane],
              v = pc[first + 32 + lane];
    a[0] = (u32)x, a[1] = (u32)(x >> 32), a[2] = (u32)y, a[3] = (u32)(y >> 32), b[0] = (u32)z, b[1] = (u32)(z >> 32);
    c[0] = (u32)u, c[1] = (u32)(u >> 32), c[2] = (u32)v, c[3] = (u32)(v >> 32);
    MMA_16("m16n8k256.row.col.s32.b1.b1.s32.and.popc", 0);
    __asm__ volatile("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.u8.s8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
    out[first + 64 + lane] = d[0] | (u64)d[1] << 32;
    __asm__ volatile("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc {%0,%1}, {%2}, {%3}, {%4,%5};"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
    out[first + 96 + lane] = d[0] | (u64)d[1] << 32;
  }
#else
  BLOCKS {
    multiply(out, pa, pb, pc, first, 0, 16, 1, 0, 0, 0, 2);
    multiply(out, pa, pb, pc, first, 64, 8, 8, 0, 1, 1, 0);
    multiply(out, pa, pb, pc, first, 96, 8, 1, 0, 0, 0, 1);
  }
#endif
}
#endif
