#include "base/quantity.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace tensor_fusion::base {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr double kKi = 1024.0;
constexpr std::array kByteUnits = {
    Unit{"B", 1},
    Unit{"k", 1e3},
    Unit{"kB", 1e3},
    Unit{"Ki", kKi},
    Unit{"KiB", kKi},
    Unit{"M", 1e6},
    Unit{"MB", 1e6},
    Unit{"Mi", kKi* kKi},
    Unit{"MiB", kKi* kKi},
    Unit{"G", 1e9},
    Unit{"GB", 1e9},
    Unit{"Gi", kKi* kKi* kKi},
    Unit{"GiB", kKi* kKi* kKi},
    Unit{"T", 1e12},
    Unit{"TB", 1e12},
    Unit{"Ti", kKi* kKi* kKi* kKi},
    Unit{"TiB", kKi* kKi* kKi* kKi},
    Unit{"P", 1e15},
    Unit{"PB", 1e15},
    Unit{"Pi", kKi* kKi* kKi* kKi* kKi},
    Unit{"PiB", kKi* kKi* kKi* kKi* kKi},
};
constexpr std::array kFlopUnits = {Unit{"tflops", 1}, Unit{"tflop", 1}, Unit{"tf", 1}, Unit{"gflops", 1e-3},
                                   Unit{"pflops", 1e3}};

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 40;
  std::string result = "'";
  for (const char c : text.substr(0, kShown)) result += c >= ' ' && c < 127 ? c : '?';
  return result + (text.size() > kShown ? "…'" : "'");
}

std::unexpected<Error> refuse(std::string_view text, const std::string& why) {
  return fail(ErrorCode::kUsage, quoted(text) + " " + why);
}

struct Number {
  double value = 0;
  std::string_view unit;
};

// A plain decimal number and the rest. No sign, exponent, "inf" or "nan": what from_chars takes is narrowed first.
Result<Number> split_number(std::string_view text, const char* example) {
  const std::string_view body = trim(text);
  if (body.empty()) return fail(ErrorCode::kUsage, std::string("an empty amount; write it like ") + example);
  if (body.front() == '-') return refuse(text, std::string("is negative; write it like ") + example);
  std::size_t end = 0;
  bool digit = false;
  while (end < body.size() && ((body[end] >= '0' && body[end] <= '9') || body[end] == '.')) {
    digit = digit || body[end] != '.';
    ++end;
  }
  Number number;
  const char* const first = &body.front();
  const auto [stop, problem] = std::from_chars(first, first + end, number.value, std::chars_format::fixed);
  if (!digit || problem != std::errc() || stop != first + end || !std::isfinite(number.value))
    return refuse(text, std::string("is not an amount; write it like ") + example);
  number.unit = trim(body.substr(end));
  const auto digit_at = [&](std::size_t at) { return at < body.size() && body[at] >= '0' && body[at] <= '9'; };
  if (end < body.size() && body[end] == ',' && digit_at(end + 1)) {
    std::size_t digits = 0;
    while (digit_at(end + 1 + digits)) ++digits;
    const std::size_t after = end + 1 + digits;
    const bool more = body.substr(0, end).find('.') != std::string_view::npos ||
                      (after < body.size() && (body[after] == ',' || body[after] == '.'));
    // Before three digits it may stand for thousands, and then a point would be another amount.
    if (more || digits == 3) return refuse(text, "has a comma; a part is written with a point, thousands with nothing");
    return refuse(text, "has a comma; a part is written with a point, like " + std::string(body.substr(0, end)) + "." +
                            std::string(body.substr(end + 1)));
  }
  const std::size_t power = end + 1 + (end + 1 < body.size() && (body[end + 1] == '+' || body[end + 1] == '-') ? 1 : 0);
  if (end < body.size() && (body[end] == 'e' || body[end] == 'E') && digit_at(power))
    return refuse(text, std::string("has a power of ten, which is not read; write it like ") + example);
  return number;
}

template <std::size_t N>
Result<double> factor_of(std::string_view text, std::string_view unit, const std::array<Unit, N>& units,
                         const char* example) {
  for (const Unit& row : units)
    if (lower(row.name) == lower(unit)) return row.factor;
  std::array<std::string_view, N> names;
  for (std::size_t i = 0; i < N; ++i) names[i] = units[i].name;
  std::string why = "has an unknown unit " + quoted(unit);
  if (const auto near = nearest_word(unit, names)) {
    why += "; did you mean '" + std::string(*near) + "'?";
  } else {
    why += std::string("; write it like ") + example;
  }
  return refuse(text, why);
}

std::string plain(double value, int decimals) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
  std::string text = buffer.data();
  if (text.find('.') != std::string::npos) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

