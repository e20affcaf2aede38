#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/ptx/address.h"
#include "sim/ptx/alu/key.h"
#include "sim/ptx/syntax.h"

// One kernel with everything it calls, lowered to handlers over virtual registers.
namespace tensor_fusion::sim::ptx {

using Reg = std::uint32_t;
inline constexpr Reg kNoReg = 0xffffffffU;

enum class RegClass : std::uint8_t {
  normal,     // written by instructions
  value,      // a constant known now
  global,     // a constant: address of globals()[index] + value
  parameter,  // a constant of the launch: `width` bytes at `value` of its parameters
  launch,     // a constant of the launch: special register `index` (ntid, nctaid, …)
  input       // differs by lane, never changes: special register `index` (tid, ctaid, laneid, …)
};

struct RegInfo {
  std::uint8_t width = 4;
  RegClass kind = RegClass::normal;
  bool uniform = false;    // normal: the same in all lanes of a batch
  bool temporary = false;  // made by the lowering
  std::uint32_t index = 0;
  std::uint64_t value = 0;
  std::uint32_t owner = 0;  // function it belongs to
};

struct Extra {
  std::vector<Reg> outs;
  std::vector<Reg> ins;
  std::vector<std::uint32_t> targets;  // branch_index, call_indirect
};

struct Op {
  InsKind kind = InsKind::nop;
  AluFn alu = nullptr;
  EffectFn effect = nullptr;
  Reg d = kNoReg;
  Reg a = kNoReg;
  Reg b = kNoReg;
  Reg c = kNoReg;
  Reg guard = kNoReg;
  bool guard_inverted = false;
  bool varying = false;  // effect whose result differs by lane whatever it reads
  bool memory_access = false;
  std::uint16_t weight = 0;
  std::uint32_t target = 0;
  std::uint32_t extra = 0;  // 0: none
  std::int64_t imm = 0;
  int line = 0;
};

struct Program {
  std::vector<RegInfo> regs;
  std::vector<Op> ops;
  std::vector<Extra> extras{1};
  std::uint32_t kernel = 0;            // its function number
  std::vector<std::uint32_t> entries;  // function number → first op, kNoIndex when not part of this program
  std::vector<Reg> frame_bases;        // function number → register of its frame's address in local space
  std::size_t local_bytes = 0;
  std::size_t static_shared_bytes = 0;
  std::size_t parameter_bytes = 0;
  bool uses_warps = false;  // shuffles and the like: a block must start at a warp
  bool uses_barrier = false;
  bool may_spin = false;  // atomics or volatile loads: lanes may wait for each other
  bool has_calls = false;
  bool effect_free = false;
  bool uses_dynamic_shared = false;
  // after assign_registers():
  struct Place {
    std::uint32_t offset = 0;
    bool narrow = false;
  };  // narrow: bytes; wide: bytes per lane
  std::vector<Place> places;
  std::uint32_t narrow_bytes = 0;
  std::uint32_t wide_bytes_per_lane = 0;
  int live_registers = 0;
};

[[nodiscard]] std::expected<Program, ParseError> lower(const Syntax& syntax, std::uint32_t kernel,
                                                       const AluTable& table);
void reorder(Program& program);           // blocks, so that lanes meet again early
void find_uniform(Program& program);      // marks registers that are the same in all lanes
void assign_registers(Program& program);  // gives each register its place

}  // namespace tensor_fusion::sim::ptx
