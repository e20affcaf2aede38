// mma.sync and ldmatrix: fragments gathered from the lanes of a warp, multiplied, handed back.
#include <array>
#include <bit>
#include <cmath>

#include "sim/ptx/effects.h"
#include "sim/ptx/half_bits.h"
#include "sim/ptx/lane.h"

namespace tensor_fusion::sim::ptx {
namespace {

struct F16 {
  static constexpr int kPerRegister = 2;
  static float element(std::uint32_t word, int i) { return of_half((word >> (16 * i)) & 0xffffU); }
};
struct BF16 {
  static constexpr int kPerRegister = 2;
  static float element(std::uint32_t word, int i) { return std::bit_cast<float>(((word >> (16 * i)) & 0xffffU) << 16); }
};
struct TF32 {
  static constexpr int kPerRegister = 1;
  static float element(std::uint32_t word, int) { return std::bit_cast<float>(word & 0xffffe000U); }
};
struct S8 {
  static constexpr int kPerRegister = 4;
  static std::int32_t element(std::uint32_t word, int i) { return static_cast<std::int8_t>(word >> (8 * i)); }
};
struct U8 {
  static constexpr int kPerRegister = 4;
  static std::int32_t element(std::uint32_t word, int i) { return static_cast<std::uint8_t>(word >> (8 * i)); }
};

// Products are exact in float; the sum of one instruction is kept in double and rounded once.
template <class Ab, int K, bool HalfResult, class Sum>
bool mma(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const LinkedExtra& extra = frame.extras[in.extra];
  constexpr int kP = Ab::kPerRegister;
  constexpr int kARegisters = 16 * K / kWarp / kP;
  constexpr int kBRegisters = 8 * K / kWarp / kP;
  using Element = decltype(Ab::element(0, 0));
  for (std::uint32_t w = mask.first; w < mask.last; ++w) {
    if (!active(mask, w * kWarp)) continue;
    std::array<std::array<Element, K>, 16> a;
    std::array<std::array<Element, K>, 8> b;
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
      const std::uint32_t group = lane / 4;
      const std::uint32_t in_group = lane % 4;
      // A's registers: rows group and group + 8 take turns, then the next columns.
      for (std::uint32_t k = 0; k < kARegisters; ++k) {
        const auto word = get<std::uint32_t>(frame, extra.ins[k], w * kWarp + lane);
        const std::uint32_t row = group + 8 * (k % 2);
        const std::uint32_t column = in_group * kP + (k / 2) * 4 * kP;
        for (int e = 0; e < kP; ++e) a[row][column + static_cast<std::uint32_t>(e)] = Ab::element(word, e);
      }
      for (std::uint32_t k = 0; k < kBRegisters; ++k) {
        const auto word = get<std::uint32_t>(frame, extra.ins[kARegisters + k], w * kWarp + lane);
        const std::uint32_t row = in_group * kP + k * 4 * kP;
        for (int e = 0; e < kP; ++e) b[group][row + static_cast<std::uint32_t>(e)] = Ab::element(word, e);
      }
    }
    const Slot* c = extra.ins + kARegisters + kBRegisters;
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
      const std::uint32_t group = lane / 4;
      const std::uint32_t column = lane % 4 * 2;
      const std::uint32_t at = w * kWarp + lane;
      const auto dot = [&](std::uint32_t row, std::uint32_t n) {
        Sum sum = 0;
        for (int k = 0; k < K; ++k)
          sum += static_cast<Sum>(a[row][static_cast<std::size_t>(k)]) *
                 static_cast<Sum>(b[n][static_cast<std::size_t>(k)]);
        return sum;
      };
      for (std::uint32_t half = 0; half < 2; ++half) {
        const std::uint32_t row = group + 8 * half;
        if constexpr (HalfResult) {
          const auto old = get<std::uint32_t>(frame, c[half], at);
          const std::uint32_t low =
              to_half(static_cast<float>(static_cast<Sum>(of_half(old & 0xffffU)) + dot(row, column)));
          const std::uint32_t high =
              to_half(static_cast<float>(static_cast<Sum>(of_half(old >> 16)) + dot(row, column + 1)));
          set(frame, extra.outs[half], at, low | (high << 16));
        } else if constexpr (std::is_integral_v<Sum>) {
          for (std::uint32_t i = 0; i < 2; ++i) {
            set(frame, extra.outs[2 * half + i], at,
                get<std::uint32_t>(frame, c[2 * half + i], at) + static_cast<std::uint32_t>(dot(row, column + i)));
          }
        } else {
          for (std::uint32_t i = 0; i < 2; ++i) {
            set(frame, extra.outs[2 * half + i], at,
                static_cast<float>(static_cast<Sum>(get<float>(frame, c[2 * half + i], at)) + dot(row, column + i)));
          }
        }
      }
    }
  }
  return true;
}

