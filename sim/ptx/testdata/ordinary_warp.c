// Lanes that see each other, atomics, and what has a builtin of its own.
#include "ordinary.inc"

#ifdef __NVPTX__
#define LANE __nvvm_read_ptx_sreg_laneid()
#define THREAD __nvvm_read_ptx_sreg_tid_x()
#define SYNC __nvvm_bar_sync(0)
#define ALL 0xffffffffu
#define FENCES __nvvm_membar_gl(), __nvvm_membar_cta(), __nvvm_membar_sys()
#else
#define FENCES __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif

// ---- shuffles: each result of one warp from what its lanes hold. Host: W(k) is lane k's value.
#ifdef __NVPTX__
#define SHUFFLE(name, ...)                                                                                \
  KERNEL name(u64 GLOBAL* out, const u64 GLOBAL* pa, const u64 GLOBAL* pb, const u64 GLOBAL* pc, u32 n) { \
    EACH_INDEX {                                                                                          \
      const u32 lane = LANE;                                                                              \
      const u64 a = pa[i], b = pb[i], c = pc[i];                                                          \
      u64 h = 1;                                                                                          \
      __VA_ARGS__ out[i] = h;                                                                             \
    }                                                                                                     \
  }
#define DOWN(x, d, w) __nvvm_shfl_sync_down_i32(ALL, (s32)(x), d, ((32 - (w)) << 8) | 31)
#define UP(x, d, w) __nvvm_shfl_sync_up_i32(ALL, (s32)(x), d, ((32 - (w)) << 8))
#define XOR(x, d, w) __nvvm_shfl_sync_bfly_i32(ALL, (s32)(x), d, ((32 - (w)) << 8) | 31)
#define FROM(x, d, w) __nvvm_shfl_sync_idx_i32(ALL, (s32)(x), d, ((32 - (w)) << 8) | 31)
#define FROM_FLOAT(x, d) bits32(__nvvm_shfl_sync_idx_f32(ALL, (f32)(s32)(x), d, 31))
#define DOWN_THERE(x, d) down_there(x, d)
static inline u64 down_there(u64 x, s32 d) {
  s32 value;
  s32 there;
  __asm__ volatile("{\n\t.reg .pred p;\n\tshfl.sync.down.b32 %0|p, %2, %3, 31, -1;\n\tselp.s32 %1, 1, 0, p;\n\t}"
                   : "=r"(value), "=r"(there)
                   : "r"((s32)x), "r"(d));
  return (u32)value * 2ull + there;
}
#define BALLOT(x) (u32) __nvvm_vote_ballot_sync(ALL, x)
#define ANY(x) __nvvm_vote_any_sync(ALL, x)
#define EVERY(x) __nvvm_vote_all_sync(ALL, x)
#define SAME(x) __nvvm_vote_uni_sync(ALL, x)
#define MATCH32(x) (u32) __nvvm_match_any_sync_i32(ALL, (s32)(x))
#define MATCH64(x) (u32) __nvvm_match_any_sync_i64(ALL, (s64)(x))
#else
#define SHUFFLE(name, ...)                                                     \
  KERNEL name(u64* out, const u64* pa, const u64* pb, const u64* pc, u32 n) {  \
    for (u32 i = 0; i < n; ++i) {                                              \
      const u32 lane = i % 32;                                                 \
      const u64 *wa = pa + i - lane, *wb = pb + i - lane, *wc = pc + i - lane; \
      const u64 a = pa[i], b = pb[i], c = pc[i];                               \
      u64 h = 1;                                                               \
      __VA_ARGS__ out[i] = h;                                                  \
    }                                                                          \
  }
// `x` is written with a, b, c of this lane: V(k, x) gives it for lane k.
#define V(k, x)                                \
  ({                                           \
    const u64 a = wa[k], b = wb[k], c = wc[k]; \
    (void)a;                                   \
    (void)b;                                   \
    (void)c;                                   \
    (x);                                       \
  })
