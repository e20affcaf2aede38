// Every rounding mode of every type against host arithmetic, on random bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>

#include "sim/ptx/test_instruction.h"

namespace tensor_fusion::sim::ptx {
namespace {

constexpr std::size_t kCount = 40000;

struct Mode {
  const char* name;
  int host;
};
constexpr Mode kModes[] = {{"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
constexpr Isa kIsas[] = {Isa::baseline, Isa::avx2, Isa::avx512};

template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <class T>
bool same(T x, T y) {
  return (std::isnan(x) && std::isnan(y)) || std::bit_cast<Bits<T>>(x) == std::bit_cast<Bits<T>>(y);
}

template <class T>
T flush(T x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(T{0}, x) : x;
}

template <class T, class Reference>
void check(const std::string& code, int sources, bool ftz, bool sat, int mode, Isa isa, const Reference& reference) {
  const auto a = random_bits<T>(kCount, 1);
  const auto b = sources > 1 ? random_bits<T>(kCount, 2) : std::vector<T>{};
  const auto c = sources > 2 ? random_bits<T>(kCount, 3) : std::vector<T>{};
  std::string error;
  const auto d = apply<T, T, T, T>(code, a, b, c, isa, &error);
  ASSERT_EQ(d.size(), a.size()) << error;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < a.size() && wrong < 3; ++i) {
    const volatile T x = ftz ? flush(a[i]) : a[i];
    const volatile T y = sources > 1 ? (ftz ? flush(b[i]) : b[i]) : T{0};
    const volatile T z = sources > 2 ? (ftz ? flush(c[i]) : c[i]) : T{0};
    std::fesetround(mode);
    volatile T r = reference(x, y, z);
    std::fesetround(FE_TONEAREST);
    if (ftz) r = flush(T{r});
    if (sat) r = r > T{0} ? std::min(T{r}, T{1}) : T{0};
    if (!same(T{r}, d[i])) {
      ++wrong;
      ADD_FAILURE() << code << " of " << T{x} << ' ' << T{y} << ' ' << T{z} << " gave " << d[i] << " instead of "
                    << T{r};
    }
  }
}

template <class T>
void check_all(const std::string& type) {
  for (const Isa isa : kIsas) {
    for (const Mode& mode : kModes) {
      for (const int variant : {0, 1, 2}) {
        if (variant != 0 && type != "f32") continue;
        const std::string suffix = std::string(mode.name) +
                                   (variant == 1   ? ".ftz."
                                    : variant == 2 ? ".ftz.sat."
                                                   : ".") +
                                   type;
        const bool ftz = variant != 0;
        const bool sat = variant == 2;
        check<T>("add." + suffix + " %d, %a, %b;", 2, ftz, sat, mode.host, isa, [](T x, T y, T) { return x + y; });
        check<T>("sub." + suffix + " %d, %a, %b;", 2, ftz, sat, mode.host, isa, [](T x, T y, T) { return x - y; });
        check<T>("mul." + suffix + " %d, %a, %b;", 2, ftz, sat, mode.host, isa, [](T x, T y, T) { return x * y; });
        check<T>("fma." + suffix + " %d, %a, %b, %c;", 3, ftz, sat, mode.host, isa,
                 [](T x, T y, T z) { return std::fma(x, y, z); });
        if (sat) continue;
        check<T>("div." + suffix + " %d, %a, %b;", 2, ftz, false, mode.host, isa, [](T x, T y, T) { return x / y; });
        check<T>("rcp." + suffix + " %d, %a;", 1, ftz, false, mode.host, isa, [](T x, T, T) { return T{1} / x; });
        check<T>("sqrt." + suffix + " %d, %a;", 1, ftz, false, mode.host, isa, [](T x, T, T) { return std::sqrt(x); });
      }
    }
  }
}

TEST(Rounding, f32_arithmetic_in_every_mode_with_ftz_and_sat) { check_all<float>("f32"); }
TEST(Rounding, f64_arithmetic_in_every_mode) { check_all<double>("f64"); }

// ---- narrow types: the neighbours of an exact value, by search

struct Narrow {
  const char* name;
  int mantissa;
  int exponent;
  [[nodiscard]] double value(std::uint32_t bits) const {
    const auto e = static_cast<int>(bits >> mantissa) & ((1 << exponent) - 1);
    const double m = static_cast<double>(bits & ((1U << mantissa) - 1));
    const int bias = (1 << (exponent - 1)) - 1;
    return e == 0 ? std::ldexp(m, 1 - bias - mantissa) : std::ldexp(m + (1 << mantissa), e - bias - mantissa);
  }
  [[nodiscard]] std::uint32_t infinity() const { return ((1U << exponent) - 1) << mantissa; }
  // The bits of |x| rounded; `up` decides for a value between two others.
  [[nodiscard]] std::uint32_t round(long double x, int mode) const {
    const bool negative = std::signbit(x);
    const long double m = negative ? -x : x;
    const std::uint32_t sign = negative ? 1U << (mantissa + exponent) : 0;
    if (std::isnan(x)) return (1U << (mantissa + exponent)) - 1;
    if (std::isinf(x)) return sign | infinity();
    std::uint32_t low = 0;
    std::uint32_t high = infinity();
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (static_cast<long double>(value(middle)) <= m ? low : high) = middle;
    }
    const auto below = static_cast<long double>(value(low));
    if (below == m) return sign | low;
    const auto above =
        static_cast<long double>(high == infinity() ? 2 * value(high - 1) - value(high - 2) : value(high));
    bool up = false;
    if (mode == FE_TONEAREST) up = m - below > above - m || (m - below == above - m && (low & 1) != 0);
    if (mode == FE_UPWARD) up = !negative;
    if (mode == FE_DOWNWARD) up = negative;
    return sign | (up ? high : low);
  }
};
constexpr Narrow kHalf{"f16", 10, 5};
constexpr Narrow kBrain{"bf16", 7, 8};

long double widened(const Narrow& type, std::uint16_t bits) {
  const std::uint32_t magnitude = bits & 0x7fffU;
  if (magnitude > type.infinity()) return std::numeric_limits<long double>::quiet_NaN();
  const long double m = magnitude == type.infinity() ? std::numeric_limits<long double>::infinity()
                                                     : static_cast<long double>(type.value(magnitude));
  return (bits & 0x8000) != 0 ? -m : m;
}

bool same_half(const Narrow& type, std::uint16_t x, std::uint16_t y) {
  const bool nan_x = (x & 0x7fffU) > type.infinity();
  const bool nan_y = (y & 0x7fffU) > type.infinity();
  return nan_x || nan_y ? nan_x == nan_y : x == y;
}

TEST(Rounding, f16_and_bf16_arithmetic_rounds_once) {
  for (const Isa isa : kIsas) {
    for (const Narrow& type : {kHalf, kBrain}) {
      const auto a = random_bits<std::uint16_t>(kCount, 4);
      const auto b = random_bits<std::uint16_t>(kCount, 5);
      const auto c = random_bits<std::uint16_t>(kCount, 6);
      const auto run = [&](const std::string& code, const auto& reference) {
        std::string error;
        const auto d = apply<std::uint16_t, std::uint16_t, std::uint16_t, std::uint16_t>(code, a, b, c, isa, &error);
        ASSERT_EQ(d.size(), a.size()) << error;
        int wrong = 0;
        for (std::size_t i = 0; i < a.size() && wrong < 3; ++i) {
          const long double exact = reference(widened(type, a[i]), widened(type, b[i]), widened(type, c[i]));
          const auto want = static_cast<std::uint16_t>(type.round(exact, FE_TONEAREST));
          if (same_half(type, want, d[i])) continue;
          ++wrong;
          ADD_FAILURE() << code << " of " << std::hex << a[i] << ' ' << b[i] << ' ' << c[i] << " gave " << d[i]
                        << " instead of " << want;
        }
      };
      const std::string name = type.name;
      run("add.rn." + name + " %d, %a, %b;", [](long double x, long double y, long double) { return x + y; });
      run("sub." + name + " %d, %a, %b;", [](long double x, long double y, long double) { return x - y; });
      run("mul." + name + " %d, %a, %b;", [](long double x, long double y, long double) { return x * y; });
      run("fma.rn." + name + " %d, %a, %b, %c;", [](long double x, long double y, long double z) {
        long double large = x * y;  // exact
        long double small = z;
        if (std::abs(large) < std::abs(small)) std::swap(large, small);
        const long double sum = large + small;
        const long double lost = small - (sum - large);
        constexpr long double kInfinity = std::numeric_limits<long double>::infinity();
        return std::isfinite(sum) && lost != 0 ? std::nextafter(sum, lost > 0 ? kInfinity : -kInfinity) : sum;
      });
    }
  }
}

TEST(Rounding, fused_bf16_sees_what_lies_far_below_a_tie) {
  // 1.0078125 · 1.00390625-ish ties are decided by a c that a double would lose.
  const std::vector<std::uint16_t> a{0x3f81, 0x3f81};  // 1 + 2^-7
  const std::vector<std::uint16_t> b{0x4040, 0x4040};  // 3: the product 3 + 3·2^-7 = 3.0234375 lies half way
  const std::vector<std::uint16_t> c{0x0400, 0x8400};  // ± a tiny number
  const auto d =
      apply<std::uint16_t, std::uint16_t, std::uint16_t, std::uint16_t>("fma.rn.bf16 %d, %a, %b, %c;", a, b, c);
  EXPECT_EQ(d, (std::vector<std::uint16_t>{0x4042, 0x4041}));
}

TEST(Rounding, conversions_to_narrow_types_in_every_mode) {
  for (const Isa isa : kIsas) {
    for (const Narrow& type : {kHalf, kBrain}) {
      for (const Mode& mode : kModes) {
        const auto check_from = [&](const auto& a, const std::string& from) {
          std::string error;
          const auto d = apply<std::uint16_t>(
              "cvt." + std::string(mode.name) + "." + type.name + "." + from + " %d, %a;", a, a, a, isa, &error);
          ASSERT_EQ(d.size(), a.size()) << error;
          int wrong = 0;
          for (std::size_t i = 0; i < a.size() && wrong < 3; ++i) {
            const auto want = static_cast<std::uint16_t>(type.round(static_cast<long double>(a[i]), mode.host));
            if (same_half(type, want, d[i])) continue;
            ++wrong;
            ADD_FAILURE() << mode.name << ' ' << type.name << " from " << from << ' ' << a[i] << " gave " << std::hex
                          << d[i] << " instead of " << want;
          }
        };
        auto singles = random_bits<float>(kCount, 7);
        for (std::size_t i = 0; i < singles.size(); i += 2)
          singles[i] = std::ldexp(static_cast<float>(static_cast<int>(i) - 20000), -static_cast<int>(i % 30));
        check_from(singles, "f32");
        check_from(random_bits<double>(kCount, 8), "f64");
        check_from(random_bits<std::int32_t>(kCount, 9), "s32");
        check_from(random_bits<std::uint64_t>(kCount, 10), "u64");
        check_from(random_bits<std::int64_t>(kCount, 11), "s64");
      }
    }
  }
}

template <class To, class From>
void check_to_integer(const std::string& to, const std::string& from) {
  struct Way {
    const char* name;
    long double (*round)(long double);
  };
  const Way ways[] = {{"rni", [](long double x) { return std::nearbyint(x); }},
                      {"rzi", [](long double x) { return std::trunc(x); }},
                      {"rmi", [](long double x) { return std::floor(x); }},
                      {"rpi", [](long double x) { return std::ceil(x); }}};
  auto a = random_bits<From>(kCount, 12);
  for (std::size_t i = 0; i < a.size(); i += 3)
    a[i] = static_cast<From>(static_cast<double>(static_cast<int>(i) - 20000) / 2.0);
  for (const Isa isa : kIsas) {
    for (const Way& way : ways) {
      std::string error;
      const auto d =
          apply<To>(std::string("cvt.") + way.name + "." + to + "." + from + " %d, %a;", a, a, a, isa, &error);
      ASSERT_EQ(d.size(), a.size()) << error;
      for (std::size_t i = 0; i < a.size(); ++i) {
        const long double whole = way.round(static_cast<long double>(a[i]));
        const bool wide = sizeof(To) == 8 || sizeof(From) == 8;
        To want = wide ? static_cast<To>(std::make_unsigned_t<To>{1} << (sizeof(To) * 8 - 1)) : To{0};  // of no number
        if (!std::isnan(whole)) {
          want = whole >= static_cast<long double>(std::numeric_limits<To>::max())   ? std::numeric_limits<To>::max()
                 : whole <= static_cast<long double>(std::numeric_limits<To>::min()) ? std::numeric_limits<To>::min()
                                                                                     : static_cast<To>(whole);
        }
        ASSERT_EQ(d[i], want) << way.name << ' ' << to << " from " << a[i];
      }
    }
  }
}

TEST(Rounding, floats_become_integers_in_every_mode_and_saturate) {
  check_to_integer<std::int32_t, float>("s32", "f32");
  check_to_integer<std::uint32_t, float>("u32", "f32");
  check_to_integer<std::int64_t, float>("s64", "f32");
  check_to_integer<std::uint64_t, double>("u64", "f64");
  check_to_integer<std::int64_t, double>("s64", "f64");
  check_to_integer<std::int32_t, double>("s32", "f64");
  check_to_integer<std::int16_t, float>("s16", "f32");
  check_to_integer<std::uint64_t, float>("u64", "f32");
  check_to_integer<std::uint32_t, double>("u32", "f64");
}

template <class To, class From>
void check_from_integer(const std::string& to, const std::string& from) {
  const auto a = random_bits<From>(kCount, 13);
  for (const Isa isa : kIsas) {
    for (const Mode& mode : kModes) {
      std::string error;
      const auto d =
          apply<To>(std::string("cvt.") + mode.name + "." + to + "." + from + " %d, %a;", a, a, a, isa, &error);
      ASSERT_EQ(d.size(), a.size()) << error;
      for (std::size_t i = 0; i < a.size(); ++i) {
        const volatile From x = a[i];
        std::fesetround(mode.host);
        const volatile To want = static_cast<To>(x);
        std::fesetround(FE_TONEAREST);
        ASSERT_TRUE(same(To{want}, d[i]))
            << mode.name << ' ' << to << " from " << from << ' ' << a[i] << ": " << d[i] << " instead of " << To{want}
            << ", set " << static_cast<int>(isa) << ", thread " << i;
      }
    }
  }
}

TEST(Rounding, integers_become_floats_in_every_mode) {
  check_from_integer<float, std::int32_t>("f32", "s32");
  check_from_integer<float, std::uint32_t>("f32", "u32");
  check_from_integer<float, std::int64_t>("f32", "s64");
  check_from_integer<float, std::uint64_t>("f32", "u64");
  check_from_integer<double, std::int64_t>("f64", "s64");
  check_from_integer<double, std::uint64_t>("f64", "u64");
  check_from_integer<float, double>("f32", "f64");
}

TEST(Rounding, approximate_functions_stay_close_to_the_exact_ones) {
  std::vector<float> a(kCount);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = (static_cast<float>(i) - 20000.0F) * 0.00617F;
  const auto near = [&](const std::string& code, auto reference, double tolerance) {
    std::vector<float> first;
    for (const Isa isa : kIsas) {
      const auto d = apply<float>(code, a, a, a, isa);
      ASSERT_EQ(d.size(), a.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        const double want = reference(static_cast<double>(a[i]));
        if (std::isnan(want))
          ASSERT_TRUE(std::isnan(d[i])) << code << ' ' << a[i];
        else if (std::isinf(want))
          ASSERT_EQ(static_cast<double>(d[i]), want);
        else
          ASSERT_NEAR(static_cast<double>(d[i]), want, tolerance * std::max(std::abs(want), 1e-3))
              << code << ' ' << a[i];
      }
      if (first.empty()) first = d;
      ASSERT_EQ(std::memcmp(first.data(), d.data(), d.size() * 4), 0) << code << ": instruction sets differ";
    }
  };
  near("ex2.approx.f32 %d, %a;", [](double x) { return static_cast<double>(static_cast<float>(std::exp2(x))); }, 2e-7);
  near("lg2.approx.f32 %d, %a;", [](double x) { return std::log2(x); }, 1e-6);
  near("sin.approx.f32 %d, %a;", [](double x) { return std::sin(x); }, 1e-6);
  near("cos.approx.f32 %d, %a;", [](double x) { return std::cos(x); }, 1e-6);
  near("tanh.approx.f32 %d, %a;", [](double x) { return std::tanh(x); }, 1e-6);
  near("rsqrt.approx.f32 %d, %a;", [](double x) { return 1.0 / std::sqrt(x); }, 2e-7);
}

}  // namespace
}  // namespace tensor_fusion::sim::ptx
