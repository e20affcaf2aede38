// Lanes that see each other: shuffles, votes, barriers, atomics, matrices.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "sim/ptx/test_instruction.h"

namespace tensor_fusion::sim::ptx {
namespace {

using u32 = std::uint32_t;
using V = std::vector<u32>;

V ids(std::size_t n) {
  V out(n);
  std::iota(out.begin(), out.end(), 0U);
  return out;
}

void each(const std::string& code, const V& a, const std::function<u32(u32)>& want) {
  std::string error;
  const V d = apply<u32>(code, a, a, a, Isa::best, &error);
  ASSERT_EQ(d.size(), a.size()) << code << ": " << error;
  for (u32 i = 0; i < d.size(); ++i) ASSERT_EQ(d[i], want(i)) << code << " in thread " << i;
}

TEST(Warp, shuffles_move_values_within_their_segment) {
  const V a = ids(128);
  each("shfl.sync.down.b32 %d, %a, 3, 31, -1;", a, [](u32 i) { return i % 32 + 3 < 32 ? i + 3 : i; });
  each("shfl.sync.up.b32 %d, %a, 3, 0, -1;", a, [](u32 i) { return i % 32 >= 3 ? i - 3 : i; });
  each("shfl.sync.bfly.b32 %d|%p, %a, 5, 31, -1;\n @!%p mov.u32 %d, 999;", a, [](u32 i) { return i ^ 5U; });
  each("shfl.sync.idx.b32 %d, %a, 7, 31, -1;", a, [](u32 i) { return i / 32 * 32 + 7; });
  each("shfl.sync.down.b32 %d|%p, %a, 2, 0x181f, -1;\n selp.b32 %d, %d, 100, %p;", a,
       [](u32 i) { return i % 8 + 2 < 8 ? i + 2 : 100; });
  each("shfl.idx.b32 %d, %a, 1, 0x1c1f;", a, [](u32 i) { return i / 4 * 4 + 1; });
}

TEST(Warp, votes_and_matches_count_only_active_lanes) {
  const V a = ids(96);
  each("and.b32 %t0, %a, 1;\n setp.eq.u32 %p, %t0, 0;\n vote.sync.ballot.b32 %d, %p, -1;", a,
       [](u32) { return 0x55555555U; });
  each("setp.lt.u32 %p, %a, 40;\n vote.sync.all.pred %q, %p, -1;\n selp.b32 %d, 1, 0, %q;", a,
       [](u32 i) { return i < 32 ? 1U : 0U; });
  each("setp.lt.u32 %p, %a, 40;\n vote.sync.any.pred %q, !%p, -1;\n selp.b32 %d, 1, 0, %q;", a,
       [](u32 i) { return i < 32 ? 0U : 1U; });
  each("mov.u32 %d, 0;\n and.b32 %t0, %a, 3;\n setp.ne.u32 %p, %t0, 0;\n @%p bra X;\n activemask.b32 %d;\nX:\n", a,
       [](u32 i) { return i % 4 == 0 ? 0x11111111U : 0U; });
  each("and.b32 %t0, %a, 1;\n match.any.sync.b32 %d, %t0, -1;", a,
       [](u32 i) { return i % 2 == 0 ? 0x55555555U : 0xaaaaaaaaU; });
  each("redux.sync.add.s32 %d, %a, -1;", a, [](u32 i) { return i / 32 * 32 * 32 + 496; });
  each("mov.u32 %d, %lanemask_lt;", a, [](u32 i) { return (1U << (i % 32)) - 1; });
  each("mov.u32 %d, %warpid;", a, [](u32 i) { return i / 32; });
}

TEST(Warp, lanes_that_part_meet_again_behind_nested_branches_and_loops) {
  each(
      "mov.u32 %d, 0;\n and.b32 %t1, %a, 7;\nLOOP:\n setp.eq.u32 %p, %t1, 0;\n @%p bra DONE;\n and.b32 %t2, %t1, 1;\n "
      "setp.eq.u32 %q, %t2, 0;\n"
      "@%q bra EVEN;\n add.u32 %d, %d, 10;\n bra NEXT;\nEVEN:\n add.u32 %d, %d, 1;\nNEXT:\n sub.u32 %t1, %t1, 1;\n bra "
      "LOOP;\nDONE:\n activemask.b32 %t3;\n"
      "popc.b32 %t3, %t3;\n shl.b32 %t3, %t3, 16;\n or.b32 %d, %d, %t3;",
      ids(128), [](u32 i) {
        u32 sum = 0;
        for (u32 k = i & 7; k > 0; --k) sum += k % 2 == 0 ? 1 : 10;
        return sum | (32U << 16);
      });
  each(
      "and.b32 %t0, %a, 3;\n LIST: .branchtargets A, B, C, B;\n brx.idx %t0, LIST;\nA: mov.u32 %d, 5;\n bra E;\nB: "
      "mov.u32 %d, 6;\n bra E;\nC: mov.u32 %d, 7;\nE:\n",
      ids(64), [](u32 i) { return std::array<u32, 4>{5, 6, 7, 6}[i % 4]; });
}

TEST(Warp, barriers_reduce_over_the_block_also_where_lanes_arrive_apart) {
  each("setp.gt.u32 %p, %a, 100;\n bar.red.popc.u32 %d, 0, %p;", ids(128), [](u32) { return 27U; });
  each("setp.lt.u32 %p, %a, 200;\n bar.red.and.pred %q, 0, %p;\n selp.b32 %d, 1, 0, %q;", ids(256),
       [](u32 i) { return i < 128 ? 1U : 0U; });
  each(
      "setp.lt.u32 %p, %a, 64;\n mov.u32 %d, 1;\n @%p bra L;\n bar.sync 0;\n mov.u32 %d, 2;\n bra E;\nL:\n bar.sync "
      "0;\n mov.u32 %d, 3;\nE:\n",
      ids(128), [](u32 i) { return i < 64 ? 3U : 2U; });
  each("setp.lt.u32 %p, %a, 64;\n @%p bra L;\n bar.sync 1, 128;\n bra E;\nL:\n bar.arrive 1, 128;\nE:\n mov.u32 %d, 4;",
       ids(128), [](u32) { return 4U; });
}

TEST(Warp, a_barrier_nobody_completes_ends_the_launch) {
  std::string error;
  EXPECT_TRUE(apply<u32>("bar.sync 0, 256;\n mov.u32 %d, 1;", ids(128), {}, V{}, Isa::best, &error).empty());
  EXPECT_EQ(error, "timeout");
}

TEST(Warp, atomics_of_every_kind_meet_in_one_place) {
  const auto run = [](const std::string& code, u32 begin) {
    const std::string text =
        ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n.reg .b32 %i, %d;\n.reg "
        ".b64 %x;\n"
        "ld.param.u64 %x, [p];\nmov.u32 %i, %tid.x;\n" +
        code + "\nret;\n}\n";
    TestDevice device(text);
    EXPECT_NE(device.image.module, nullptr) << device.error.render();
    const auto at = device.upload(V{begin, 0});
    EXPECT_EQ(device.launch("k", {1, 1, 1}, {100, 1, 1}, at).status, Status::ok);
    return device.download<u32>(at, 2);
  };
  EXPECT_EQ(run("red.global.add.u32 [%x], %i;", 1)[0], 4951U);
  EXPECT_EQ(run("atom.max.s32 %d, [%x], %i;", 7)[0], 99U);
  EXPECT_EQ(run("atom.global.min.u32 %d, [%x], %i;", 7)[0], 0U);
  EXPECT_EQ(run("atom.global.inc.u32 %d, [%x], 9;", 0)[0], 0U);
  EXPECT_EQ(run("atom.global.dec.u32 %d, [%x], 9;", 0)[0], 0U);
  EXPECT_EQ(run("atom.global.or.b32 %d, [%x], %i;", 0)[0], 127U);
  EXPECT_EQ(run("atom.global.exch.b32 %d, [%x], %i;", 5)[0], 99U);
  EXPECT_EQ(run("atom.acq_rel.gpu.global.cas.b32 %d, [%x], 5, %i;", 5)[0], 0U);
  EXPECT_EQ(std::bit_cast<float>(run("cvt.rn.f32.u32 %d, %i;\nred.global.add.f32 [%x], %d;", 0)[0]), 4950.0F);
  EXPECT_EQ(run("red.global.add.noftz.f16x2 [%x], 0x3c004000;", 0)[0], 0x56405a40U);  // 100 and 200
  EXPECT_EQ(run("cvt.u64.u32 %x, %i;\nld.param.u64 %x, [p];\nred.global.add.u64 [%x], 0x100000001;", 0), (V{100, 100}));
}

TEST(Warp, matrices_multiply_as_their_fragments_say) {
  // Row-major A (16 × 8) of f16, column-major B (8 × 8), C and D of f32; each lane loads its own fragment.
  const std::string text =
      ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 "
      "pd)\n{\n"
      ".reg .b32 %r<12>;\n.reg .f32 %f<4>;\n.reg .b64 %x<4>;\nld.param.u64 %x0, [pa];\nld.param.u64 %x1, "
      "[pb];\nld.param.u64 %x2, [pd];\n"
      "mov.u32 %r0, %laneid;\nmad.wide.u32 %x0, %r0, 4, %x0;\nmad.wide.u32 %x1, %r0, 4, %x1;\n"
      "ld.global.b32 %r1, [%x0];\nld.global.b32 %r2, [%x0+128];\nld.global.b32 %r3, [%x1];\n"
      "mov.f32 %f0, 0f3F800000;\nmov.f32 %f1, %f0;\nmov.f32 %f2, %f0;\nmov.f32 %f3, %f0;\n"
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r1,%r2}, {%r3}, {%f0,%f1,%f2,%f3};\n"
      "shr.u32 %r4, %r0, 2;\nand.b32 %r5, %r0, 3;\nmul.lo.u32 %r4, %r4, 8;\nmad.lo.u32 %r4, %r5, 2, %r4;\nmad.wide.u32 "
      "%x2, %r4, 4, %x2;\n"
      "st.global.v2.f32 [%x2], {%f0,%f1};\nst.global.v2.f32 [%x2+256], {%f2,%f3};\nret;\n}\n";
  TestDevice device(text);
  ASSERT_NE(device.image.module, nullptr) << device.error.render();
  const auto half = [](int value) {  // small whole numbers
    if (value == 0) return std::uint16_t{0};
    const int magnitude = value < 0 ? -value : value;
    const int e = 31 - std::countl_zero(static_cast<u32>(magnitude));
    return static_cast<std::uint16_t>((value < 0 ? 0x8000 : 0) | ((e + 15) << 10) |
                                      ((magnitude - (1 << e)) << (10 - e)));
  };
  int a[16][8];
  int b[8][8];
  std::vector<std::uint16_t> pa;
  std::vector<std::uint16_t> pb;
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 8; ++k) pa.push_back(half(a[i][k] = (i * 5 + k * 3) % 11 - 5));
  for (int k = 0; k < 8; ++k)
    for (int j = 0; j < 8; ++j) b[k][j] = (k * 7 + j) % 9 - 4;
  for (int j = 0; j < 8; ++j)
    for (int k = 0; k < 8; ++k) pb.push_back(half(b[k][j]));
  const auto out = device.allocate(16 * 8 * 4);
  ASSERT_EQ(device.launch("k", {1, 1, 1}, {32, 1, 1}, device.upload(pa), device.upload(pb), out).status, Status::ok);
  const auto d = device.download<float>(out, 128);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      int sum = 1;
      for (int k = 0; k < 8; ++k) sum += a[i][k] * b[k][j];
      EXPECT_EQ(d[static_cast<std::size_t>(i * 8 + j)], static_cast<float>(sum)) << i << ' ' << j;
    }
  }
}

}  // namespace
}  // namespace tensor_fusion::sim::ptx
