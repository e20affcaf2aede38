// wmma: matrices of a warp loaded, multiplied and stored.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "sim/ptx/address.h"
#include "sim/ptx/effects.h"
#include "sim/ptx/half_bits.h"
#include "sim/ptx/lane.h"
#include "sim/ptx/wmma.h"

namespace tensor_fusion::sim::ptx {
namespace {

// The registers of one matrix in one warp, as slots of elements.
class Fragment {
 public:
  Fragment(ExecFrame& frame, const Slot* registers, std::size_t count, WmmaElement element, std::uint32_t warp)
      : frame_(frame),
        registers_(registers),
        warp_(warp),
        bits_(bits_of(element)),
        per_register_((bits_ == 64 ? 64 : 32) / bits_),
        slots_(count * per_register_ * kWarp) {}

  [[nodiscard]] std::size_t slots() const { return slots_; }
  [[nodiscard]] std::uint64_t read(std::size_t slot) const {
    const Slot& at = registers_[slot / kWarp / per_register_];
    if (bits_ == 64) return get<std::uint64_t>(frame_, at, lane(slot));
    return (get<std::uint32_t>(frame_, at, lane(slot)) >> shift(slot)) & mask();
  }
  void write(std::size_t slot, std::uint64_t value) {
    const Slot& at = registers_[slot / kWarp / per_register_];
    if (bits_ == 64) return set(frame_, at, lane(slot), value);
    const auto word = get<std::uint32_t>(frame_, at, lane(slot));
    const std::uint32_t others = word & ~static_cast<std::uint32_t>(mask() << shift(slot));
    set(frame_, at, lane(slot), others | static_cast<std::uint32_t>((value & mask()) << shift(slot)));
  }

 private:
  [[nodiscard]] std::uint32_t lane(std::size_t slot) const {
    return warp_ * kWarp + static_cast<std::uint32_t>(slot % kWarp);
  }
  [[nodiscard]] std::size_t shift(std::size_t slot) const { return slot / kWarp % per_register_ * bits_; }
  [[nodiscard]] std::uint64_t mask() const { return (std::uint64_t{1} << bits_) - 1; }

