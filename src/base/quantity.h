#pragma once
// Quantities as people write them. Each parser takes the whole text or refuses it with one sentence that names the text
// and, for a mistyped unit, the nearest one. Zero, negative, NaN, infinite and overflowing amounts are refused. Pure.
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

namespace tensor_fusion::base {

struct Bytes {
  std::uint64_t value = 0;
  auto operator<=>(const Bytes&) const = default;
};

// Hundredths of a percent: the same unit as the shares of the grant page (10000 = a whole device).
struct Percent {
  std::uint32_t basis_points = 0;
  auto operator<=>(const Percent&) const = default;
};

struct Tflops {
  double value = 0;
  auto operator<=>(const Tflops&) const = default;
};

using Compute = std::variant<Percent, Tflops>;  // "40%" or "20tflops"
using Memory = std::variant<Bytes, Percent>;    // "8Gi" or "50%" of a card

// "8Gi" "8GiB" = 2^30; "8G" "8GB" = 10^9; k, M, G, T, P alike, any case of the first letter; "1.5Gi"; a bare number is
// bytes.
Result<Bytes> parse_bytes(std::string_view text);
Result<Percent> parse_percent(std::string_view text);  // "40%", "12.5%": above 0, at most 100
Result<Tflops> parse_tflops(std::string_view text);    // "20tflops", "1.5 TFLOPS", "900gflops", "1pflops"
Result<Compute> parse_compute(std::string_view text);
Result<Compute> parse_compute_request(std::string_view text);  // as parse_compute, and "0%": certain of nothing
Result<Memory> parse_memory(std::string_view text);

// "8Gi" where exact, else three figures: "1.21Gi", "512Mi", "0".
std::string to_text(Bytes bytes);
std::string to_text(Percent percent);  // "40%", "12.5%"
std::string to_text(Tflops tflops);    // "19.5TFLOPS"
std::string to_text(const Compute& compute);
std::string to_text(const Memory& memory);

}  // namespace tensor_fusion::base
