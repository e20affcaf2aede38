// Families of instructions against what they mean, written out again in C++.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/ptx/test_instruction.h"

namespace tensor_fusion::sim::ptx {
namespace {

constexpr std::size_t kCount = 5000;
constexpr Isa kIsas[] = {Isa::baseline, Isa::avx2, Isa::avx512};
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
__extension__ typedef __int128 Wide;

template <class D, class A, class B = A, class C = A, class F>
void expect(const std::string& code, const F& f, std::vector<A> a = random_bits<A>(kCount, 1),
            std::vector<B> b = random_bits<B>(kCount, 2), std::vector<C> c = random_bits<C>(kCount, 3)) {
  for (const Isa isa : kIsas) {
    std::string error;
    const auto d = apply<D, A, B, C>(code, a, b, c, isa, &error);
    ASSERT_EQ(d.size(), a.size()) << code << ": " << error;
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(d[i], static_cast<D>(f(a[i], b[i], c[i])))
          << code << " of " << std::hex << +a[i] << ' ' << +b[i] << ' ' << +c[i] << " at " << i;
    }
  }
}

TEST(Instruction, integer_arithmetic_wraps) {
  expect<u32, u32>("add.u32 %d, %a, %b;", [](u32 a, u32 b, u32) { return a + b; });
  expect<u64, u64>("sub.s64 %d, %a, %b;", [](u64 a, u64 b, u64) { return a - b; });
  expect<u16, u16>("mul.lo.u16 %d, %a, %b;", [](u16 a, u16 b, u16) { return static_cast<u32>(a) * b; });
  expect<u32, u32>("mad.lo.s32 %d, %a, %b, %c;", [](u32 a, u32 b, u32 c) { return a * b + c; });
  expect<u64, u64>("mad.lo.s64 %d, %a, 4, %b;", [](u64 a, u64 b, u64) { return a * 4 + b; });
  expect<u64, u64>("mul.lo.s64 %d, %a, %b;", [](u64 a, u64 b, u64) { return a * b; });
  expect<u32, u32>("mul.hi.u32 %d, %a, %b;", [](u32 a, u32 b, u32) { return (u64{a} * b) >> 32; });
  expect<s32, s32>("mul.hi.s32 %d, %a, %b;", [](s32 a, s32 b, s32) { return (s64{a} * b) >> 32; });
  expect<s64, s64>("mul.hi.s64 %d, %a, %b;", [](s64 a, s64 b, s64) { return static_cast<s64>((Wide{a} * b) >> 64); });
  expect<u64, u32>("mul.wide.u32 %d, %a, %b;", [](u32 a, u32 b, u32) { return u64{a} * b; });
  expect<s64, s32>("mul.wide.s32 %d, %a, %b;", [](s32 a, s32 b, s32) { return s64{a} * b; });
  expect<u32, u16>("mul.wide.u16 %d, %a, %b;", [](u16 a, u16 b, u16) { return u32{a} * b; });
  expect<s64, s32, s32, s64>("mad.wide.s32 %d, %a, %b, %c;", [](s32 a, s32 b, s64 c) {
    return static_cast<s64>(static_cast<u64>(s64{a} * b) + static_cast<u64>(c));
  });
  expect<u32, u32>("mul24.lo.u32 %d, %a, %b;", [](u32 a, u32 b, u32) { return (a & 0xffffff) * (b & 0xffffff); });
  expect<s32, s32>("add.sat.s32 %d, %a, %b;",
                   [](s32 a, s32 b, s32) { return std::clamp<s64>(s64{a} + b, INT32_MIN, INT32_MAX); });
  expect<s32, s32>("sub.sat.s32 %d, %a, %b;",
                   [](s32 a, s32 b, s32) { return std::clamp<s64>(s64{a} - b, INT32_MIN, INT32_MAX); });
  expect<u32, u32>("sad.u32 %d, %a, %b, %c;", [](u32 a, u32 b, u32 c) { return c + (a < b ? b - a : a - b); });
  expect<s32, s32>("min.s32 %d, %a, %b;", [](s32 a, s32 b, s32) { return std::min(a, b); });
  expect<u64, u64>("max.u64 %d, %a, %b;", [](u64 a, u64 b, u64) { return std::max(a, b); });
  expect<u32, u32>("abs.s32 %d, %a;", [](u32 a, u32, u32) { return static_cast<s32>(a) < 0 ? 0 - a : a; });
  expect<u64, u64>("neg.s64 %d, %a;", [](u64 a, u64, u64) { return 0 - a; });
}

TEST(Instruction, division_by_zero_gives_what_the_hardware_gives) {
  expect<u32, u32>("div.u32 %d, %a, %b;", [](u32 a, u32 b, u32) { return b == 0 ? ~0U : a / b; });
  expect<u32, u32>("rem.u32 %d, %a, %b;", [](u32 a, u32 b, u32) { return b == 0 ? a : a % b; });
  expect<s32, s32>("div.s32 %d, %a, %b;", [](s32 a, s32 b, s32) {
    return b == 0 ? -1 : b == -1 ? static_cast<s32>(0U - static_cast<u32>(a)) : a / b;
  });
  expect<s32, s32>("rem.s32 %d, %a, %b;", [](s32 a, s32 b, s32) { return b == 0 ? a : b == -1 ? 0 : a % b; });
  expect<s64, s64>("div.s64 %d, %a, %b;", [](s64 a, s64 b, s64) {
    return b == 0 ? -1 : b == -1 ? static_cast<s64>(0U - static_cast<u64>(a)) : a / b;
  });
  expect<u64, u64>("rem.u64 %d, %a, %b;", [](u64 a, u64 b, u64) { return b == 0 ? a : a % b; });
  expect<s16, s16>("div.s16 %d, %a, %b;", [](s16 a, s16 b, s16) { return b == 0 ? -1 : a / b; });
}

TEST(Instruction, carries_chain_through_wide_sums) {
  expect<u64, u64>(
      "mov.b64 {%t0, %t1}, %a;\n mov.b64 {%t2, %t3}, %b;\n add.cc.u32 %t0, %t0, %t2;\n addc.u32 %t1, %t1, %t3;\n "
      "mov.b64 %d, {%t0, %t1};",
      [](u64 a, u64 b, u64) { return a + b; });
  expect<u64, u64>(
      "mov.b64 {%t0, %t1}, %a;\n mov.b64 {%t2, %t3}, %b;\n sub.cc.u32 %t0, %t0, %t2;\n subc.u32 %t1, %t1, %t3;\n "
      "mov.b64 %d, {%t0, %t1};",
      [](u64 a, u64 b, u64) { return a - b; });
}

TEST(Instruction, bits_are_counted_found_reversed_and_moved) {
  expect<u32, u32>("popc.b32 %d, %a;", [](u32 a, u32, u32) { return std::popcount(a); });
  expect<u32, u64>("popc.b64 %d, %a;", [](u64 a, u64, u64) { return std::popcount(a); });
  expect<u32, u32>("clz.b32 %d, %a;", [](u32 a, u32, u32) { return std::countl_zero(a); });
  expect<u32, u64>("clz.b64 %d, %a;", [](u64 a, u64, u64) { return std::countl_zero(a); });
  expect<u32, u32>("bfind.u32 %d, %a;",
                   [](u32 a, u32, u32) { return a == 0 ? ~0U : 31U - static_cast<u32>(std::countl_zero(a)); });
  expect<u32, u32>("brev.b32 %d, %a;", [](u32 a, u32, u32) {
    u32 r = 0;
    for (int i = 0; i < 32; ++i) r |= ((a >> i) & 1U) << (31 - i);
    return r;
  });
  expect<u32, u32>("bfe.u32 %d, %a, 5, 11;", [](u32 a, u32, u32) { return (a >> 5) & 0x7ffU; });
  expect<s32, s32>("bfe.s32 %d, %a, 5, 11;",
                   [](s32 a, s32, s32) { return static_cast<s32>(static_cast<u32>(a) << 16) >> 21; });
  expect<s32, s32>("bfe.s32 %d, %a, 28, 11;", [](s32 a, s32, s32) { return a >> 28; });
  expect<u32, u32>("bfi.b32 %d, %a, %b, 7, 9;",
                   [](u32 a, u32 b, u32) { return (b & ~(0x1ffU << 7)) | ((a & 0x1ffU) << 7); });
  expect<u64, u64>("bfi.b64 %d, %a, %b, 40, 60;",
                   [](u64 a, u64 b, u64) { return (b & ((u64{1} << 40) - 1)) | (a << 40); });
  expect<u32, u32>("lop3.b32 %d, %a, %b, %c, 0x96;", [](u32 a, u32 b, u32 c) { return a ^ b ^ c; });
  expect<u32, u32>("lop3.b32 %d, %a, %b, %c, 0xe8;", [](u32 a, u32 b, u32 c) { return (a & b) | (b & c) | (a & c); });
  expect<u32, u32>("lop3.b32 %d, %a, %b, %c, 0xca;", [](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); });
  expect<u32, u32>("shf.l.wrap.b32 %d, %a, %b, %c;",
                   [](u32 a, u32 b, u32 c) { return static_cast<u32>((((u64{b} << 32) | a) << (c & 31)) >> 32); });
  expect<u32, u32>("shf.r.clamp.b32 %d, %a, %b, %c;",
                   [](u32 a, u32 b, u32 c) { return static_cast<u32>(((u64{b} << 32) | a) >> std::min(c, 32U)); });
  expect<u32, u32>("prmt.b32 %d, %a, %b, 0x5410;", [](u32 a, u32 b, u32) { return (a & 0xffffU) | (b << 16); });
  expect<u32, u32>("prmt.b32 %d, %a, %b, 0x0123;", [](u32 a, u32, u32) { return __builtin_bswap32(a); });
  expect<u32, u32>("prmt.b32 %d, %a, %b, 0xbbbb;", [](u32 a, u32, u32) { return (a >> 31) != 0 ? ~0U : 0U; });
  expect<u32, u32>("dp4a.s32.s32 %d, %a, %b, %c;", [](u32 a, u32 b, u32 c) {
    for (int k = 0; k < 4; ++k)
      c += static_cast<u32>(static_cast<std::int8_t>(a >> (8 * k)) * static_cast<std::int8_t>(b >> (8 * k)));
    return c;
  });
  expect<u32, u32>("not.b32 %d, %a;", [](u32 a, u32, u32) { return ~a; });
  expect<u32, u32>("cnot.b32 %d, %a;", [](u32 a, u32, u32) { return a == 0 ? 1U : 0U; });
}

