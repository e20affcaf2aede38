// Moves, selection, bit logic, shifts and integer comparison.
#include "sim/ptx/alu/kernel.h"

namespace tensor_fusion::sim::ptx::TF_PTX_ISA {
namespace {

struct Mov {
  template <class T>
  static T f(T a) {
    return a;
  }
};
struct And {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  static T f(T a) {
    return static_cast<T>(~a);
  }
};
struct Cnot {
  template <class T>
  static T f(T a) {
    return static_cast<T>(a == 0 ? 1 : 0);
  }
};
struct Select {
  template <class T>
  static T f(T a, T b, uint8_t p) {
    return p != 0 ? a : b;
  }
};
struct Shl {
  template <class T>
  static T f(T a, uint32_t b) {
    constexpr uint32_t bits = sizeof(T) * 8;
    return b >= bits ? T{0} : static_cast<T>(a << (b & (bits - 1)));
  }
};
struct Shr {
  template <class T>
  static T f(T a, uint32_t b) {
    constexpr uint32_t bits = sizeof(T) * 8;
    if constexpr (kSigned<T>) return static_cast<T>(a >> (b >= bits ? bits - 1 : b));
    return b >= bits ? T{0} : static_cast<T>(a >> (b & (bits - 1)));
  }
};
struct Eq {
  template <class T>
  static uint8_t f(T a, T b) {
    return a == b;
  }
};
struct Ne {
  template <class T>
  static uint8_t f(T a, T b) {
    return a != b;
  }
};
struct Lt {
  template <class T>
  static uint8_t f(T a, T b) {
    return a < b;
  }
};
struct Le {
  template <class T>
  static uint8_t f(T a, T b) {
    return a <= b;
  }
};

template <class To, class From>
struct Pack {
  static To f(From a, From b) {
    return static_cast<To>(static_cast<To>(a) | static_cast<To>(static_cast<To>(b) << (sizeof(From) * 8)));
  }
};
template <class To, class From, int Index>
struct Extract {
  static To f(From a) { return static_cast<To>(a >> (Index * sizeof(To) * 8)); }
};

template <class T>
void lop3(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
  T minterm[8];
  for (int k = 0; k < 8; ++k) minterm[k] = static_cast<T>((in.imm >> k) & 1 ? ~T{0} : T{0});
  for (uint32_t w = first; w < last; ++w) {
    T* d = lanes_at<T>(r, in.d, w);
    const T* pa = lanes_at<T>(r, in.a, w);
    const T* pb = lanes_at<T>(r, in.b, w);
    const T* pc = lanes_at<T>(r, in.c, w);
    TF_LANES for (int i = 0; i < 32; ++i) {
      const T a = pa[i];
      const T b = pb[i];
      const T c = pc[i];
      const T low = (~b & ((~c & minterm[0]) | (c & minterm[1]))) | (b & ((~c & minterm[2]) | (c & minterm[3])));
      const T high = (~b & ((~c & minterm[4]) | (c & minterm[5]))) | (b & ((~c & minterm[6]) | (c & minterm[7])));
      d[i] = (~a & low) | (a & high);
    }
  }
}

template <class T>
AluFn find_bits(const AluKey& key) {
  switch (key.op) {
    case AluOp::mov:
      return unary<Mov, T, T>;
    case AluOp::bit_and:
      return binary<And, T, T, T>;
    case AluOp::bit_or:
      return binary<Or, T, T, T>;
    case AluOp::bit_xor:
      return binary<Xor, T, T, T>;
    case AluOp::bit_not:
      return unary<Not, T, T>;
    case AluOp::cnot:
      return unary<Cnot, T, T>;
    case AluOp::select:
      return ternary<Select, T, T, T, uint8_t>;
    default:
      return nullptr;
  }
}

template <class T>
AluFn find_shift(const AluKey& key) {
  switch (key.op) {
    case AluOp::shl:
      return binary<Shl, T, T, uint32_t>;
    case AluOp::shr:
      return binary<Shr, T, T, uint32_t>;
    case AluOp::compare:
      switch (key.compare) {
        case Compare::eq:
          return binary<Eq, uint8_t, T, T>;
        case Compare::ne:
          return binary<Ne, uint8_t, T, T>;
        case Compare::lt:
          return binary<Lt, uint8_t, T, T>;
        case Compare::le:
          return binary<Le, uint8_t, T, T>;
        default:
          return nullptr;
      }
    default:
      return nullptr;
  }
}

template <class To, class From>
AluFn find_extract(int index) {
  if (index == 0) return unary<Extract<To, From, 0>, To, From>;
  if (index == 1) return unary<Extract<To, From, 1>, To, From>;
  if constexpr (sizeof(From) >= 4 * sizeof(To)) {
    if (index == 2) return unary<Extract<To, From, 2>, To, From>;
    if (index == 3) return unary<Extract<To, From, 3>, To, From>;
  }
  if constexpr (sizeof(From) >= 8 * sizeof(To)) {
    if (index == 4) return unary<Extract<To, From, 4>, To, From>;
    if (index == 5) return unary<Extract<To, From, 5>, To, From>;
    if (index == 6) return unary<Extract<To, From, 6>, To, From>;
    if (index == 7) return unary<Extract<To, From, 7>, To, From>;
  }
  return nullptr;
}

}  // namespace

AluFn find_logic(const AluKey& key) {
  if (key.op == AluOp::pack) {
    switch (key.type) {
      case Type::u16:
        return binary<Pack<uint16_t, uint8_t>, uint16_t, uint8_t, uint8_t>;
      case Type::u32:
        return binary<Pack<uint32_t, uint16_t>, uint32_t, uint16_t, uint16_t>;
      case Type::u64:
        return binary<Pack<uint64_t, uint32_t>, uint64_t, uint32_t, uint32_t>;
      default:
        return nullptr;
    }
  }
  if (key.op == AluOp::extract) {
    const int to = key.type == Type::u8 ? 1 : key.type == Type::u16 ? 2 : 4;
    switch (key.from) {
      case Type::u16:
        return to == 1 ? find_extract<uint8_t, uint16_t>(key.variant) : nullptr;
      case Type::u32:
        return to == 1   ? find_extract<uint8_t, uint32_t>(key.variant)
               : to == 2 ? find_extract<uint16_t, uint32_t>(key.variant)
                         : nullptr;
      case Type::u64:
        return to == 1   ? find_extract<uint8_t, uint64_t>(key.variant)
               : to == 2 ? find_extract<uint16_t, uint64_t>(key.variant)
                         : find_extract<uint32_t, uint64_t>(key.variant);
      default:
        return nullptr;
    }
  }
  if (key.op == AluOp::lop3) return key.type == Type::u32 ? lop3<uint32_t> : nullptr;
  if (key.op == AluOp::shl || key.op == AluOp::shr || key.op == AluOp::compare) {
    switch (key.type) {
      case Type::b16:
      case Type::u16:
        return find_shift<uint16_t>(key);
      case Type::s16:
        return find_shift<int16_t>(key);
      case Type::b32:
      case Type::u32:
        return find_shift<uint32_t>(key);
      case Type::s32:
        return find_shift<int32_t>(key);
      case Type::b64:
      case Type::u64:
        return find_shift<uint64_t>(key);
      case Type::s64:
        return find_shift<int64_t>(key);
      default:
        return nullptr;
    }
  }
  switch (key.type) {
    case Type::pred:
    case Type::u8:
      return find_bits<uint8_t>(key);
    case Type::u16:
      return find_bits<uint16_t>(key);
    case Type::u32:
      return find_bits<uint32_t>(key);
    case Type::u64:
      return find_bits<uint64_t>(key);
    default:
      return nullptr;
  }
}

}  // namespace tensor_fusion::sim::ptx::TF_PTX_ISA