bool mma_f64(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const LinkedExtra& extra = frame.extras[in.extra];
  for (std::uint32_t w = mask.first; w < mask.last; ++w) {
    if (!active(mask, w * kWarp)) continue;
    std::array<std::array<double, 4>, 8> a;
    std::array<std::array<double, 4>, 8> b;
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
      a[lane / 4][lane % 4] = get<double>(frame, extra.ins[0], w * kWarp + lane);
      b[lane / 4][lane % 4] = get<double>(frame, extra.ins[1], w * kWarp + lane);
    }
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
      for (std::uint32_t i = 0; i < 2; ++i) {
        double sum = get<double>(frame, extra.ins[2 + i], w * kWarp + lane);
        for (std::uint32_t k = 0; k < 4; ++k) sum = std::fma(a[lane / 4][k], b[lane % 4 * 2 + i][k], sum);
        set(frame, extra.outs[i], w * kWarp + lane, sum);
      }
    }
  }
  return true;
}

bool load_matrix(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const LinkedExtra& extra = frame.extras[in.extra];
  const bool transposed = (in.imm & 1) != 0;
  for (std::uint32_t w = mask.first; w < mask.last; ++w) {
    if (!active(mask, w * kWarp)) continue;
    std::array<std::uint32_t, 4 * kWarp> result{};
    for (std::uint32_t matrix = 0; matrix < extra.out_count; ++matrix) {
      std::array<std::array<std::uint16_t, 8>, 8> rows;
      for (std::uint32_t row = 0; row < 8; ++row) {
        const std::uint32_t lane = w * kWarp + matrix * 8 + row;
        const std::byte* at = frame.resolve(frame, in, get<std::uint64_t>(frame, in.a, lane), lane, 16, false,
                                            static_cast<int>(AddressSpace::shared));
        if (at == nullptr) return false;
        std::memcpy(rows[row].data(), at, 16);
      }
      for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
        const std::uint32_t r = lane / 4;
        const std::uint32_t c = lane % 4 * 2;
        const std::uint16_t low = transposed ? rows[c][r] : rows[r][c];
        const std::uint16_t high = transposed ? rows[c + 1][r] : rows[r][c + 1];
        result[matrix * kWarp + lane] = std::uint32_t{low} | (std::uint32_t{high} << 16);
      }
    }
    for (std::uint32_t matrix = 0; matrix < extra.out_count; ++matrix) {
      for (std::uint32_t lane = 0; lane < kWarp; ++lane)
        set(frame, extra.outs[matrix], w * kWarp + lane, result[matrix * kWarp + lane]);
    }
  }
  return true;
}

}  // namespace

EffectFn load_matrix_effect() { return load_matrix; }

EffectFn mma_effect(MmaKind kind) {
  switch (kind) {
    case MmaKind::f16_f16_k8:
      return mma<F16, 8, true, double>;
    case MmaKind::f16_f16_k16:
      return mma<F16, 16, true, double>;
    case MmaKind::f32_f16_k8:
      return mma<F16, 8, false, double>;
    case MmaKind::f32_f16_k16:
      return mma<F16, 16, false, double>;
    case MmaKind::f32_bf16_k8:
      return mma<BF16, 8, false, double>;
    case MmaKind::f32_bf16_k16:
      return mma<BF16, 16, false, double>;
    case MmaKind::f32_tf32_k4:
      return mma<TF32, 4, false, double>;
    case MmaKind::f32_tf32_k8:
      return mma<TF32, 8, false, double>;
    case MmaKind::s32_s8_k16:
      return mma<S8, 16, false, std::int64_t>;
    case MmaKind::s32_s8_k32:
      return mma<S8, 32, false, std::int64_t>;
    case MmaKind::s32_u8_k16:
      return mma<U8, 16, false, std::int64_t>;
    case MmaKind::s32_u8_k32:
      return mma<U8, 32, false, std::int64_t>;
    case MmaKind::f64_k4:
      return mma_f64;
  }
  return nullptr;
}

}  // namespace tensor_fusion::sim::ptx