TEST(Instruction, shifts_beyond_the_width_give_zero_or_the_sign) {
  std::vector<u32> amounts(kCount);
  for (std::size_t i = 0; i < kCount; ++i) amounts[i] = static_cast<u32>(i % 80);
  expect<u32, u32, u32>(
      "shl.b32 %d, %a, %b;", [](u32 a, u32 b, u32) { return b > 31 ? 0 : a << b; }, random_bits<u32>(kCount, 1),
      amounts);
  expect<u64, u64, u32>(
      "shr.u64 %d, %a, %b;", [](u64 a, u32 b, u64) { return b > 63 ? 0 : a >> b; }, random_bits<u64>(kCount, 1),
      amounts);
  expect<s64, s64, u32>(
      "shr.s64 %d, %a, %b;", [](s64 a, u32 b, s64) { return a >> std::min(b, 63U); }, random_bits<s64>(kCount, 1),
      amounts);
  expect<s16, s16, u32>(
      "shr.s16 %d, %a, %b;", [](s16 a, u32 b, s16) { return a >> std::min(b, 15U); }, random_bits<s16>(kCount, 1),
      amounts);
  expect<u16, u16, u32>(
      "shl.b16 %d, %a, %b;", [](u16 a, u32 b, u16) { return b > 15 ? 0 : a << b; }, random_bits<u16>(kCount, 1),
      amounts);
}