#define DOWN(x, d, w) (s32) V((lane + (d) <= (lane | ((w) - 1)) ? lane + (d) : lane), x)
#define UP(x, d, w) (s32) V(((s32)(lane - (d)) >= (s32)(lane & ~((w) - 1)) ? lane - (d) : lane), x)
#define XOR(x, d, w) (s32) V(((lane ^ (d)) <= (lane | ((w) - 1)) ? (lane ^ (d)) : lane), x)
#define FROM(x, d, w) (s32) V(((lane & ~((w) - 1)) | ((d) & ((w) - 1))), x)
#define FROM_FLOAT(x, d) bits32((f32)(s32)V(((d) & 31), x))
#define DOWN_THERE(x, d) ((u32)V((lane + (d) < 32 ? lane + (d) : lane), x) * 2ull + (lane + (d) < 32))
#define BALLOT(x)                                                       \
  ({                                                                    \
    u32 m_ = 0;                                                         \
    for (u32 k_ = 0; k_ < 32; ++k_) m_ |= (u32)(V(k_, (x)) != 0) << k_; \
    m_;                                                                 \
  })
#define ANY(x) (BALLOT(x) != 0)
#define EVERY(x) (BALLOT(x) == ~0u)
#define SAME(x) (BALLOT(x) == ~0u || BALLOT(x) == 0)
#define MATCH32(x)                                                                  \
  ({                                                                                \
    u32 m_ = 0;                                                                     \
    for (u32 k_ = 0; k_ < 32; ++k_) m_ |= (u32)((u32)V(k_, (x)) == (u32)(x)) << k_; \
    m_;                                                                             \
  })
#define MATCH64(x)                                                                  \
  ({                                                                                \
    u32 m_ = 0;                                                                     \
    for (u32 k_ = 0; k_ < 32; ++k_) m_ |= (u32)((u64)V(k_, (x)) == (u64)(x)) << k_; \
    m_;                                                                             \
  })
