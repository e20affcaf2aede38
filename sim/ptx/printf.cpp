#include "sim/ptx/printf.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>

namespace tensor_fusion::sim::ptx {
namespace {

constexpr int kMaxWidth = 4096;

// Only conversions made here reach snprintf: flags, a width and a precision of our own, and a type that fits.
template <class T>
std::string one(const std::string& flags, int width, int precision, const char* type, T value) {
  std::string spec = "%" + flags + "*" + (precision >= 0 ? ".*" : "") + type;
  char buffer[2 * kMaxWidth + 512];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
  const int n = precision >= 0 ? std::snprintf(buffer, sizeof buffer, spec.c_str(), width, precision, value)
                               : std::snprintf(buffer, sizeof buffer, spec.c_str(), width, value);
#pragma GCC diagnostic pop
  return {buffer, static_cast<std::size_t>(std::clamp(n, 0, static_cast<int>(sizeof buffer) - 1))};
}

std::string padded(std::string text, const std::string& flags, int width) {
  if (text.size() >= static_cast<std::size_t>(width)) return text;
  const std::string blanks(static_cast<std::size_t>(width) - text.size(), ' ');
  return flags.contains('-') ? text + blanks : blanks + text;
}

}  // namespace

std::string format_device(std::string_view format, const std::function<std::uint64_t(std::uint32_t)>& argument,
                          const std::function<std::string(std::uint64_t)>& text) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.push_back(format[i]);
      continue;
    }
    const std::size_t begin = i++;
    std::string flags;
    while (i < format.size() && std::string_view("-+ #0").contains(format[i])) {
      if (flags.size() < 5) flags.push_back(format[i]);
      ++i;
    }
    const auto number = [&](int missing) {
      if (i < format.size() && format[i] == '*') {
        ++i;
        return static_cast<int>(static_cast<std::int32_t>(argument(4)));
      }
      int value = missing;
      const auto [end, code] = std::from_chars(format.data() + i, format.data() + format.size(), value);
      i = static_cast<std::size_t>(end - format.data());
      return code == std::errc{} || code == std::errc::invalid_argument ? value : kMaxWidth;
    };
    int width = number(0);
    if (width < 0) {
      flags.push_back('-');
      width = width < -kMaxWidth ? kMaxWidth : -width;
    }
    width = std::min(width, kMaxWidth);
    int precision = -1;
    if (i < format.size() && format[i] == '.') {
      ++i;
      precision = std::min(std::max(number(0), -1), kMaxWidth);
    }
    int longs = 0;
    int shorts = 0;
    for (; i < format.size() && std::string_view("hlLqjzt").contains(format[i]); ++i) {
      if (format[i] == 'h')
        ++shorts;
      else
        longs += 1;
    }
    if (i >= format.size()) {
      out += format.substr(begin);
      break;
    }
    switch (const char type = format[i]; type) {
      case '%':
        out.push_back('%');
        break;
      case 'd':
      case 'i': {
        auto value = longs > 0 ? static_cast<std::int64_t>(argument(8))
                               : static_cast<std::int64_t>(static_cast<std::int32_t>(argument(4)));
        if (shorts == 1) value = static_cast<std::int16_t>(value);
        if (shorts >= 2) value = static_cast<std::int64_t>(static_cast<std::uint64_t>(value) << 56) >> 56;
        out += one(flags, width, precision, "lld", static_cast<long long>(value));
        break;
      }
      case 'u':
      case 'o':
      case 'x':
      case 'X': {
        std::uint64_t value = argument(longs > 0 ? 8 : 4);
        if (shorts == 1) value &= 0xffff;
        if (shorts >= 2) value &= 0xff;
        const char spec[] = {'l', 'l', type, '\0'};
        out += one(flags, width, precision, spec, static_cast<unsigned long long>(value));
        break;
      }
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
      case 'a':
      case 'A': {
        const char spec[] = {type, '\0'};
        out += one(flags, width, precision, spec, std::bit_cast<double>(argument(8)));
        break;
      }
      case 'c':
        out += padded(std::string(1, static_cast<char>(argument(4))), flags, width);
        break;
      case 's': {
        std::string value = text(argument(8));
        if (precision >= 0) value = value.substr(0, static_cast<std::size_t>(precision));
        out += padded(std::move(value), flags, width);
        break;
      }
      case 'p': {
        char buffer[24];
        const int n = std::snprintf(buffer, sizeof buffer, "0x%llx", static_cast<unsigned long long>(argument(8)));
        out += padded(std::string(buffer, static_cast<std::size_t>(n)), flags, width);
        break;
      }
      default:
        out += format.substr(begin, i - begin + 1);
        break;
    }
  }
  return out;
}

}  // namespace tensor_fusion::sim::ptx