TEST(Instruction, predicates_combine_and_select) {
  expect<u32, u32>("setp.lt.s32 %p, %a, %b;\n selp.b32 %d, %a, %b, %p;",
                   [](u32 a, u32 b, u32) { return static_cast<s32>(a) < static_cast<s32>(b) ? a : b; });
  expect<u32, u32>("setp.hi.u32 %p, %a, %b;\n selp.b32 %d, 1, 2, %p;", [](u32 a, u32 b, u32) { return a > b ? 1 : 2; });
  expect<u32, u32>(
      "setp.ge.u32 %q, %b, %c;\n setp.lt.and.u32 %p|%q, %a, %b, %q;\n selp.b32 %t0, 1, 0, %p;\n selp.b32 %t1, 2, 0, "
      "%q;\n or.b32 %d, %t0, %t1;",
      [](u32 a, u32 b, u32 c) { return (a < b && b >= c ? 1 : 0) | (!(a < b) && b >= c ? 2 : 0); });
  expect<u32, u32>("set.gt.u32.s32 %d, %a, %b;",
                   [](u32 a, u32 b, u32) { return static_cast<s32>(a) > static_cast<s32>(b) ? ~0U : 0U; });
  expect<u32, u32>("set.eq.f32.u32 %d, %a, %b;", [](u32 a, u32 b, u32) { return a == b ? 0x3f800000U : 0U; });
  expect<u32, u32>("slct.b32.s32 %d, %a, %b, %c;",
                   [](u32 a, u32 b, u32 c) { return static_cast<s32>(c) >= 0 ? a : b; });
  expect<u32, u32>(
      "setp.ne.u32 %p, %a, 0;\n not.pred %q, %p;\n xor.pred %p, %p, %q;\n @!%p bra X;\n mov.u32 %d, 7;\nX:\n",
      [](u32, u32, u32) { return 7; });
  expect<u32, u32>("mov.u32 %d, 3;\n setp.lt.u32 %p, %a, %b;\n @%p mov.u32 %d, %a;\n @!%p add.u32 %d, %d, %b;",
                   [](u32 a, u32 b, u32) { return a < b ? a : b + 3; });
}