#endif
SHUFFLE(shuffles, {
  MIX(DOWN(a, 1, 32));
  MIX(DOWN(b, 5, 8));
  MIX(UP(a, 3, 32));
  MIX(UP(c, 1, 4));
  MIX(XOR(b, 16, 32));
  MIX(XOR(a, 3, 16));
  MIX(FROM(a, 7, 32));
  MIX(FROM(b, 3, 8));
  MIX(FROM_FLOAT(c, 30));
  MIX(DOWN_THERE(a, 9));
  MIX(DOWN(a >> 32, 2, 2));
})
SHUFFLE(votes, {
  MIX(BALLOT(a & 1));
  MIX(BALLOT(b > c));
  MIX(ANY((a & 63) == 5));
  MIX(EVERY((a & 63) != 5));
  MIX(SAME((c & 255) == 5));
  MIX(BALLOT(a & 4) >> lane);
  MIX(MATCH32(a & 3));
  MIX(MATCH64(b & 7));
  MIX(MATCH32(c >> 62));
})
SHUFFLE(specials, {
#ifdef __NVPTX__
  MIX(__nvvm_read_ptx_sreg_laneid());
  MIX(__nvvm_read_ptx_sreg_lanemask_eq());
  MIX((u32)__nvvm_read_ptx_sreg_lanemask_lt());
  MIX((u32)__nvvm_read_ptx_sreg_lanemask_le());
  MIX((u32)__nvvm_read_ptx_sreg_lanemask_gt());
  MIX((u32)__nvvm_read_ptx_sreg_lanemask_ge());
  MIX(__nvvm_read_ptx_sreg_ntid_x());
  MIX(__nvvm_read_ptx_sreg_nctaid_x());
  MIX(__nvvm_read_ptx_sreg_tid_y() + __nvvm_read_ptx_sreg_tid_z());
  MIX(__nvvm_read_ptx_sreg_nwarpid() * 0 + 32);
  u32 mask;
  __asm__ volatile("activemask.b32 %0;" : "=r"(mask));
  MIX(mask);
#else
  MIX(lane); MIX((s32)(1u << lane)); MIX((1u << lane) - 1); MIX((u32)((2ull << lane) - 1)); MIX(lane == 31 ? 0 : ~0u << (lane + 1)); MIX(~0u << lane);
  MIX(BLOCK); MIX(n / BLOCK); MIX(0); MIX(32); MIX(~0u);
#endif
})
// ---- a sum over the warp, over the block, in the order in which a tree makes it
KERNEL tree(u64 GLOBAL* out, const u64 GLOBAL* pa, const u64 GLOBAL* pb, const u64 GLOBAL* pc, u32 n) {
#ifdef __NVPTX__
  static f32 SHARED part[BLOCK / 32];
  EACH_INDEX {
    f32 x = (f32)within(pa[i], 1000);
    for (u32 d = 16; d; d >>= 1) x += __nvvm_shfl_sync_bfly_f32(ALL, x, d, 31);
    if (LANE == 0) part[THREAD / 32] = x;
    SYNC;
    f32 sum = 0;
    for (u32 k = 0; k < BLOCK / 32; ++k) sum += part[k];
    out[i] = bits32(sum);
  }
#else
  for (u32 first = 0; first < n; first += BLOCK) {
    f32 sum = 0;
    for (u32 w = 0; w < BLOCK / 32; ++w) {
      f32 x[32];
      for (u32 k = 0; k < 32; ++k) x[k] = (f32)within(pa[first + w * 32 + k], 1000);
      for (u32 d = 16; d; d >>= 1) {
        f32 y[32];
        for (u32 k = 0; k < 32; ++k) y[k] = x[k] + x[k ^ d];
        for (u32 k = 0; k < 32; ++k) x[k] = y[k];
      }
      sum += x[0];
    }
    for (u32 t = 0; t < BLOCK; ++t) out[first + t] = bits32(sum);
  }
#endif
}
// ---- atomics: of all threads of a block on words of shared memory, then of its thread alone on a word of `out`
KERNEL atomics_shared(u64 GLOBAL* out, const u64 GLOBAL* pa, const u64 GLOBAL* pb, const u64 GLOBAL* pc, u32 n) {
#ifdef __NVPTX__
  static u32 SHARED w[12];
  static u64 SHARED l[8];
  static s32 SHARED s[2];
  static f32 SHARED f[1];
  EACH_INDEX {
    if (THREAD == 0) {
      for (int k = 0; k < 12; ++k) w[k] = k == 4 || k == 2 ? ~0u : 0;
      for (int k = 0; k < 8; ++k) l[k] = k == 2 ? ~0ull : 0;
      s[0] = 0x7fffffff, s[1] = -0x7fffffff, f[0] = 0;
    }
    SYNC;
    const u32 x = (u32)pa[i];
    const u64 y = pb[i];
    __atomic_fetch_add((u32*)&w[0], x, __ATOMIC_RELAXED);
    __atomic_fetch_sub((u32*)&w[1], x, __ATOMIC_SEQ_CST);
    __atomic_fetch_and((u32*)&w[2], x | 0xff, __ATOMIC_ACQ_REL);
    __atomic_fetch_or((u32*)&w[3], x & 0xf0f, __ATOMIC_RELEASE);
    __nvvm_atom_min_gen_ui((u32*)&w[4], x);
    __nvvm_atom_max_gen_ui((u32*)&w[5], x);
    __atomic_fetch_xor((u32*)&w[6], x, __ATOMIC_RELAXED);
    __nvvm_atom_inc_gen_ui((u32*)&w[7], 40);
    __nvvm_atom_cta_add_gen_i((s32*)&w[8], (s32)x);
    __atomic_fetch_add((u64*)&l[0], y, __ATOMIC_RELAXED);
    __atomic_fetch_xor((u64*)&l[1], y, __ATOMIC_RELAXED);
    __atomic_fetch_and((u64*)&l[2], y | 3, __ATOMIC_RELAXED);
    __atomic_fetch_max((u64*)&l[3], y, __ATOMIC_RELAXED);
    __atomic_fetch_min((s32*)&s[0], (s32)x, __ATOMIC_RELAXED);
    __atomic_fetch_max((s32*)&s[1], (s32)x, __ATOMIC_RELAXED);
    __nvvm_atom_add_gen_f((f32*)&f[0], (f32)(x & 255));
    u32 seen = w[9];
    for (;;) {
      const u32 was = (u32)__nvvm_atom_cas_gen_i((s32*)&w[9], (s32)seen, (s32)(seen * 1 + (x & 15)));
      if (was == seen) break;
      seen = was;
    }
    u32 old = __atomic_load_n((u32*)&w[10], __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n((u32*)&w[10], &old, old + 3, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    SYNC;
    u64 h = 2;
    for (int k = 0; k < 11; ++k) MIX(w[k]);
    for (int k = 0; k < 4; ++k) MIX(l[k]);
    MIX(s[0]);
    MIX(s[1]);
    MIX(bits32(f[0]));
    out[i] = h;
  }
#else
  for (u32 first = 0; first < n; first += BLOCK) {
    u32 w[12] = {0};
    u64 l[8] = {0};
    s32 s[2] = {0x7fffffff, -0x7fffffff};
    f32 f = 0;
    w[2] = w[4] = ~0u;
    l[2] = ~0ull;
    for (u32 t = 0; t < BLOCK; ++t) {
      const u32 x = (u32)pa[first + t];
      const u64 y = pb[first + t];
      w[0] += x, w[1] -= x, w[2] &= x | 0xff, w[3] |= x & 0xf0f, w[4] = x < w[4] ? x : w[4], w[5] = x > w[5] ? x : w[5],
                                                                 w[6] ^= x, w[7] = w[7] >= 40 ? 0 : w[7] + 1, w[8] += x;
      l[0] += y, l[1] ^= y, l[2] &= y | 3, l[3] = y > l[3] ? y : l[3], s[0] = (s32)x < s[0] ? (s32)x : s[0],
                                           s[1] = (s32)x > s[1] ? (s32)x : s[1], f += (f32)(x & 255), w[9] += x & 15,
                                           w[10] += 3;
    }
    u64 h = 2;
    for (int k = 0; k < 11; ++k) MIX(w[k]);
    for (int k = 0; k < 4; ++k) MIX(l[k]);
    MIX(s[0]);
    MIX(s[1]);
    MIX(bits32(f));
    for (u32 t = 0; t < BLOCK; ++t) out[first + t] = h;
  }
#endif
}
static inline u64 one_word(u64* word, u64 a, u64 b) {
  u64 h = 3;
  u32* low = (u32*)word;
  *word = a;
  MIX(__atomic_exchange_n(word, b, __ATOMIC_SEQ_CST));
  MIX(__atomic_fetch_add(word, a, __ATOMIC_ACQUIRE));
  MIX(__atomic_load_n(word, __ATOMIC_RELAXED));
  __atomic_store_n(word, a ^ b, __ATOMIC_RELAXED);
  MIX(__atomic_load_n(word, __ATOMIC_RELAXED));
  __atomic_store_n(low, (u32)a, __ATOMIC_RELAXED);
  u64 expected = *word;
  MIX(__atomic_compare_exchange_n(word, &expected, b, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  expected = 1;
  MIX(__atomic_compare_exchange_n(word, &expected, a, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  MIX(expected);
  MIX(__atomic_fetch_nand(low, (u32)b, __ATOMIC_RELAXED));
  MIX(__atomic_sub_fetch(word, 77, __ATOMIC_RELAXED));
  FENCES;
  MIX(__atomic_exchange_n(low + 1, 5, __ATOMIC_RELAXED));
  MIX(__atomic_fetch_or(low + 1, (u32)a, __ATOMIC_RELAXED));
  u16* half = (u16*)word;
  MIX(__atomic_fetch_add(half, (u16)b, __ATOMIC_RELAXED));
  MIX(__atomic_exchange_n(half + 3, (u16)a, __ATOMIC_RELAXED));
  u8* byte = (u8*)word;
  MIX(__atomic_fetch_xor(byte + 1, (u8)b, __ATOMIC_RELAXED));
  u8 was = byte[5];
  MIX(__atomic_compare_exchange_n(byte + 5, &was, (u8)a, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  f32* real = (f32*)word;
  *real = 1.5f;
  MIX(bits32(__atomic_fetch_add(real, 2.25f, __ATOMIC_RELAXED)));
  MIX(*word);
  f64* number = (f64*)word;
  *number = within(a, 50);
  MIX(bits64(__atomic_fetch_add(number, 2.25, __ATOMIC_RELAXED)));
  MIX(bits64(__atomic_fetch_sub(number, 8, __ATOMIC_RELAXED)));
  MIX(bits64(*number));
  return h;
}
KERNEL atomics_alone(u64 GLOBAL* out, const u64 GLOBAL* pa, const u64 GLOBAL* pb, const u64 GLOBAL* pc, u32 n) {
  EACH_INDEX out[i] = one_word((u64*)&out[i], pa[i], pb[i]);
}
// ---- builtins and instructions written out
#ifdef __NVPTX__
#define ASM1(D, code, a)                          \
  ({                                              \
    D d_;                                         \
    __asm__(code " %0, %1;" : "=r"(d_) : "r"(a)); \
    d_;                                           \
  })
#define ASM2(D, code, a, b)                                   \
  ({                                                          \
    D d_;                                                     \
    __asm__(code " %0, %1, %2;" : "=r"(d_) : "r"(a), "r"(b)); \
    d_;                                                       \
  })
#define ASM3(D, code, a, b, c)                                            \
  ({                                                                      \
    D d_;                                                                 \
    __asm__(code " %0, %1, %2, %3;" : "=r"(d_) : "r"(a), "r"(b), "r"(c)); \
    d_;                                                                   \
  })
#endif
static inline u32 select_bytes(u32 a, u32 b, u32 s) {
#ifdef __NVPTX__
  return (u32)__nvvm_prmt((s32)a, (s32)b, (s32)s);
#else
  const u64 all = a | (u64)b << 32;
  u32 r = 0;
  for (int k = 0; k < 4; ++k) {
    const u32 w = s >> (4 * k) & 15;
    u32 x = (u32)(all >> (8 * (w & 7))) & 255;
    if (w & 8) x = x & 128 ? 255 : 0;
    r |= x << (8 * k);
  }
  return r;
#endif
}
static inline u32 dot_bytes(u32 a, u32 b, u32 c, int kind) {
#ifdef __NVPTX__
  switch (kind) {
    case 0:
      return ASM3(u32, "dp4a.u32.u32", a, b, c);
    case 1:
      return ASM3(u32, "dp4a.s32.s32", a, b, c);
    case 2:
      return ASM3(u32, "dp4a.u32.s32", a, b, c);
    case 3:
      return ASM3(u32, "dp2a.lo.s32.s32", a, b, c);
    default:
      return ASM3(u32, "dp2a.hi.u32.u32", a, b, c);
  }
#else
  for (int k = 0; k < 4; ++k) {
    const u8 x = (u8)(a >> (8 * k)), y = (u8)(b >> (8 * k));
    if (kind == 0)
      c += (u32)x * y;
    else if (kind == 1)
      c += (u32)((s8)x * (s8)y);
    else if (kind == 2)
      c += (u32)(x * (s8)y);
    else if (k < 2 && kind == 3)
      c += (u32)((s16)(a >> (16 * k)) * (s8)y);
    else if (k < 2)
      c += (u32)(u16)(a >> (16 * k)) * (u8)(b >> (16 + 8 * k));
  }
  return c;
#endif
}
#ifdef __NVPTX__
#define CHOOSE(device, host) device
#else
#define CHOOSE(device, host) host
#endif
static inline s64 held(f64 x, f64 least, f64 most) {
  return x != x ? 0 : x < least ? (s64)least : x > most ? (s64)most : (s64)x;
}
EACH(integer_builtins, u64, u64, {
  u64 h = 4;
  const u32 x = (u32)a, y = (u32)b, z = (u32)c;
  const s32 s = (s32)a, t = (s32)b;
  MIX(select_bytes(x, y, z));
  for (int k = 0; k < 5; ++k) MIX(dot_bytes(x, y, z, k));
  MIX(CHOOSE(__nvvm_mul24_i(s, t), (s32)((u32)((s32)((u32)s << 8) >> 8) * (u32)((s32)((u32)t << 8) >> 8))));
  MIX(CHOOSE((u32)__nvvm_mul24_ui(x, y), (x & 0xffffff) * (y & 0xffffff)));
  MIX(CHOOSE(__nvvm_mulhi_i(s, t), (s32)(((s64)s * t) >> 32)));
  MIX(CHOOSE((u32)__nvvm_mulhi_ui(x, y), (u32)(((u64)x * y) >> 32)));
  MIX(CHOOSE((u64)__nvvm_mulhi_ull(a, b), (u64)(((unsigned __int128)a * b) >> 64)));
  MIX(CHOOSE((s64)__nvvm_mulhi_ll((s64)a, (s64)b), (s64)(((__int128)(s64)a * (s64)b) >> 64)));
  MIX(CHOOSE((u32)ASM3(u32, "bfe.u32", x, y & 31, z & 31),
             (z & 31) == 0 ? 0 : (x >> (y & 31)) & ((1u << (z & 31)) - 1)));
  MIX(CHOOSE(ASM2(u32, "mul.hi.u32", x, y), (u32)(((u64)x * y) >> 32)));
  MIX(CHOOSE(ASM3(u32, "mad.hi.u32", x, y, z), (u32)(((u64)x * y) >> 32) + z));
  MIX(CHOOSE(ASM3(u32, "sad.u32", x, y, z), (x > y ? x - y : y - x) + z));
  return h;
})
