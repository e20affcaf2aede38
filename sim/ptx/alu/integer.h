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

struct Popc {
  template <class T>
  static uint32_t f(T a) {
    return static_cast<uint32_t>(sizeof(T) == 8 ? __builtin_popcountll(static_cast<uint64_t>(a))
                                                : __builtin_popcount(static_cast<uint32_t>(a)));
  }
};
struct Clz {
  static uint32_t f(uint32_t a) { return a == 0 ? 32U : static_cast<uint32_t>(__builtin_clz(a)); }
  static uint32_t f(uint64_t a) { return a == 0 ? 64U : static_cast<uint32_t>(__builtin_clzll(a)); }
};
template <bool ShiftAmount>
struct Bfind {
  template <class T>
  static uint32_t f(T a) {
    U<T> bits = static_cast<U<T>>(a);
    if (kSigned<T> && a < 0) bits = static_cast<U<T>>(~bits);
    if (bits == 0) return 0xffffffffU;
    const uint32_t clz = Clz::f(bits);
    return ShiftAmount ? clz : static_cast<uint32_t>(sizeof(T) * 8 - 1) - clz;
  }
};
struct Brev {
  static uint32_t f(uint32_t x) {
    x = ((x >> 1) & 0x55555555U) | ((x & 0x55555555U) << 1);
    x = ((x >> 2) & 0x33333333U) | ((x & 0x33333333U) << 2);
    x = ((x >> 4) & 0x0f0f0f0fU) | ((x & 0x0f0f0f0fU) << 4);
    return __builtin_bswap32(x);
  }
  static uint64_t f(uint64_t x) {
    return (static_cast<uint64_t>(f(static_cast<uint32_t>(x))) << 32) | f(static_cast<uint32_t>(x >> 32));
  }
};
struct Fns {
  static uint32_t f(uint32_t mask, uint32_t base, uint32_t offset_bits) {
    const auto offset = static_cast<int32_t>(offset_bits);
    if (base > 31) return 0xffffffffU;
    if (offset == 0) return (mask >> base) & 1 ? base : 0xffffffffU;
    int left = offset > 0 ? offset : -(offset + 1) + 1;
    for (auto at = static_cast<int32_t>(base); at >= 0 && at < 32; at += offset > 0 ? 1 : -1) {
      if (((mask >> at) & 1) != 0 && --left == 0) return static_cast<uint32_t>(at);
    }
    return 0xffffffffU;
  }
};
struct Bfe {
  template <class T>
  static T f(T a, uint32_t position, uint32_t length) {
    constexpr uint32_t bits = sizeof(T) * 8;
    const uint32_t pos = position & 0xff;
    const uint32_t len = length & 0xff;
    const U<T> word = static_cast<U<T>>(a);
    const U<T> mask =
        len >= bits ? static_cast<U<T>>(~U<T>{0}) : static_cast<U<T>>((U<T>{1} << (len & (bits - 1))) - 1);
    U<T> out = (pos >= bits ? U<T>{0} : static_cast<U<T>>(word >> (pos & (bits - 1)))) & mask;
    if constexpr (kSigned<T>) {
      const uint32_t top = pos + len - 1 < bits - 1 ? pos + len - 1 : bits - 1;
      const bool negative = len != 0 && ((word >> (top & (bits - 1))) & 1) != 0;
      // Bits beyond the word are copies of its sign.
      if (negative) {
        const uint32_t have = pos >= bits ? 0 : (bits - pos < len ? bits - pos : len);
        out |= have >= bits ? U<T>{0} : static_cast<U<T>>(~U<T>{0} << have);
      }
    }
    return static_cast<T>(out);
  }
};
struct Bfi {
  template <class T>
  static T f(T a, T b, uint32_t fields) {
    constexpr uint32_t bits = sizeof(T) * 8;
    const uint32_t pos = fields & 0xff;
    const uint32_t len = (fields >> 8) & 0xff;
    const T ones = len >= bits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << (len & (bits - 1))) - 1);
    const T mask = pos >= bits ? T{0} : static_cast<T>(ones << (pos & (bits - 1)));
    const T moved = pos >= bits ? T{0} : static_cast<T>(a << (pos & (bits - 1)));
    return static_cast<T>((moved & mask) | (b & ~mask));
  }
};
struct Fields {
  static uint32_t f(uint32_t position, uint32_t length) {
    return (position > 255 ? 255 : position) | ((length > 255 ? 255 : length) << 8);
  }
};