template <class T, class U>
void compare_floats(const std::string& type) {
  const auto check = [&](const std::string& op, auto f) {
    expect<u32, U>("setp." + op + "." + type + " %p, %a, %b;\n selp.b32 %d, 1, 0, %p;",
                   [&](U a, U b, U) { return f(std::bit_cast<T>(a), std::bit_cast<T>(b)) ? 1 : 0; });
  };
  check("eq", [](T a, T b) { return a == b; });
  check("ne", [](T a, T b) { return a < b || a > b; });
  check("lt", [](T a, T b) { return a < b; });
  check("ge", [](T a, T b) { return a >= b; });
  check("equ", [](T a, T b) { return !(a < b || a > b); });
  check("neu", [](T a, T b) { return a != b; });
  check("gtu", [](T a, T b) { return !(a <= b); });
  check("leu", [](T a, T b) { return !(a > b); });
  check("num", [](T a, T b) { return a == a && b == b; });
  check("nan", [](T a, T b) { return a != a || b != b; });
}

TEST(Instruction, floats_compare_ordered_and_unordered) {
  compare_floats<float, u32>("f32");
  compare_floats<double, u64>("f64");
}

TEST(Instruction, float_extremes_follow_the_rules_for_nan_and_zero) {
  const std::vector<u32> a{0x80000000, 0x00000000, 0x7fc00000, 0x3f800000, 0x7fc00001, 0x00000001};
  const std::vector<u32> b{0x00000000, 0x80000000, 0x3f800000, 0xff800001, 0x7fc00000, 0x80000001};
  using V = std::vector<u32>;
  EXPECT_EQ((apply<u32>("min.f32 %d, %a, %b;", a, b)),
            (V{0x80000000, 0x80000000, 0x3f800000, 0x3f800000, 0x7fffffff, 0x80000001}));
  EXPECT_EQ((apply<u32>("max.f32 %d, %a, %b;", a, b)), (V{0, 0, 0x3f800000, 0x3f800000, 0x7fffffff, 1}));
  EXPECT_EQ((apply<u32>("max.NaN.f32 %d, %a, %b;", a, b)), (V{0, 0, 0x7fffffff, 0x7fffffff, 0x7fffffff, 1}));
  EXPECT_EQ((apply<u32>("min.ftz.f32 %d, %a, %b;", a, b))[5], 0x80000000U);
  EXPECT_EQ((apply<u32>("copysign.f32 %d, %a, %b;", a, b)), (V{0x80000000, 0, 0x3f800000, 0x7f800001, 0x7fc00000, 1}));
  EXPECT_EQ((apply<u32>("neg.f32 %d, %a;", a, b))[3], 0xbf800000U);
  EXPECT_EQ((apply<u32>("abs.ftz.f32 %d, %a;", b, a))[5], 0U);
  EXPECT_EQ((apply<u32>("testp.subnormal.f32 %p, %a;\n selp.b32 %d, 1, 0, %p;", a, b)), (V{0, 0, 0, 0, 0, 1}));
  EXPECT_EQ((apply<u32>("add.sat.f32 %d, %a, %b;", V{0x7fc00000, 0x40000000}, V{0, 0})), (V{0, 0x3f800000}));
}

