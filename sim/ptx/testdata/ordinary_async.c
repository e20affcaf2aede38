// What came with sm_80 and sm_90: copies beside the work, barriers in memory, sums over a warp, bf16.
#include "ordinary.inc"

#ifdef __NVPTX__
#define THREAD __nvvm_read_ptx_sreg_tid_x()
#define LANE __nvvm_read_ptx_sreg_laneid()
#define CHOOSE(device, host) device
#else
#define CHOOSE(device, host) host
#endif

#if !defined(__NVPTX__) || CARD >= 80
KERNEL copies(u64 GLOBAL* out, const u64 GLOBAL* pa, const u64 GLOBAL* pb, const u64 GLOBAL* pc, u32 n) {
#ifdef __NVPTX__
  static u64 SHARED a[BLOCK] __attribute__((aligned(16))), SHARED b[BLOCK] __attribute__((aligned(16))),
      SHARED c[BLOCK];
  const u32 t = THREAD, first = __nvvm_read_ptx_sreg_ctaid_x() * BLOCK;
  if (t % 2 == 0) __nvvm_cp_async_cg_shared_global_16((void SHARED*)&a[t], (const void GLOBAL*)(pa + first + t));
  __nvvm_cp_async_commit_group();
  __nvvm_cp_async_ca_shared_global_8((void SHARED*)&b[t], (const void GLOBAL*)(pb + first + t));
  __nvvm_cp_async_commit_group();
  __nvvm_cp_async_ca_shared_global_4((void SHARED*)&c[t], (const void GLOBAL*)(pc + first + t));
  __nvvm_cp_async_wait_group(1);
  __nvvm_cp_async_wait_all();
  __nvvm_bar_sync(0);
  out[first + t] = a[t ^ 1] + b[BLOCK - 1 - t] * 3 + (u32)c[t];
#else
  for (u32 i = 0; i < n; ++i) out[i] = pa[i ^ 1] + pb[i / BLOCK * BLOCK + BLOCK - 1 - i % BLOCK] * 3 + (u32)pc[i];
#endif
}
KERNEL barriers_in_memory(u64 GLOBAL* out, const u64 GLOBAL* pa, const u64 GLOBAL* pb, const u64 GLOBAL* pc, u32 n) {
#ifdef __NVPTX__
  static long long SHARED bar[2];
  static u64 SHARED x[BLOCK], SHARED y[BLOCK];
  const u32 t = THREAD, first = __nvvm_read_ptx_sreg_ctaid_x() * BLOCK;
  u64 h = 1;
  if (t == 0) __nvvm_mbarrier_init_shared(&bar[0], BLOCK), __nvvm_mbarrier_init_shared(&bar[1], BLOCK / 2);
  __nvvm_bar_sync(0);
  for (u32 round = 0; round < 3; ++round) {
    x[t] = pa[first + t] + round;
    const long long state = __nvvm_mbarrier_arrive_shared(&bar[0]);
    while (!__nvvm_mbarrier_test_wait_shared(&bar[0], state)) {
    }
    MIX(x[t ^ 77]);
    __nvvm_bar_sync(0);
  }
  if (t < BLOCK / 2) {  // half of the threads make what the others use
    __nvvm_cp_async_ca_shared_global_8((void SHARED*)&y[t], (const void GLOBAL*)(pb + first + t));
    __nvvm_cp_async_mbarrier_arrive_noinc_shared(&bar[1]);
  }
  __asm__ volatile(
      "{\n\t.reg .pred p;\nWAIT_%=:\n\tmbarrier.test_wait.parity.shared.b64 p, [%0], 0;\n\t@!p bra WAIT_%=;\n\t}" ::"r"(
          (u32)(u64)&bar[1])
      : "memory");
  MIX(y[t % (BLOCK / 2)]);
  __nvvm_bar_sync(0);
  if (t == 5) {
    __nvvm_mbarrier_init_shared(&bar[1], 5);
    long long state = __nvvm_mbarrier_arrive_noComplete_shared(&bar[1], 3);
    MIX(__nvvm_mbarrier_pending_count(state));
    state = __nvvm_mbarrier_arrive_drop_shared(&bar[1]);
    MIX(__nvvm_mbarrier_pending_count(state));
    MIX(__nvvm_mbarrier_test_wait_shared(&bar[1], state));
    state = __nvvm_mbarrier_arrive_shared(&bar[1]);
    MIX(__nvvm_mbarrier_pending_count(state));
    MIX(__nvvm_mbarrier_test_wait_shared(&bar[1], state));
    state = __nvvm_mbarrier_arrive_shared(&bar[1]);
    MIX(__nvvm_mbarrier_pending_count(state));
    __nvvm_mbarrier_inval_shared(&bar[1]);
  }
  out[first + t] = h;
#else
  for (u32 i = 0; i < n; ++i) {
    const u32 first = i / BLOCK * BLOCK, t = i % BLOCK;
    u64 h = 1;
    for (u32 round = 0; round < 3; ++round) MIX(pa[first + (t ^ 77)] + round);
    MIX(pb[first + t % (BLOCK / 2)]);
    if (t == 5) {
      MIX(5);
      MIX(2);
      MIX(0);
      MIX(1);
      MIX(1);
      MIX(4);
    }
    out[i] = h;
  }
#endif
}
KERNEL sums_over_warps(u64 GLOBAL* out, const u64 GLOBAL* pa, const u64 GLOBAL* pb, const u64 GLOBAL* pc, u32 n) {
#ifdef __NVPTX__
  EACH_INDEX {
    const s32 x = (s32)pa[i];
    u64 h = 2;
    MIX(__nvvm_redux_sync_add(x, -1));
    MIX(__nvvm_redux_sync_min(x, -1));
    MIX(__nvvm_redux_sync_max(x, -1));
    MIX((u32)__nvvm_redux_sync_umin((u32)x, -1));
    MIX((u32)__nvvm_redux_sync_umax((u32)x, -1));
    MIX(__nvvm_redux_sync_and(x, -1));
    MIX(__nvvm_redux_sync_or(x, -1));
    MIX(__nvvm_redux_sync_xor(x, -1));
    out[i] = h;
  }
#else
  for (u32 i = 0; i < n; ++i) {
    u32 add = 0, all = ~0u, any = 0, odd = 0, least = ~0u, most = 0;
    s32 low = 0x7fffffff, high = -0x7fffffff - 1;
    for (u32 k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) {
      const u32 x = (u32)pa[k];
      add += x, all &= x, any |= x, odd ^= x, least = x < least ? x : least, most = x > most ? x : most,
                                              low = (s32)x < low ? (s32)x : low, high = (s32)x > high ? (s32)x : high;
    }
    u64 h = 2;
    MIX((s32)add);
    MIX(low);
    MIX(high);
    MIX(least);
    MIX(most);
    MIX((s32)all);
    MIX((s32)any);
    MIX((s32)odd);
    out[i] = h;
  }
#endif
}
// ---- bf16: as its bits
static inline f32 upper(u64 x) { return as_f32(x << 16); }
static inline u16 shortened(f32 x) {
  union {
    f32 f;
    u32 u;
  } v;
  v.f = x;
  return x != x ? 0x7fff : (u16)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}
