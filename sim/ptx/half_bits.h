#pragma once

#include <bit>
#include <cstdint>

// f16 as bits, for what takes matrices apart; the arithmetic has its own (alu/half.h).
namespace tensor_fusion::sim::ptx {

[[nodiscard]] inline float of_half(std::uint32_t h) {
  const std::uint32_t magnitude = h & 0x7fffU;
  std::uint32_t b = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112F);
  if (magnitude >= 0x7c00) b |= 0x7f800000U;
  return std::bit_cast<float>(b | ((h & 0x8000U) << 16));
}

[[nodiscard]] inline std::uint32_t to_half(float x) {
  const auto b = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = b & 0x7fffffffU;
  const std::uint32_t sign = (b >> 16) & 0x8000U;
  if (magnitude > 0x7f800000U) return 0x7fff;
  if (magnitude >= 0x477ff000U) return sign | 0x7c00U;
  if (magnitude < 0x38800000U)
    return sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U);
  return sign | ((magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13);
}

}  // namespace tensor_fusion::sim::ptx
