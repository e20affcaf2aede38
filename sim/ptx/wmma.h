#pragma once

#include <cstddef>
#include <cstdint>

// Matrices that a warp holds in registers in an order of the machine's own (wmma.*). Ours: element number i of a
// matrix, counted along its rows, is in slot i / 32 of lane i % 32; slots that are left over repeat the elements.
namespace tensor_fusion::sim::ptx {

enum class WmmaElement : std::uint8_t { f16, bf16, tf32, f32, f64, s8, u8, s4, u4, b1, s32 };
enum class WmmaMatrix : std::uint8_t { a, b, c };  // d is laid out as c

// What an instruction works on; travels in its op's immediate.
struct WmmaCode {
  std::uint8_t m = 0, n = 0;
  std::uint16_t k = 0;
  std::uint8_t elements_ab = 0;  // of a, of b shifted by four
  std::uint8_t elements_cd = 0;
  std::uint8_t flags = 0;
  std::uint8_t place = 0;

  static constexpr std::uint8_t kByColumns = 1, kSaturates = 2, kByAnd = 4;
  // Which matrix is loaded or stored, and the address space it is in.
  void set_place(WmmaMatrix matrix, unsigned space) {
    place = static_cast<std::uint8_t>(static_cast<unsigned>(matrix) | space << 4);
  }
  [[nodiscard]] WmmaMatrix matrix() const { return static_cast<WmmaMatrix>(place & 15U); }
  [[nodiscard]] int space() const { return place >> 4; }
  [[nodiscard]] WmmaElement a() const { return static_cast<WmmaElement>(elements_ab & 15U); }
  [[nodiscard]] WmmaElement b() const { return static_cast<WmmaElement>(elements_ab >> 4); }
  [[nodiscard]] WmmaElement c() const { return static_cast<WmmaElement>(elements_cd & 15U); }
  [[nodiscard]] WmmaElement d() const { return static_cast<WmmaElement>(elements_cd >> 4); }
  [[nodiscard]] WmmaElement element() const {
    return matrix() == WmmaMatrix::a ? a() : matrix() == WmmaMatrix::b ? b() : c();
  }
  [[nodiscard]] std::size_t rows() const { return matrix() == WmmaMatrix::b ? k : m; }
  [[nodiscard]] std::size_t columns() const { return matrix() == WmmaMatrix::a ? k : n; }
};
static_assert(sizeof(WmmaCode) == sizeof(std::int64_t));

[[nodiscard]] constexpr std::size_t bits_of(WmmaElement element) {
  switch (element) {
    case WmmaElement::f64:
      return 64;
    case WmmaElement::f16:
    case WmmaElement::bf16:
      return 16;
    case WmmaElement::s8:
    case WmmaElement::u8:
      return 8;
    case WmmaElement::s4:
    case WmmaElement::u4:
      return 4;
    case WmmaElement::b1:
      return 1;
    default:
      return 32;
  }
}

// How many registers of a lane hold a matrix.
[[nodiscard]] constexpr std::size_t registers_of(WmmaElement element, std::size_t rows, std::size_t columns,
                                                 bool is_factor) {
  if (element == WmmaElement::f16) return is_factor ? 8 : 4;
  return rows * columns * bits_of(element) / 32 / (element == WmmaElement::f64 ? 64 : 32);
}

}  // namespace tensor_fusion::sim::ptx