// One kind of amount as the variant that holds it.
template <typename Wide, typename Narrow>
Result<Wide> widen(const Result<Narrow>& amount) {
  if (!amount) return std::unexpected(amount.error());
  return Wide(*amount);
}

bool has_flops(std::string_view text) {
  const std::string small = lower(text);
  return small.find('f') != std::string::npos;
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  const auto number = split_number(text, "8Gi, 512Mi or 8G");
  if (!number) return std::unexpected(number.error());
  double factor = 1;
  if (!number->unit.empty()) {
    const auto found = factor_of(text, number->unit, kByteUnits, "8Gi, 512Mi or 8G");
    if (!found) return std::unexpected(found.error());
    factor = *found;
  }
  const double bytes = number->value * factor;
  if (bytes < 1) return refuse(text, "is no memory at all; write it like 8Gi, 512Mi or 8G");
  if (bytes >= 9.2e18) return refuse(text, "is more memory than can be counted");
  return Bytes{static_cast<std::uint64_t>(bytes)};
}

Result<Percent> parse_percent(std::string_view text) {
  const auto number = split_number(text, "40%");
  if (!number) return std::unexpected(number.error());
  if (number->unit != "%") {
    return refuse(text, number->unit.ends_with('%') ? "is not a number of percent; write it like 40%"
                                                    : "needs a percent sign, as in 40%");
  }
  if (number->value > 100) return refuse(text, "is more than a whole device; the most is 100%");
  const auto points = static_cast<std::uint32_t>(std::lround(number->value * 100));
  if (points == 0) return refuse(text, "is too little; the least is 0.01%");
  return Percent{points};
}

Result<Tflops> parse_tflops(std::string_view text) {
  const auto number = split_number(text, "20tflops");
  if (!number) return std::unexpected(number.error());
  const auto factor = factor_of(text, number->unit, kFlopUnits, "20tflops");
  if (!factor) return std::unexpected(factor.error());
  const double tflops = number->value * *factor;
  if (tflops <= 0) return refuse(text, "is no compute at all; ask for more than 0");
  if (tflops > 1e9) return refuse(text, "is more compute than any device has");
  return Tflops{tflops};
}

Result<Compute> parse_compute(std::string_view text) {
  const std::string_view body = trim(text);
  if (body.ends_with('%')) return widen<Compute>(parse_percent(text));
  if (has_flops(body)) return widen<Compute>(parse_tflops(text));
  const auto number = split_number(text, "40% or 20tflops");
  if (!number) return std::unexpected(number.error());
  if (number->unit.empty() && number->value == 0)
    return refuse(text, "is no compute at all; ask for more than 0, like 40% or 20tflops");
  if (number->unit.empty() && number->value < 1)  // as other programs write a part
    return refuse(text, "needs a unit; did you mean " + plain(number->value * 100, 2) + "%? (else write " +
                            plain(number->value, 4) + "% or " + plain(number->value, 4) + "tflops)");
  if (number->unit.empty())
    return refuse(text,
                  "needs a unit: write " + plain(number->value, 2) + "% or " + plain(number->value, 2) + "tflops");
  const auto factor = factor_of(text, number->unit, kFlopUnits, "40% or 20tflops");
  return factor ? refuse(text, "is not an amount of compute") : std::unexpected(factor.error());
}

Result<Compute> parse_compute_request(std::string_view text) {
  const auto number = split_number(text, "40% or 20tflops");
  if (number && number->value == 0 && number->unit == "%") return Percent{0};
  if (number && number->value == 0 && number->unit.empty()) return refuse(text, "needs a unit: write 0%");
  return parse_compute(text);
}

Result<Memory> parse_memory(std::string_view text) {
  if (trim(text).ends_with('%')) return widen<Memory>(parse_percent(text));
  return widen<Memory>(parse_bytes(text));
}

std::string to_text(Bytes bytes) {
  constexpr std::array<std::string_view, 6> kNames = {"", "Ki", "Mi", "Gi", "Ti", "Pi"};
  std::size_t power = 0;
  double value = static_cast<double>(bytes.value);
  while (value >= 1024 && power + 1 < kNames.size()) {
    value /= 1024;
    ++power;
  }
  return plain(value, value >= 100 ? 0 : value >= 10 ? 1 : 2) + std::string(kNames[power]);
}

std::string to_text(Percent percent) { return plain(percent.basis_points / 100.0, 2) + "%"; }
std::string to_text(Tflops tflops) { return plain(tflops.value, 3) + "TFLOPS"; }
std::string to_text(const Compute& compute) {
  return std::visit([](const auto& value) { return to_text(value); }, compute);
}
std::string to_text(const Memory& memory) {
  return std::visit([](const auto& value) { return to_text(value); }, memory);
}

}  // namespace tensor_fusion::base
