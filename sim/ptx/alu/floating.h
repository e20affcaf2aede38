// f32 and f64 arithmetic and comparison, with IEEE rounding in every direction.
#include "sim/ptx/alu/real.h"

namespace tensor_fusion::sim::ptx::TF_PTX_ISA {
namespace {

inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float root(float a) { return __builtin_sqrtf(a); }
inline double root(double a) { return __builtin_sqrt(a); }

struct OpAdd {
  template <class T>
  static T f(T a, T b) {
    return a + b;
  }
};
struct OpSub {
  template <class T>
  static T f(T a, T b) {
    return a - b;
  }
};
struct OpMul {
  template <class T>
  static T f(T a, T b) {
    return a * b;
  }
};
struct OpDiv {
  template <class T>
  static T f(T a, T b) {
    return a / b;
  }
};
struct OpFma {
  template <class T>
  static T f(T a, T b, T c) {
    return fused(a, b, c);
  }
};
struct OpRcp {
  template <class T>
  static T f(T a) {
    return T{1} / a;
  }
};
struct OpSqrt {
  template <class T>
  static T f(T a) {
    return root(a);
  }
};

template <class Op, bool Ftz, bool Sat>
struct With {
  template <class T>
  static T f(T a) {
    return saturated<Sat>(flushed<Ftz>(Op::f(flushed<Ftz>(a))));
  }
  template <class T>
  static T f(T a, T b) {
    return saturated<Sat>(flushed<Ftz>(Op::f(flushed<Ftz>(a), flushed<Ftz>(b))));
  }
  template <class T>
  static T f(T a, T b, T c) {
    return saturated<Sat>(flushed<Ftz>(Op::f(flushed<Ftz>(a), flushed<Ftz>(b), flushed<Ftz>(c))));
  }
};

template <class Op, int Sources, class T>
constexpr AluFn handler() {
  if constexpr (Sources == 1)
    return unary<Op, T, T>;
  else if constexpr (Sources == 2)
    return binary<Op, T, T, T>;
  else
    return ternary<Op, T, T, T, T>;
}

template <class Op, int Sources, class T>
AluFn find_rounded(const AluKey& key) {
  if constexpr (sizeof(T) == 4) {
    if (key.ftz && key.sat) return in_mode<handler<With<Op, true, true>, Sources, T>()>(key.rounding);
    if (key.ftz) return in_mode<handler<With<Op, true, false>, Sources, T>()>(key.rounding);
    if (key.sat) return in_mode<handler<With<Op, false, true>, Sources, T>()>(key.rounding);
  } else if (key.sat) {
    return nullptr;
  }
  return in_mode<handler<With<Op, false, false>, Sources, T>()>(key.rounding);
}

struct OpAbs {
  template <class T>
  static T f(T a) {
    return bits_as<T>(bits(a) & ~Real<T>::kSign);
  }
};
struct OpNeg {
  template <class T>
  static T f(T a) {
    return bits_as<T>(bits(a) ^ Real<T>::kSign);
  }
};
struct OpCopysign {
  template <class T>
  static T f(T a, T sign) {
    return bits_as<T>((bits(a) & ~Real<T>::kSign) | (bits(sign) & Real<T>::kSign));
  }
};

// One NaN gives the other operand, two the canonical NaN; with Nan one is enough. −0 lies below +0.
template <bool Max, bool Nan>
struct OpExtreme {
  template <class T>
  static T f(T a, T b) {
    const bool first = Max ? a > b : a < b;
    const bool second = Max ? b > a : b < a;
    const T equal = bits_as<T>(Max ? bits(a) & bits(b) : bits(a) | bits(b));
    T out = first ? a : second ? b : equal;
    const bool nan_a = a != a;
    const bool nan_b = b != b;
    const T nan = bits_as<T>(Real<T>::kNan);
    out = nan_a ? (Nan ? nan : b) : out;
    out = nan_b ? (Nan ? nan : nan_a ? nan : a) : out;
    return out;
  }
};
template <bool Max, bool Nan>
struct OpXorsign {
  template <class T>
  static T f(T a, T b) {
    const T m = OpExtreme<Max, Nan>::f(OpAbs::f(a), OpAbs::f(b));
    return m != m ? m : bits_as<T>(bits(m) | ((bits(a) ^ bits(b)) & Real<T>::kSign));
  }
};

template <class T, bool Ftz>
AluFn find_extreme(const AluKey& key) {
  const bool max = key.op == AluOp::max;
  if (key.variant == 1) {
    if (max)
      return key.nan ? binary<With<OpXorsign<true, true>, Ftz, false>, T, T, T>
                     : binary<With<OpXorsign<true, false>, Ftz, false>, T, T, T>;
    return key.nan ? binary<With<OpXorsign<false, true>, Ftz, false>, T, T, T>
                   : binary<With<OpXorsign<false, false>, Ftz, false>, T, T, T>;
  }
  if (max)
    return key.nan ? binary<With<OpExtreme<true, true>, Ftz, false>, T, T, T>
                   : binary<With<OpExtreme<true, false>, Ftz, false>, T, T, T>;
  return key.nan ? binary<With<OpExtreme<false, true>, Ftz, false>, T, T, T>
                 : binary<With<OpExtreme<false, false>, Ftz, false>, T, T, T>;
}

template <int Test>
struct OpTest {
  template <class T>
  static uint8_t f(T a) {
    const auto m = bits(a) & ~Real<T>::kSign;
    switch (Test) {
      case 0:
        return m < Real<T>::kInfinity;
      case 1:
        return m == Real<T>::kInfinity;
      case 2:
        return m <= Real<T>::kInfinity;
      case 3:
        return m > Real<T>::kInfinity;
      case 4:
        return m >= Real<T>::kMinNormal && m < Real<T>::kInfinity;
      default:
        return m != 0 && m < Real<T>::kMinNormal;
    }
  }
};

template <Compare C, bool Ftz>
struct OpCompare {
  template <class T>
  static uint8_t f(T x, T y) {
    const T a = flushed<Ftz>(x);
    const T b = flushed<Ftz>(y);
    return compares<C>(a, b);
  }
};

template <class T, bool Ftz>
AluFn find_compare(Compare compare) {
  switch (compare) {
    case Compare::eq:
      return binary<OpCompare<Compare::eq, Ftz>, uint8_t, T, T>;
    case Compare::ne:
      return binary<OpCompare<Compare::ne, Ftz>, uint8_t, T, T>;
    case Compare::lt:
      return binary<OpCompare<Compare::lt, Ftz>, uint8_t, T, T>;
    case Compare::le:
      return binary<OpCompare<Compare::le, Ftz>, uint8_t, T, T>;
    case Compare::equ:
      return binary<OpCompare<Compare::equ, Ftz>, uint8_t, T, T>;
    case Compare::neu:
      return binary<OpCompare<Compare::neu, Ftz>, uint8_t, T, T>;
    case Compare::ltu:
      return binary<OpCompare<Compare::ltu, Ftz>, uint8_t, T, T>;
    case Compare::leu:
      return binary<OpCompare<Compare::leu, Ftz>, uint8_t, T, T>;
    case Compare::num:
      return binary<OpCompare<Compare::num, Ftz>, uint8_t, T, T>;
    case Compare::nan:
      return binary<OpCompare<Compare::nan, Ftz>, uint8_t, T, T>;
    default:
      return nullptr;
  }
}

template <class T>
AluFn find_test(int test) {
  switch (test) {
    case 0:
      return unary<OpTest<0>, uint8_t, T>;
    case 1:
      return unary<OpTest<1>, uint8_t, T>;
    case 2:
      return unary<OpTest<2>, uint8_t, T>;
    case 3:
      return unary<OpTest<3>, uint8_t, T>;
    case 4:
      return unary<OpTest<4>, uint8_t, T>;
    default:
      return unary<OpTest<5>, uint8_t, T>;
  }
}

template <class T>
AluFn find_real(const AluKey& key) {
  constexpr bool kSingle = sizeof(T) == 4;
  const bool ftz = kSingle && key.ftz;
  switch (key.op) {
    case AluOp::add:
      return find_rounded<OpAdd, 2, T>(key);
    case AluOp::sub:
      return find_rounded<OpSub, 2, T>(key);
    case AluOp::mul_lo:
      return find_rounded<OpMul, 2, T>(key);
    case AluOp::div:
      return find_rounded<OpDiv, 2, T>(key);
    case AluOp::fma:
      return find_rounded<OpFma, 3, T>(key);
    case AluOp::rcp:
      return find_rounded<OpRcp, 1, T>(key);
    case AluOp::sqrt:
      return find_rounded<OpSqrt, 1, T>(key);
    case AluOp::abs:
      return ftz ? unary<With<OpAbs, kSingle, false>, T, T> : unary<OpAbs, T, T>;
    case AluOp::neg:
      return ftz ? unary<With<OpNeg, kSingle, false>, T, T> : unary<OpNeg, T, T>;
    case AluOp::min:
    case AluOp::max:
      return ftz ? find_extreme<T, kSingle>(key) : find_extreme<T, false>(key);
    case AluOp::copysign:
      return binary<OpCopysign, T, T, T>;
    case AluOp::testp:
      return find_test<T>(key.variant);
    case AluOp::compare:
      return ftz ? find_compare<T, kSingle>(key.compare) : find_compare<T, false>(key.compare);
    default:
      return nullptr;
  }
}

}  // namespace

AluFn find_floating(const AluKey& key) {
  if (key.type == Type::f32) return find_real<float>(key);
  return key.type == Type::f64 ? find_real<double>(key) : nullptr;
}

}  // namespace tensor_fusion::sim::ptx::TF_PTX_ISA
