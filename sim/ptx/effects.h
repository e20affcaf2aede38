#pragma once

#include "sim/ptx/alu/key.h"
#include "sim/ptx/ir.h"

// Handlers that need the active lanes or memory and are not worth a copy per instruction set.
namespace tensor_fusion::sim::ptx {

enum class AtomicOp : std::uint8_t { add, min, max, inc, dec, bit_and, bit_or, bit_xor, exch, cas };

// nullptr: there is no such atomic. Sources: a = address (+ imm), b, c (cas: the new value).
[[nodiscard]] EffectFn atomic_effect(AtomicOp op, Type type, AddressSpace space);
// Loads and stores that other threads may race with: volatile, relaxed, acquire, release.
[[nodiscard]] EffectFn ordered_effect(int width, AddressSpace space, bool store);

enum class Shuffle : std::uint8_t { up, down, bfly, idx };
[[nodiscard]] EffectFn shuffle_effect(Shuffle mode);  // d, outs[0] = predicate (or none), ins: a, b, c, (membermask)
enum class Vote : std::uint8_t { all, any, uni, ballot };
[[nodiscard]] EffectFn vote_effect(Vote mode);  // a = predicate; imm 1: inverted
[[nodiscard]] EffectFn match_effect(bool all, int width);
[[nodiscard]] EffectFn active_mask_effect();
enum class Redux : std::uint8_t { add, min, max, umin, umax, bit_and, bit_or, bit_xor };
[[nodiscard]] EffectFn redux_effect(Redux op);
[[nodiscard]] EffectFn elect_effect();

[[nodiscard]] EffectFn special_effect();  // imm = Special that changes while running; 32 or 64 bits by d_width
[[nodiscard]] EffectFn fence_effect();
[[nodiscard]] EffectFn printf_effect();         // a = format, b = arguments, d = result
[[nodiscard]] EffectFn assert_effect();         // ins: message, file, line, function
[[nodiscard]] EffectFn set_condition_effect();  // a = handle, b = value
[[nodiscard]] EffectFn
copy_local_effect();  // a = base read, b = base written; imm = from; target = to; extra ins: size
[[nodiscard]] EffectFn save_frame_effect();     // pushes ins for each active lane
[[nodiscard]] EffectFn restore_frame_effect();  // pops outs
[[nodiscard]] EffectFn copy_async_effect();  // a = shared address, b = global address, c = bytes to read; imm = offsets
[[nodiscard]] EffectFn load_matrix_effect();  // a = address; outs; imm bit 0 = transposed

enum class Mbarrier : std::uint8_t {
  init,
  inval,
  arrive,
  drop,
  expect,
  arrive_expect,
  bytes_came,
  test_state,
  test_parity
};
[[nodiscard]] EffectFn
mbarrier_effect();  // a = address, b = count or state, d = state or predicate; imm: space, action
[[nodiscard]] EffectFn pending_count_effect();

enum class MmaKind : std::uint8_t {
  f16_f16_k8,
  f16_f16_k16,
  f32_f16_k8,
  f32_f16_k16,
  f32_bf16_k8,
  f32_bf16_k16,
  f32_tf32_k4,
  f32_tf32_k8,
  s32_s8_k16,
  s32_s8_k32,
  s32_u8_k16,
  s32_u8_k32,
  f64_k4
};
[[nodiscard]] EffectFn mma_effect(MmaKind kind);  // outs = d, ins = a…, b…, c…
[[nodiscard]] EffectFn integer_mma_effect();      // the same, by WmmaCode in imm
[[nodiscard]] EffectFn wmma_load_effect();        // a = address, b = stride; imm = WmmaCode; outs
[[nodiscard]] EffectFn wmma_store_effect();       // the same; ins
[[nodiscard]] EffectFn wmma_multiply_effect();    // outs = d, ins = a…, b…, c…

}  // namespace tensor_fusion::sim::ptx
