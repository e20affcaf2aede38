#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/ptx/type.h"

// What the lowering asks of the arithmetic tables, and what a decoded instruction looks like to a handler. This header
// is compiled once per instruction set, so it holds plain data only.
namespace tensor_fusion::sim::ptx {

inline constexpr std::uint32_t kWarp = 32;

struct ExecFrame;
struct Ins;

// Lanes a handler works on: warps [first, last) of the batch; bytes == nullptr: every lane of them.
struct Mask {
  const std::uint8_t* bytes = nullptr;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

// Pure: writes only its destination, and may do so for lanes that are not active.
using AluFn = void (*)(const Ins& ins, std::byte* registers, std::uint32_t first_warp, std::uint32_t last_warp);
// Touches memory or needs to know the active lanes; false: the frame holds a fault.
using EffectFn = bool (*)(const Ins& ins, ExecFrame& frame, const Mask& mask);

enum class InsKind : std::uint8_t {
  alu,
  effect,
  nop,
  branch,
  branch_index,
  call,
  call_indirect,
  ret,
  exit,
  barrier,
  trap,
  breakpoint
};

struct Slot {
  std::uint32_t at = 0;    // byte offset of the register's first lane
  std::uint32_t step = 0;  // bytes from one warp to the next; 0: one warp's worth stands for all
};

struct Ins {
  union {
    AluFn alu;
    EffectFn effect;
  };
  Slot d, a, b, c;
  Slot guard;
  std::int64_t imm = 0;
  std::uint32_t target = 0;
  std::uint32_t extra = 0;
  std::uint32_t line = 0;
  std::uint32_t cache = 0;  // slot of the range cache
  std::uint16_t weight = 1;
  InsKind kind = InsKind::nop;
  std::uint8_t d_width = 0;
  bool guarded = false;
  bool guard_inverted = false;
  bool uniform = false;  // all sources and the destination stand once for all warps
  bool has_b = false;
  bool guard_uniform = false;
};

enum class AluOp : std::uint8_t {
  mov,
  pack,
  extract,
  select,
  slct,
  add,
  sub,
  mul_lo,
  mul_hi,
  mul_wide,
  mad_lo,
  mad_hi,
  mad_wide,
  mul24_lo,
  mul24_hi,
  mad24_lo,
  mad24_hi,
  sad,
  div,
  rem,
  abs,
  neg,
  min,
  max,
  popc,
  clz,
  bfind,
  fns,
  brev,
  bfe,
  bfi,
  dp4a,
  dp2a,
  add_carry,
  carry_out,
  sub_borrow,
  borrow_out,
  bit_and,
  bit_or,
  bit_xor,
  bit_not,
  cnot,
  lop3,
  shl,
  shr,
  shf_l,
  shf_r,
  prmt,
  bmsk,
  szext,
  compare,
  fma,
  rcp,
  sqrt,
  rsqrt,
  ex2,
  lg2,
  sin,
  cos,
  tanh,
  copysign,
  testp,
  cvt,
  shl_add,
  fields
};

enum class Rounding : std::uint8_t { none, rn, rz, rm, rp, rni, rzi, rmi, rpi, rna };

enum class Compare : std::uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };

struct AluKey {
  AluOp op = AluOp::mov;
  Type type = Type::none;  // of the result, or of the operands of a comparison
  Type from = Type::none;  // cvt, slct, dp4a's second
  Rounding rounding = Rounding::none;
  Compare compare = Compare::eq;
  std::uint8_t variant = 0;  // op's own: bit index, mode, 1 = approx …
  bool ftz = false;
  bool sat = false;
  bool nan = false;  // min and max: NaN wins
  bool relu = false;
};

// Work on bytes of 0 and 1, one per lane; `mask` == nullptr stands for ones. Ranges are in warps.
struct MaskTable {
  // How many lanes of the mask have their predicate set (or clear, when inverted).
  std::uint32_t (*count)(const std::uint8_t* mask, const std::byte* registers, const Slot& predicate, bool inverted,
                         std::uint32_t first, std::uint32_t last);
  // The same lanes as a mask; returns how many.
  std::uint32_t (*combine)(std::uint8_t* out, const std::uint8_t* mask, const std::byte* registers,
                           const Slot& predicate, bool inverted, std::uint32_t first, std::uint32_t last);
  // Copies the lanes of the mask from one register to another of the same width.
  void (*blend)(std::byte* registers, const Slot& to, const Slot& from, const std::uint8_t* mask, int width,
                std::uint32_t first, std::uint32_t last);
};

struct AluTable {
  AluFn (*integer)(const AluKey&);
  AluFn (*logic)(const AluKey&);
  AluFn (*floating)(const AluKey&);
  AluFn (*half)(const AluKey&);
  AluFn (*convert)(const AluKey&);
  AluFn (*math)(const AluKey&);
  EffectFn (*memory)(int width, int count, int space, bool store);
  const MaskTable& (*masks)();
};

// nullptr where this build or this machine lacks the instruction set.
[[nodiscard]] const AluTable* alu_table_baseline();
[[nodiscard]] const AluTable* alu_table_avx2();
[[nodiscard]] const AluTable* alu_table_avx512();

}  // namespace tensor_fusion::sim::ptx
