// Integers as rows of bits and bytes: counting, finding, cutting out, moving, multiplying side by side.
#include "sim/ptx/alu/kernel.h"

namespace tensor_fusion::sim::ptx::TF_PTX_ISA {
namespace {

template <class T>
using U = typename Traits<T>::U;

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
AluFn find_fields(const AluKey& key) {
  switch (key.op) {
    case AluOp::bfind:
      return key.variant != 0 ? unary<Bfind<true>, uint32_t, T> : unary<Bfind<false>, uint32_t, T>;
    case AluOp::bfe:
      return ternary<Bfe, T, T, uint32_t, uint32_t>;
    default:
      break;
  }
  if constexpr (!kSigned<T>) {
    switch (key.op) {
      case AluOp::popc:
        return unary<Popc, uint32_t, T>;
      case AluOp::clz:
        return unary<Clz, uint32_t, T>;
      case AluOp::brev:
        return unary<Brev, T, T>;
      case AluOp::bfi:
        return ternary<Bfi, T, T, T, uint32_t>;
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

AluFn find_bits_of_integers(const AluKey& key) {
  if (AluFn words = find_words(key)) return words;
  switch (key.type) {
    case Type::u32:
    case Type::b32:
      return find_fields<uint32_t>(key);
    case Type::s32:
      return find_fields<int32_t>(key);
    case Type::u64:
    case Type::b64:
      return find_fields<uint64_t>(key);
    case Type::s64:
      return find_fields<int64_t>(key);
    default:
      return nullptr;
  }
}

}  // namespace tensor_fusion::sim::ptx::TF_PTX_ISA