static inline u64 one_nan(u64 bits) { return (bits & 0x7fff) > 0x7f80 ? 0x7fff : bits & 0xffff; }
#ifdef __NVPTX__
static inline u64 bits_bf(__bf16 x) {
  u16 r;
  __builtin_memcpy(&r, &x, 2);
  return one_nan(r);
}
static inline __bf16 as_bf(u64 x) {
  __bf16 r;
  const u16 b = (u16)x;
  __builtin_memcpy(&r, &b, 2);
  return r;
}
#endif
EACH(brain_floats, u64, u64, {
  u64 h = 3;
  MIX(CHOOSE(bits_bf((__bf16)as_f32(a)), one_nan(shortened(as_f32(a)))));
  MIX(bits32(CHOOSE((f32)as_bf(b), upper((u16)b))));
  MIX(CHOOSE(bits_bf(as_bf(a) + as_bf(b)), one_nan(shortened(upper(a) + upper(b)))));
  MIX(CHOOSE(bits_bf(as_bf(a) * as_bf(b)), one_nan(shortened(upper(a) * upper(b)))));
  MIX(CHOOSE(bits_bf(as_bf(a) - as_bf(c)), one_nan(shortened(upper(a) - upper(c)))));
  MIX(CHOOSE(bits_bf(-as_bf(c)), one_nan(c ^ 0x8000)));
  MIX(CHOOSE(as_bf(a) < as_bf(b), upper(a) < upper(b)));
  MIX(CHOOSE(as_bf(a) == as_bf(b), upper(a) == upper(b)));
  return h;
})
EACH(brain_builtins, u64, u64, {
  u64 h = 4;
  MIX(CHOOSE(bits_bf(__nvvm_fma_rn_bf16(as_bf(a), as_bf(b), as_bf(c))), one_nan(shortened((f32)({
               const f64 p = (f64)upper(a) * upper(b);
               f64 s = p + (f64)upper(c);
               const f64 t = s - p;
               const f64 e = (p - (s - t)) + ((f64)upper(c) - t);
               union {
                 f64 f;
                 u64 u;
               } v;
               v.f = s;
               if (e != 0 && e == e && !(v.u & 1) && s - s == 0) v.u += (e > 0) == (s > 0) ? 1 : -1;
               f32 r = (f32)v.f;
               union {
                 f32 f;
                 u32 u;
               } w;
               w.f = r;
               if ((f64)r != v.f && v.f - v.f == 0 && r - r == 0) {
                 if (((f64)r > v.f) == (v.f > 0)) w.u -= 1;
                 w.u |= 1;
               }
               w.f;
             })))));
  return h;
})
#endif