template <bool SignedA, bool SignedB>
struct Dp4a {
  static uint32_t f(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t sum = c;
    for (int k = 0; k < 4; ++k) {
      const auto x = static_cast<uint8_t>(a >> (8 * k));
      const auto y = static_cast<uint8_t>(b >> (8 * k));
      const int32_t xs = SignedA ? static_cast<int8_t>(x) : x;
      const int32_t ys = SignedB ? static_cast<int8_t>(y) : y;
      sum += static_cast<uint32_t>(xs * ys);
    }
    return sum;
  }
};
template <bool SignedA, bool SignedB, int High>
struct Dp2a {
  static uint32_t f(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t sum = c;
    for (int k = 0; k < 2; ++k) {
      const auto x = static_cast<uint16_t>(a >> (16 * k));
      const auto y = static_cast<uint8_t>(b >> (8 * (k + 2 * High)));
      const int32_t xs = SignedA ? static_cast<int16_t>(x) : x;
      const int32_t ys = SignedB ? static_cast<int8_t>(y) : y;
      sum += static_cast<uint32_t>(xs) * static_cast<uint32_t>(ys);
    }
    return sum;
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

template <bool Left, bool Wrap>
struct Funnel {
  static uint32_t f(uint32_t a, uint32_t b, uint32_t c) {
    const uint32_t n = Wrap ? c & 31 : (c > 32 ? 32 : c);
    const uint64_t both = (static_cast<uint64_t>(b) << 32) | a;
    return Left ? static_cast<uint32_t>((both << n) >> 32) : static_cast<uint32_t>(both >> n);
  }
};
template <int Mode>
struct Prmt {
  static uint32_t f(uint32_t a, uint32_t b, uint32_t c) {
    const uint64_t both = (static_cast<uint64_t>(b) << 32) | a;
    uint32_t out = 0;
    for (uint32_t k = 0; k < 4; ++k) {
      uint32_t pick = 0;
      if constexpr (Mode == 0) pick = (c >> (4 * k)) & 0xf;
      if constexpr (Mode == 1) pick = (c + k) & 7;
      if constexpr (Mode == 2) pick = (c - k) & 7;
      if constexpr (Mode == 3) pick = c & 3;
      if constexpr (Mode == 4) pick = k > (c & 3) ? k : (c & 3);
      if constexpr (Mode == 5) pick = k < (c & 3) ? k : (c & 3);
      if constexpr (Mode == 6) pick = ((c & 1) * 2) + (k & 1);
      auto byte = static_cast<uint32_t>((both >> (8 * (pick & 7))) & 0xff);
      if (Mode == 0 && (pick & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
      out |= byte << (8 * k);
    }
    return out;
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
    case AluOp::bfind:
      if constexpr (sizeof(T) >= 4)
        return key.variant != 0 ? unary<Bfind<true>, uint32_t, T> : unary<Bfind<false>, uint32_t, T>;
      else
        return nullptr;
    case AluOp::bfe:
      if constexpr (sizeof(T) >= 4)
        return ternary<Bfe, T, T, uint32_t, uint32_t>;
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
      case AluOp::popc:
        return unary<Popc, uint32_t, T>;
      case AluOp::clz:
        return unary<Clz, uint32_t, T>;
      case AluOp::brev:
        return unary<Brev, T, T>;
      case AluOp::bfi:
        return ternary<Bfi, T, T, T, uint32_t>;
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

template <class F>
AluFn three() {
  return ternary<F, uint32_t, uint32_t, uint32_t, uint32_t>;
}

AluFn find_words(const AluKey& key) {
  const bool a = key.type == Type::s32;
  const bool b = key.from == Type::s32;
  switch (key.op) {
    case AluOp::fns:
      return three<Fns>();
    case AluOp::fields:
      return binary<Fields, uint32_t, uint32_t, uint32_t>;
    case AluOp::dp4a:
      if ((key.type != Type::s32 && key.type != Type::u32) || (key.from != Type::s32 && key.from != Type::u32))
        return nullptr;
      return a ? (b ? three<Dp4a<true, true>>() : three<Dp4a<true, false>>())
               : (b ? three<Dp4a<false, true>>() : three<Dp4a<false, false>>());
    case AluOp::dp2a:
      if ((key.type != Type::s32 && key.type != Type::u32) || (key.from != Type::s32 && key.from != Type::u32))
        return nullptr;
      if (key.variant != 0)
        return a ? (b ? three<Dp2a<true, true, 1>>() : three<Dp2a<true, false, 1>>())
                 : (b ? three<Dp2a<false, true, 1>>() : three<Dp2a<false, false, 1>>());
      return a ? (b ? three<Dp2a<true, true, 0>>() : three<Dp2a<true, false, 0>>())
               : (b ? three<Dp2a<false, true, 0>>() : three<Dp2a<false, false, 0>>());
    case AluOp::shf_l:
      return key.variant != 0 ? three<Funnel<true, true>>() : three<Funnel<true, false>>();
    case AluOp::shf_r:
      return key.variant != 0 ? three<Funnel<false, true>>() : three<Funnel<false, false>>();
    case AluOp::prmt:
      switch (key.variant) {
        case 0:
          return three<Prmt<0>>();
        case 1:
          return three<Prmt<1>>();
        case 2:
          return three<Prmt<2>>();
        case 3:
          return three<Prmt<3>>();
        case 4:
          return three<Prmt<4>>();
        case 5:
          return three<Prmt<5>>();
        default:
          return three<Prmt<6>>();
      }
    default:
      return nullptr;
  }
}

}  // namespace

AluFn find_integer(const AluKey& key) {
  if (AluFn words = find_words(key)) return words;
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
