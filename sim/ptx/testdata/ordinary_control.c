// Memory, calls and control flow.
#include "ordinary.inc"

#ifdef __NVPTX__
#define THREAD __nvvm_read_ptx_sreg_tid_x()
#define SYNC __nvvm_bar_sync(0)
#else
void* memcpy(void*, const void*, unsigned long);
#endif

// ---- control flow
EACH(branches, u64, u64, {
  u64 h = 1;
  switch ((u32)a % 13) {
    case 0:
      MIX(b + 3);
      break;
    case 1:
      MIX(b * 3);
    case 2:
      MIX(b ^ c);
      break;
    case 3:
      for (u32 k = 0; k < (b & 31); ++k) {
        if (k == 17) break;
        if (k % 3 == 1) continue;
        MIX(k * c);
      }
      break;
    case 4:
      do {
        MIX(b);
        b >>= 7;
      } while (b);
      break;
    case 5:
      if ((b & 1 && c & 2) || (b & 4 && !(c & 8)))
        MIX(5);
      else
        MIX(6);
      break;
    case 6:
      for (u32 x = 0; x < 5; ++x)
        for (u32 y = x; y < (c & 7); ++y) {
          if (x * y == 6) goto out;
          MIX(x * 10 + y);
        }
      break;
    case 8:
      return c;
    case 9:
      while (c & 1) {
        c = c * 3 + 1;
        while (!(c & 1) && c) c >>= 1;
        if (++b % 50 == 0) break;
      }
      MIX(c);
      break;
    case 11:
      MIX(b ? b & c ? 1 : 2 : c ? 3 : 4);
      break;
    default:
      MIX(c);
  }
out:
  switch (c % 1000) {
    case 5:
      MIX(1);
      break;
    case 77:
      MIX(2);
      break;
    case 500:
      MIX(3);
      break;
    case 999:
      MIX(4);
      break;
  }
  return h;
})
static const char* const names[] = {"zero", "one", "two", "three"};
EACH(strings, u64, u64, {
  u64 h = 2;
  for (const char* p = names[a & 3]; *p; ++p) MIX(*p);
  return h + b + c;
})
// ---- calls
typedef struct {
  u64 x;
  u32 y[5];
  u8 z;
  f64 w;
} Large;
typedef struct {
  u32 x, y;
} Small;
typedef struct {
  f32 x, y, z;
} Point;
NOINLINE static Large turned(Large in, u32 by) {
  Large out = in;
  for (int k = 0; k < 5; ++k) out.y[k] = in.y[(k + by) % 5] + by;
  out.x ^= in.z, out.z += (u8)by, out.w = in.w * 2;
  return out;
}
NOINLINE static Small swapped(Small s) {
  Small r = {s.y, s.x + 1};
  return r;
}
NOINLINE static Point moved(Point p, Point* by) {
  Point r = {p.x + by->x, p.y * by->y, p.z - by->z};
  by->x = r.y;
  return r;
}
NOINLINE static u8 narrow(s8 a, u16 b, u8 c) { return (u8)(a * b + c); }
NOINLINE static s16 narrow_signed(s16 a, s8 b) { return (s16)(a - b); }
NOINLINE static f16 half_way(f16 a, f16 b) { return a + b; }
NOINLINE static int is_odd(u64 x) { return (x & 1) != 0; }
NOINLINE static _Bool both(_Bool a, _Bool b) { return a && b; }
NOINLINE static unsigned __int128 wide(unsigned __int128 a, u64 b) { return a * b + 1; }
NOINLINE static f64 many(u8 a, u64 b, f32 c, s16 d, f64 e, u32 f, const u32* g, s64 h, f16 i) {
  return a + b % 1000 + c + d + e + f % 100 + *g % 10 + h % 7 + (f64)i;
}
EACH(calls, u64, u64, {
  u64 h = 3;
  Large l = {a, {(u32)b, (u32)c, 3, 4, 5}, (u8)a, within(b, 1e6)};
  l = turned(turned(l, (u32)a % 7), 2);
  MIX(l.x);
  for (int k = 0; k < 5; ++k) MIX(l.y[k]);
  MIX(l.z);
  MIX(bits64(l.w));
  Small s = {(u32)a, (u32)b};
  s = swapped(s);
  MIX(s.x);
  MIX(s.y);
  Point p = {(f32)within(a, 100), (f32)within(b, 100), (f32)within(c, 100)};
  Point by = {1, 2, 3};
  p = moved(p, &by);
  MIX(bits32(p.x));
  MIX(bits32(p.y));
  MIX(bits32(p.z));
  MIX(bits32(by.x));
  MIX(narrow((s8)a, (u16)b, (u8)c));
  MIX(narrow_signed((s16)a, (s8)b));
  MIX(bits16(half_way((f16)within(a, 10), (f16)within(b, 10))));
  MIX(is_odd(c));
  MIX(both(a & 1, b & 2));
  unsigned __int128 w = wide((unsigned __int128)a << 40 | b, c);
  MIX((u64)w);
  MIX((u64)(w >> 64));
  u32 local = (u32)c;
  MIX(bits64(many((u8)a, b, (f32)within(a, 9), (s16)c, within(c, 1e5), (u32)b, &local, (s64)a, (f16)2)));
  return h;
})
typedef u64 (*Function)(u64, u64);
NOINLINE static u64 plus(u64 a, u64 b) { return a + b; }
NOINLINE static u64 times(u64 a, u64 b) { return a * b; }
NOINLINE static u64 either(u64 a, u64 b) { return a ^ b; }
NOINLINE static u64 twice(u64 a, u64 b) { return plus(plus(a, b), b); }
static const Function functions[4] = {plus, times, either, twice};
typedef struct {
  Function f;
  u64 with;
} Closure;
NOINLINE static u64 apply(const Closure* c, u64 x) { return c->f(x, c->with); }
EACH(function_pointers, u64, u64, {
  Closure first = {functions[a & 3], b};
  Closure second = {c & 1 ? times : either, c};
  Function same = a & 8 ? plus : times;
  return apply(&first, a) + apply(&second, b) + same(a, c) + (functions[b & 3] == plus);
})
NOINLINE static u32 ackermann(u32 m, u32 n) {
  return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
NOINLINE static int is_even(u32 n);
NOINLINE static int is_uneven(u32 n) { return n == 0 ? 0 : is_even(n - 1); }
NOINLINE static int is_even(u32 n) { return n == 0 ? 1 : is_uneven(n - 1); }
EACH(recursion, u64, u64,
     { return ackermann(a & 1, b & 7) * 100 + (u64)is_even((u32)c & 15) * 10 + ackermann(2, a >> 8 & 3); })
// ---- local memory
EACH(local_arrays, u64, u64, {
  u8 bytes[40];
  u16 shorts[20];
  u64 longs[8];
  f32 floats[9];
  Large structs[3];
  u32 grid[4][5];
  for (int k = 0; k < 40; ++k) bytes[k] = (u8)(a >> (k & 31)) + (u8)k;
  for (int k = 0; k < 20; ++k) shorts[k] = (u16)(b >> k);
  for (int k = 0; k < 8; ++k) longs[k] = a * (u64)k ^ c;
  for (int k = 0; k < 9; ++k) floats[k] = (f32)(s32)(c >> k);
  for (int k = 0; k < 4; ++k)
    for (int m = 0; m < 5; ++m) grid[k][m] = bytes[k * 5 + m] * 3u;
  for (int k = 0; k < 3; ++k) {
    structs[k].x = longs[k];
    structs[k].z = bytes[k];
    structs[k].w = floats[k];
    for (int m = 0; m < 5; ++m) structs[k].y[m] = grid[k][m];
  }
  u64 h = 4;
  MIX(bytes[a % 40]);
  MIX(shorts[b % 20]);
  MIX(longs[c % 8]);
  MIX(bits32(floats[a % 9]));
  MIX(grid[b % 4][c % 5]);
  structs[a % 3] = structs[b % 3];
  MIX(structs[c % 3].x);
  MIX(structs[c % 3].y[a % 5]);
  MIX(bits64(structs[c % 3].w));
  MIX(structs[a % 3].z);
  u8 copy[40];
  __builtin_memcpy(copy, bytes, 40);
  __builtin_memmove(copy + 1, copy, 30);
  __builtin_memset(copy + 35, (int)(b & 255), 5);
  for (int k = 0; k < 40; ++k) MIX(copy[k]);
  u32* p = &grid[1][2];
  p[c % 7] += 5;
  MIX(grid[1][2] + grid[2][3]);
  return h;
})
NOINLINE static u64 sum_of(const u8* p, u32 n) {
  u64 s = 0;
  for (u32 k = 0; k < n; ++k) s = s * 31 + p[k];
  return s;
}
EACH(copies_of_any_length, u64, u64, {
  u8 from[64], to[64];
  for (u32 k = 0; k < 64; ++k) from[k] = (u8)(a >> (k & 56)) ^ (u8)k, to[k] = 0;
  __builtin_memcpy(to, from, b & 63);
  __builtin_memset(to + (c & 31), 7, b & 15);
  __builtin_memmove(from + 1, from, a & 31);
  return sum_of(to, 64) ^ sum_of(from, 64);
})
// ---- vectors and widths
typedef f32 f32x4 __attribute__((ext_vector_type(4)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef u16 u16x4 __attribute__((ext_vector_type(4)));
typedef u8 u8x4 __attribute__((ext_vector_type(4)));
typedef u8 u8x16 __attribute__((ext_vector_type(16)));
typedef u64 u64x2 __attribute__((ext_vector_type(2)));
typedef f64 f64x2 __attribute__((ext_vector_type(2)));
typedef union {
  u32x4 u;
  f32x4 f;
  u64x2 l;
  u8x16 b;
  u16x4 s[2];
  u8x4 c[4];
  u32x2 p[2];
  f64x2 d;
} Sixteen;
#define AROUND(p, i) ((p) + (((i) & ~1u) % 1024))
KERNEL vectors(u64 GLOBAL* out, const u64 GLOBAL* pa, const u64 GLOBAL* pb, const u64 GLOBAL* pc, u32 n) {
  EACH_INDEX {
    Sixteen x, y;
    x.u = *(const u32x4 GLOBAL*)AROUND(pa, i);
    y.u = *(const u32x4 GLOBAL*)AROUND(pb, i);
    u64 h = 5;
    u32x4 s = x.u * y.u + x.u.wzyx;
    MIX(s.x);
    MIX(s.y);
    MIX(s.z);
    MIX(s.w);
    f32x4 f = x.f * 0.5f - y.f;
    for (int k = 0; k < 4; ++k) MIX(bits32(f[k]));
    u8x4 c = x.c[1] + y.c[2] * (u8)3;
    MIX(c.x);
    MIX(c.y);
    MIX(c.z);
    MIX(c.w);
    u16x4 t = x.s[1] ^ y.s[0];
    t = t.yxwz;
    MIX(t.x);
    MIX(t.y);
    MIX(t.z);
    MIX(t.w);
    u64x2 l = x.l + y.l.yx;
    MIX(l.x);
    MIX(l.y);
    u8x16 b = x.b;
    b[i & 15] = 9;
    MIX(b[(i + 3) & 15]);
    MIX(b[i & 15]);
    u32x2 q = x.p[i & 1] | y.p[0];
    MIX(q.x);
    MIX(q.y);
    MIX(__builtin_reduce_add(x.u));
    MIX(__builtin_reduce_max(y.u));
    MIX(__builtin_reduce_xor(y.b));
    const u8 GLOBAL* bytes = (const u8 GLOBAL*)(pc + i);
    const u16 GLOBAL* shorts = (const u16 GLOBAL*)(pc + i);
    MIX(bytes[3]);
    MIX(((const s8 GLOBAL*)bytes)[5]);
    MIX(shorts[1]);
    MIX(((const s16 GLOBAL*)shorts)[2]);
    MIX(((const u32 GLOBAL*)bytes)[1]);
    MIX(bits32((f32)((const f16 GLOBAL*)shorts)[3]));
    out[i] = h;
  }
}
KERNEL stores(u64 GLOBAL* out, const u64 GLOBAL* pa, const u64 GLOBAL* pb, const u64 GLOBAL* pc, u32 n) {
  EACH_INDEX {
    const u64 a = pa[i], b = pb[i], c = pc[i];
    u8 GLOBAL* bytes = (u8 GLOBAL*)(out + i);
    switch (i % 8) {
      case 0:
        for (int k = 0; k < 8; ++k) bytes[k] = (u8)(a >> k);
        break;
      case 1:
        for (int k = 0; k < 4; ++k) ((u16 GLOBAL*)bytes)[k] = (u16)(b >> k);
        break;
      case 2:
        *(u32x2 GLOBAL*)bytes = (u32x2){(u32)a, (u32)b};
        break;
      case 3:
        *(u16x4 GLOBAL*)bytes = (u16x4){(u16)a, (u16)b, (u16)c, 7};
        break;
      case 4:
        *(f64 GLOBAL*)bytes = within(a, 100);
        break;
      case 5:
        ((f32 GLOBAL*)bytes)[0] = (f32)within(b, 9), ((f32 GLOBAL*)bytes)[1] = (f32)(s32)c;
        break;
      case 6:
        ((u8x4 GLOBAL*)bytes)[0] = (u8x4){(u8)a, (u8)b, (u8)c, 1}, ((u8x4 GLOBAL*)bytes)[1] = (u8x4)((u8)3);
        break;
      case 7:
        *(volatile u64 GLOBAL*)bytes = a - c;
        break;
    }
  }
}
// ---- variables of the module
static u32 numbers[6] = {1, 2, 0x80000000u, 4, 5};
typedef struct {
  s8 a;
  f32 b;
  const u32* c;
  f64 d;
  const char* e;
  s64 f;
  Small g[2];
} Mixed;
static const Mixed mixed[2] = {{-1, 0.5f, &numbers[2], 1e300, "text", -5, {{1, 2}, {3, 4}}},
                               {7, -0.0f, numbers, 0.1, names, 1ll << 40}};
static u64 CONSTANT constants[4] = {11, 22, 33, ~0ull};
static const f16 halves[3] = {(f16)0.5, (f16)-2, (f16)65504};
static const _Bool flags[5] = {1, 0, 1};
EACH(variables, u64, u64, {
  const Mixed* m = &mixed[a & 1];
  u64 h = 6;
  MIX(m->a);
  MIX(bits32(m->b));
  MIX(m->c[b & 1]);
  MIX(bits64(m->d));
  MIX(a & 1 ? 0 : m->e[b & 3]);
  MIX(m->f);
  MIX(m->g[c & 1].y);
  MIX(constants[c & 3]);
  MIX(bits16(halves[b % 3]));
  MIX(flags[a % 5]);
  MIX(numbers[c % 6]);
  return h;
})
// ---- a pointer to any space
NOINLINE static u64 through(const u64* p) { return *p * 3; }
KERNEL generic(u64 GLOBAL* out, const u64 GLOBAL* pa, const u64 GLOBAL* pb, const u64 GLOBAL* pc, u32 n) {
#ifdef __NVPTX__
  static u64 SHARED shared[BLOCK];
  EACH_INDEX {
    shared[THREAD] = pb[i];
    SYNC;
    const u64 local = pc[i];
    const u32 which = pa[i] % 4;
    const u64* p = which == 0   ? (const u64*)(pa + i)
                   : which == 1 ? (const u64*)&shared[THREAD ^ 1]
                   : which == 2 ? &local
                                : (const u64*)&constants[1];
    out[i] = through(p);
  }
#else
  for (u32 i = 0; i < n; ++i) {
    const u32 which = pa[i] % 4;
    out[i] = through(which == 0 ? pa + i : which == 1 ? pb + (i ^ 1) : which == 2 ? pc + i : &constants[1]);
  }
#endif
}
// ---- shared memory and barriers
KERNEL reversed_and_summed(u64 GLOBAL* out, const u64 GLOBAL* pa, const u64 GLOBAL* pb, const u64 GLOBAL* pc, u32 n) {
#ifdef __NVPTX__
  static u64 SHARED row[BLOCK];
  static u8 SHARED low[BLOCK];
  const u32 t = THREAD;
  EACH_INDEX {
    row[t] = pa[i];
    low[t] = (u8)pb[i];
    SYNC;
    const u64 mine = row[BLOCK - 1 - t] + low[t ^ 5];
    SYNC;
    row[t] = mine;
    for (u32 d = BLOCK / 2; d; d >>= 1) {
      SYNC;
      if (t < d) row[t] += row[t + d];
    }
    SYNC;
    out[i] = mine * row[0] + (u32)__nvvm_bar0_popc((int)(pc[i] & 1)) + (u64)__nvvm_bar0_or(pc[i] % 100 == 0) * 1000 +
             (u64)__nvvm_bar0_and(pc[i] % 50 != 0) * 5000;
  }
#else
  for (u32 first = 0; first < n; first += BLOCK) {
    u64 mine[BLOCK], sum = 0, odd = 0, some = 0, all = 1;
    for (u32 t = 0; t < BLOCK; ++t) {
      mine[t] = pa[first + BLOCK - 1 - t] + (u8)pb[first + (t ^ 5)];
      sum += mine[t], odd += pc[first + t] & 1, some |= pc[first + t] % 100 == 0, all &= pc[first + t] % 50 != 0;
    }
    for (u32 t = 0; t < BLOCK; ++t) out[first + t] = mine[t] * sum + odd + some * 1000 + all * 5000;
  }
#endif
}
