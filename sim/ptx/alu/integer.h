// Integer arithmetic. All sums wrap, so they are formed in unsigned types.
#include "sim/ptx/alu/kernel.h"

namespace tensor_fusion::sim::ptx::TF_PTX_ISA {
namespace {

template <class T>
using U = typename Traits<T>::U;

struct Add {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(static_cast<U<T>>(a) + static_cast<U<T>>(b));
  }
};
struct Sub {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(static_cast<U<T>>(a) - static_cast<U<T>>(b));
  }
};
struct AddSat {
  static int32_t f(int32_t a, int32_t b) {
    const auto sum = static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
    const bool over = ((a ^ sum) & (b ^ sum)) < 0;
    return over ? (a < 0 ? INT32_MIN : INT32_MAX) : sum;
  }
};
struct SubSat {
  static int32_t f(int32_t a, int32_t b) {
    const auto sum = static_cast<int32_t>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b));
    const bool over = ((a ^ b) & (a ^ sum)) < 0;
    return over ? (a < 0 ? INT32_MIN : INT32_MAX) : sum;
  }
};
struct MulLo {
  template <class T>
  static T f(T a, T b) {
    using W = decltype(U<T>{} + 0U);
    return static_cast<T>(static_cast<W>(static_cast<U<T>>(a)) * static_cast<W>(static_cast<U<T>>(b)));
  }
};
struct MulHi {
  template <class T>
  static T f(T a, T b) {
    using W = typename Traits<T>::Wide;
    return static_cast<T>(static_cast<W>(static_cast<W>(a) * static_cast<W>(b)) >> (sizeof(T) * 8));
  }
};
template <class W>
struct MulWide {
  template <class T>
  static W f(T a, T b) {
    return static_cast<W>(static_cast<W>(a) * static_cast<W>(b));
  }
};
struct MadLo {
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f(MulLo::f(a, b), c);
  }
};
struct MadHi {
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f(MulHi::f(a, b), c);
  }
};
struct MadHiSat {
  static int32_t f(int32_t a, int32_t b, int32_t c) { return AddSat::f(MulHi::f(a, b), c); }
};
template <class W>
struct MadWide {
  template <class T>
  static W f(T a, T b, W c) {
    return Add::f(MulWide<W>::f(a, b), c);
  }
};
inline int64_t low24(int32_t a) {
  return static_cast<int64_t>(static_cast<int32_t>(static_cast<uint32_t>(a) << 8) >> 8);
}
inline uint64_t low24(uint32_t a) { return a & 0xffffffU; }
template <int Shift>
struct Mul24 {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>((low24(a) * low24(b)) >> Shift);
  }
};
template <int Shift>
struct Mad24 {
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f(Mul24<Shift>::f(a, b), c);
  }
};
struct Sad {
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f(static_cast<T>(a < b ? Sub::f(b, a) : Sub::f(a, b)), c);
  }
};
struct Min {
  template <class T>
  static T f(T a, T b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  static T f(T a, T b) {
    return a > b ? a : b;
  }
};
struct MaxRelu {
  template <class T>
  static T f(T a, T b) {
    const T m = a > b ? a : b;
    return m < T{0} ? T{0} : m;
  }
};
struct MinRelu {
  template <class T>
  static T f(T a, T b) {
    const T m = a < b ? a : b;
    return m < T{0} ? T{0} : m;
  }
};
struct Neg {
  template <class T>
  static T f(T a) {
    return static_cast<T>(0U - static_cast<U<T>>(a));
  }
};
struct Abs {
  template <class T>
  static T f(T a) {
    return a < 0 ? Neg::f(a) : a;
  }
};

// By zero: all ones, as the hardware answers. Up to 32 bits a double quotient is exact enough to truncate.
struct Div {
  template <class T>
  static T f(T a, T b) {
    if constexpr (sizeof(T) <= 4 && kSigned<T>) {
      const int32_t by = b == 0 ? 1 : b;
      const double q = static_cast<double>(a) / static_cast<double>(by);
      const auto whole = static_cast<int32_t>(q >= 2147483648.0 ? -2147483648.0 : q);
      return b == 0 ? static_cast<T>(-1) : static_cast<T>(whole);
    } else if constexpr (sizeof(T) <= 4) {
      const uint32_t by = b == 0 ? 1 : b;
      return b == 0 ? static_cast<T>(-1) : static_cast<T>(static_cast<uint32_t>(a) / by);
    } else if constexpr (kSigned<T>) {
      if (b == 0) return -1;
      if (b == -1) return Neg::f(a);
      return a / b;
    } else {
      return b == 0 ? ~T{0} : a / b;
    }
  }
};
struct Rem {
  template <class T>
  static T f(T a, T b) {
    if (b == 0) return a;
    return Sub::f(a, MulLo::f(Div::f(a, b), b));
  }
};

struct AddCarry {
  template <class T>
  static T f(T a, T b, uint32_t c) {
    return static_cast<T>(a + b + c);
  }
};
struct CarryOut {
  template <class T>
  static uint32_t f(T a, T b, uint32_t c) {
    const T s = a + b;
    return static_cast<uint32_t>(s < a) | static_cast<uint32_t>(static_cast<T>(s + c) < s);
  }
};
struct SubBorrow {
  template <class T>
  static T f(T a, T b, uint32_t c) {
    return static_cast<T>(a - b - c);
  }
};
struct BorrowOut {
  template <class T>
  static uint32_t f(T a, T b, uint32_t c) {
    const T s = a - b;
    return static_cast<uint32_t>(a < b) | static_cast<uint32_t>(s < c);
  }
};

template <class T>
void shl_add(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
  const auto n = static_cast<uint32_t>(in.imm);
  for (uint32_t w = first; w < last; ++w) {
    T* d = lanes_at<T>(r, in.d, w);
    const T* a = lanes_at<T>(r, in.a, w);
    const T* b = lanes_at<T>(r, in.b, w);
    TF_LANES for (int i = 0; i < 32; ++i) d[i] = static_cast<T>(static_cast<T>(a[i] << n) + b[i]);
  }
}

template <class T, int N = 32>
AluFn find_simple(const AluKey& key) {
  switch (key.op) {
    case AluOp::add:
      return binary<Add, T, T, T, N>;
    case AluOp::sub:
      return binary<Sub, T, T, T, N>;
    case AluOp::min:
      return key.relu ? binary<MinRelu, T, T, T, N> : binary<Min, T, T, T, N>;
    case AluOp::max:
      return key.relu ? binary<MaxRelu, T, T, T, N> : binary<Max, T, T, T, N>;
    default:
      return nullptr;
  }
}

template <class T>
AluFn find_typed(const AluKey& key) {
  using W = typename Traits<T>::Wide;
  if (AluFn simple = find_simple<T>(key)) return simple;
  switch (key.op) {
    case AluOp::mul_lo:
      return binary<MulLo, T, T, T>;
    case AluOp::mul_hi:
      return binary<MulHi, T, T, T>;
    case AluOp::mad_lo:
      return ternary<MadLo, T, T, T, T>;
    case AluOp::mad_hi:
      return ternary<MadHi, T, T, T, T>;
    case AluOp::mul_wide:
      if constexpr (sizeof(T) < 8)
        return binary<MulWide<W>, W, T, T>;
      else
        return nullptr;
    case AluOp::mad_wide:
      if constexpr (sizeof(T) < 8)
        return ternary<MadWide<W>, W, T, T, W>;
      else
        return nullptr;
    case AluOp::sad:
      return ternary<Sad, T, T, T, T>;
    case AluOp::div:
      return binary<Div, T, T, T>;
    case AluOp::rem:
      return binary<Rem, T, T, T>;
    case AluOp::neg:
      return unary<Neg, T, T>;
    case AluOp::abs:
      return unary<Abs, T, T>;
    case AluOp::shl_add:
      if constexpr (!kSigned<T>)
        return shl_add<T>;
      else
        return nullptr;
    default:
      break;
  }
  if constexpr (sizeof(T) == 4) {
    switch (key.op) {
      case AluOp::mul24_lo:
        return binary<Mul24<0>, T, T, T>;
      case AluOp::mul24_hi:
        return binary<Mul24<16>, T, T, T>;
      case AluOp::mad24_lo:
        return ternary<Mad24<0>, T, T, T, T>;
      case AluOp::mad24_hi:
        return ternary<Mad24<16>, T, T, T, T>;
      default:
        break;
    }
  }
  if constexpr (!kSigned<T> && sizeof(T) >= 4) {
    switch (key.op) {
      case AluOp::add_carry:
        return ternary<AddCarry, T, T, T, uint32_t>;
      case AluOp::carry_out:
        return ternary<CarryOut, uint32_t, T, T, uint32_t>;
      case AluOp::sub_borrow:
        return ternary<SubBorrow, T, T, T, uint32_t>;
      case AluOp::borrow_out:
        return ternary<BorrowOut, uint32_t, T, T, uint32_t>;
      default:
        break;
    }
  }
  return nullptr;
}

}  // namespace

AluFn find_integer(const AluKey& key) {
  if (AluFn bits = find_bits_of_integers(key)) return bits;
  if (key.sat) {
    if (key.op == AluOp::add) return binary<AddSat, int32_t, int32_t, int32_t>;
    if (key.op == AluOp::sub) return binary<SubSat, int32_t, int32_t, int32_t>;
    return key.op == AluOp::mad_hi ? ternary<MadHiSat, int32_t, int32_t, int32_t, int32_t> : nullptr;
  }
  switch (key.type) {
    case Type::u16:
    case Type::b16:
      return find_typed<uint16_t>(key);
    case Type::s16:
      return find_typed<int16_t>(key);
    case Type::u32:
    case Type::b32:
      return find_typed<uint32_t>(key);
    case Type::s32:
      return find_typed<int32_t>(key);
    case Type::u64:
    case Type::b64:
      return find_typed<uint64_t>(key);
    case Type::s64:
      return find_typed<int64_t>(key);
    case Type::u16x2:
      return find_simple<uint16_t, 64>(key);
    case Type::s16x2:
      return find_simple<int16_t, 64>(key);
    default:
      return nullptr;
  }
}

}  // namespace tensor_fusion::sim::ptx::TF_PTX_ISA