TEST(Instruction, integer_conversions_cut_extend_and_saturate) {
  expect<u32, u32>("cvt.u32.u8 %d, %a;", [](u32 a, u32, u32) { return a & 0xffU; });
  expect<s32, u32>("cvt.s32.s8 %d, %a;", [](u32 a, u32, u32) { return static_cast<std::int8_t>(a); });
  expect<s64, u32>("cvt.s64.s32 %d, %a;", [](u32 a, u32, u32) { return s64{static_cast<s32>(a)}; });
  expect<u64, u32>("cvt.u64.u32 %d, %a;", [](u32 a, u32, u32) { return u64{a}; });
  expect<u16, u32>("cvt.u16.u32 %d, %a;", [](u32 a, u32, u32) { return a; });
  expect<s16, s32>("cvt.sat.s16.s32 %d, %a;", [](s32 a, s32, s32) { return std::clamp(a, -32768, 32767); });
  expect<u32, s64>("cvt.sat.u32.s64 %d, %a;", [](s64 a, s64, s64) { return std::clamp<s64>(a, 0, 0xffffffffLL); });
  expect<s16, s32>("cvt.s8.s32 %d, %a;", [](s32 a, s32, s32) { return static_cast<std::int8_t>(a); });
}

TEST(Instruction, addresses_in_a_cluster_of_one_block_are_that_block_s) {
  expect<u64, u64>("mapa.u64 %d, %a, 0;", [](u64 a, u64, u64) { return a; });
  expect<u32, u32>("mapa.shared::cluster.u32 %d, %a, 0;", [](u32 a, u32, u32) { return a; });
  expect<u32, u64>("getctarank.u64 %d, %a;", [](u64, u64, u64) { return 0; });
}

TEST(Instruction, pairs_of_halves_work_on_both_sides) {
  expect<u32, u32>("mov.b32 {%h0, %h1}, %a;\n mov.b32 %d, {%h1, %h0};",
                   [](u32 a, u32, u32) { return (a >> 16) | (a << 16); });
  using V = std::vector<u32>;
  EXPECT_EQ((apply<u32>("add.rn.f16x2 %d, %a, %b;", V{0x3c004000}, V{0x40003c00})), (V{0x42004200}));
  EXPECT_EQ((apply<u32>("fma.rn.f16x2 %d, %a, %b, %c;", V{0x3c004000}, V{0x40003c00}, V{0x3c003c00})), (V{0x42004200}));
  EXPECT_EQ((apply<u32>("cvt.rn.f16x2.f32 %d, %a, %b;", V{0x3f800000}, V{0x40000000})), (V{0x3c004000}));
  EXPECT_EQ((apply<u32>("cvt.rn.bf16x2.f32 %d, %a, %b;", V{0x3f800000}, V{0x40000000})), (V{0x3f804000}));
  EXPECT_EQ(
      (apply<u16>("cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", V{0x3f800000, 0x7f800000}, V{0xc0000000, 0x43e10000})),
      (std::vector<u16>{0x38c0, 0x7e7e}));
  EXPECT_EQ((apply<u32, u16>("cvt.rn.f16x2.e4m3x2 %d, %a;", std::vector<u16>{0x38c0, 0x0108})),
            (V{0x3c00c000, 0x18002400}));
  EXPECT_EQ((apply<u32>("cvt.rna.tf32.f32 %d, %a;", V{0x3f801000, 0x3f800fff})), (V{0x3f802000, 0x3f800000}));
}

}  // namespace
}  // namespace tensor_fusion::sim::ptx