  ExecFrame& frame_;
  const Slot* registers_;
  const std::uint32_t warp_;
  const std::size_t bits_, per_register_, slots_;
};

// Every element of the matrix in memory: visit(number of the element, where its byte is, its bit in there).
template <class Visit>
bool each_element(const Ins& in, ExecFrame& frame, std::uint32_t lane, const WmmaCode& code, bool write,
                  const Visit& visit) {
  const std::size_t bits = bits_of(code.element());
  const auto bytes = static_cast<std::uint32_t>(std::max<std::size_t>(bits / 8, 1));
  const bool by_columns = (code.flags & WmmaCode::kByColumns) != 0;
  const std::uint64_t from = get<std::uint64_t>(frame, in.a, lane);
  const std::uint64_t stride = get<std::uint32_t>(frame, in.b, lane);
  for (std::size_t row = 0; row < code.rows(); ++row) {
    for (std::size_t column = 0; column < code.columns(); ++column) {
      const std::uint64_t at = (by_columns ? column * stride + row : row * stride + column) * bits;
      std::byte* byte = frame.resolve(frame, in, from + at / 8, lane, bytes, write, code.space());
      if (byte == nullptr) return false;
      visit(row * code.columns() + column, byte, at % 8);
    }
  }
  return true;
}

bool load(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const auto code = std::bit_cast<WmmaCode>(in.imm);
  const LinkedExtra& extra = frame.extras[in.extra];
  const std::size_t bits = bits_of(code.element());
  const std::size_t count = code.rows() * code.columns();
  for (std::uint32_t w = mask.first; w < mask.last; ++w) {
    if (!active(mask, w * kWarp)) continue;
    std::vector<std::uint64_t> elements(count);
    if (!each_element(in, frame, w * kWarp, code, false, [&](std::size_t i, const std::byte* byte, std::size_t bit) {
          std::memcpy(&elements[i], byte, std::max<std::size_t>(bits / 8, 1));
          if (bits < 8) elements[i] = elements[i] >> bit & ((1U << bits) - 1);
        }))
      return false;
    Fragment fragment(frame, extra.outs, extra.out_count, code.element(), w);
    for (std::size_t slot = 0; slot < fragment.slots(); ++slot) fragment.write(slot, elements[slot % count]);
  }
  return true;
}

bool store(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const auto code = std::bit_cast<WmmaCode>(in.imm);
  const LinkedExtra& extra = frame.extras[in.extra];
  const std::size_t bytes = bits_of(code.element()) / 8;
  for (std::uint32_t w = mask.first; w < mask.last; ++w) {
    if (!active(mask, w * kWarp)) continue;
    const Fragment fragment(frame, extra.ins, extra.in_count, code.element(), w);
    if (!each_element(in, frame, w * kWarp, code, true, [&](std::size_t i, std::byte* byte, std::size_t) {
          const std::uint64_t value = fragment.read(i);
          std::memcpy(byte, &value, bytes);
        }))
      return false;
  }
  return true;
}

double real(WmmaElement element, std::uint64_t bits) {
  const auto low = static_cast<std::uint32_t>(bits);
  switch (element) {
    case WmmaElement::f16:
      return static_cast<double>(of_half(low));
    case WmmaElement::bf16:
      return static_cast<double>(std::bit_cast<float>(low << 16));
    case WmmaElement::tf32:
      return static_cast<double>(std::bit_cast<float>(low & 0xffffe000U));
    case WmmaElement::f32:
      return static_cast<double>(std::bit_cast<float>(low));
    default:
      return std::bit_cast<double>(bits);
  }
}

std::int64_t whole(WmmaElement element, std::uint64_t bits) {
  switch (element) {
    case WmmaElement::s8:
      return static_cast<std::int8_t>(bits);
    case WmmaElement::s4:
      return static_cast<std::int8_t>(bits << 4) >> 4;
    case WmmaElement::s32:
      return static_cast<std::int32_t>(bits);
    default:
      return static_cast<std::int64_t>(bits);
  }
}

// Products are exact in a double and their sum is rounded once; doubles are fused one by one.
std::uint64_t real_sum(const WmmaCode& code, const std::uint64_t* row, const std::uint64_t* column, std::uint64_t old) {
  double sum = code.d() == WmmaElement::f64 ? real(code.c(), old) : 0;
  for (std::size_t k = 0; k < code.k; ++k)
    sum = std::fma(real(code.a(), row[k]), real(code.b(), column[k * code.n]), sum);
  if (code.d() == WmmaElement::f64) return std::bit_cast<std::uint64_t>(sum);
  const auto rounded = static_cast<float>(real(code.c(), old) + sum);
  return code.d() == WmmaElement::f16 ? to_half(rounded) : std::bit_cast<std::uint32_t>(rounded);
}

std::uint64_t whole_sum(const WmmaCode& code, const std::uint64_t* row, const std::uint64_t* column,
                        std::uint64_t old) {
  std::int64_t sum = whole(WmmaElement::s32, old);
  for (std::size_t k = 0; k < code.k; ++k) {
    const std::uint64_t a = row[k], b = column[k * code.n];
    if (code.a() == WmmaElement::b1)
      sum += static_cast<std::int64_t>((code.flags & WmmaCode::kByAnd) != 0 ? a & b : a ^ b);
    else
      sum += whole(code.a(), a) * whole(code.b(), b);
  }
  if ((code.flags & WmmaCode::kSaturates) != 0) sum = std::clamp<std::int64_t>(sum, INT32_MIN, INT32_MAX);
  return static_cast<std::uint32_t>(sum);
}

bool multiply(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const auto code = std::bit_cast<WmmaCode>(in.imm);
  const LinkedExtra& extra = frame.extras[in.extra];
  const std::size_t a_count = registers_of(code.a(), code.m, code.k, true);
  const std::size_t b_count = registers_of(code.b(), code.k, code.n, true);
  const std::size_t c_count = extra.in_count - a_count - b_count;
  const bool whole_numbers = code.d() == WmmaElement::s32;
  for (std::uint32_t w = mask.first; w < mask.last; ++w) {
    if (!active(mask, w * kWarp)) continue;
    const Fragment a(frame, extra.ins, a_count, code.a(), w);
    const Fragment b(frame, extra.ins + a_count, b_count, code.b(), w);
    const Fragment c(frame, extra.ins + a_count + b_count, c_count, code.c(), w);
    std::vector<std::uint64_t> left(std::size_t{code.m} * code.k), right(std::size_t{code.k} * code.n),
        result(std::size_t{code.m} * code.n);
    for (std::size_t i = 0; i < left.size(); ++i) left[i] = a.read(i);
    for (std::size_t i = 0; i < right.size(); ++i) right[i] = b.read(i);
    for (std::size_t i = 0; i < result.size(); ++i) {
      const std::uint64_t* const row = &left[i / code.n * code.k];
      const std::uint64_t* const column = &right[i % code.n];
      result[i] = whole_numbers ? whole_sum(code, row, column, c.read(i)) : real_sum(code, row, column, c.read(i));
    }
    Fragment d(frame, extra.outs, extra.out_count, code.d(), w);
    for (std::size_t slot = 0; slot < d.slots(); ++slot) d.write(slot, result[slot % result.size()]);
  }
  return true;
}

// Elements of mma.sync lie where the programming model says: each group of four lanes has a row of a, or a column of b,
// a register's worth beside each other.
std::uint64_t element_at(const ExecFrame& frame, const Slot* registers, std::uint32_t warp, WmmaElement element,
                         std::size_t line, std::size_t k, std::size_t lines) {
  const std::size_t bits = bits_of(element), per_register = 32 / bits;
  const auto lane = static_cast<std::uint32_t>(line % 8 * 4 + k / per_register % 4);
  const Slot& at = registers[k / per_register / 4 * (lines / 8) + line / 8];
  const auto word = get<std::uint32_t>(frame, at, warp * kWarp + lane);
  return word >> (k % per_register * bits) & ((std::uint64_t{1} << bits) - 1);
}

bool multiply_whole(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const auto code = std::bit_cast<WmmaCode>(in.imm);
  const LinkedExtra& extra = frame.extras[in.extra];
  const Slot* const b = extra.ins + code.m * code.k * bits_of(code.a()) / 1024;
  const Slot* const c = b + code.n * code.k * bits_of(code.b()) / 1024;
  for (std::uint32_t w = mask.first; w < mask.last; ++w) {
    if (!active(mask, w * kWarp)) continue;
    std::vector<std::uint64_t> left(std::size_t{code.m} * code.k), right(std::size_t{code.k} * code.n);
    for (std::size_t k = 0; k < code.k; ++k) {
      for (std::size_t row = 0; row < code.m; ++row)
        left[row * code.k + k] = element_at(frame, extra.ins, w, code.a(), row, k, code.m);
      for (std::size_t column = 0; column < code.n; ++column)
        right[k * code.n + column] = element_at(frame, b, w, code.b(), column, k, code.n);
    }
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
      for (std::size_t i = 0; i < code.m / 4U; ++i) {
        const std::size_t row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        const auto old = get<std::uint32_t>(frame, c[i], w * kWarp + lane);
        set(frame, extra.outs[i], w * kWarp + lane,
            static_cast<std::uint32_t>(whole_sum(code, &left[row * code.k], &right[column], old)));
      }
    }
  }
  return true;
}

}  // namespace

EffectFn integer_mma_effect() { return multiply_whole; }
EffectFn wmma_load_effect() { return load; }
EffectFn wmma_store_effect() { return store; }
EffectFn wmma_multiply_effect() { return multiply; }

}  // namespace tensor_fusion::sim::ptx
