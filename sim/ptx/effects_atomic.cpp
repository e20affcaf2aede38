// atom, red, and loads and stores that other threads may see in the middle.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "sim/ptx/effects.h"
#include "sim/ptx/lane.h"

namespace tensor_fusion::sim::ptx {
namespace {

float of_half(std::uint16_t h) {
  const std::uint32_t magnitude = h & 0x7fffU;
  std::uint32_t b = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112F);
  if (magnitude >= 0x7c00) b |= 0x7f800000U;
  return std::bit_cast<float>(b | (static_cast<std::uint32_t>(h & 0x8000U) << 16));
}

std::uint16_t to_half(float x) {
  const auto b = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = b & 0x7fffffffU;
  const std::uint32_t sign = (b >> 16) & 0x8000U;
  if (magnitude > 0x7f800000U) return 0x7fff;
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (magnitude < 0x38800000U) {
    return static_cast<std::uint16_t>(
        sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U));
  }
  return static_cast<std::uint16_t>(sign | ((magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13));
}

std::uint16_t to_brain(float x) {
  const auto b = std::bit_cast<std::uint32_t>(x);
  if ((b & 0x7fffffffU) > 0x7f800000U) return 0x7fff;
  return static_cast<std::uint16_t>((b + 0x7fffU + ((b >> 16) & 1U)) >> 16);
}

struct Half {
  std::uint16_t raw;
};
struct Brain {
  std::uint16_t raw;
};
struct HalfPair {
  std::uint32_t raw;
};
struct BrainPair {
  std::uint32_t raw;
};

float wide(Half h) { return of_half(h.raw); }
float wide(Brain h) { return std::bit_cast<float>(std::uint32_t{h.raw} << 16); }
void narrow(float x, Half& out) { out.raw = to_half(x); }
void narrow(float x, Brain& out) { out.raw = to_brain(x); }

template <class T>
constexpr bool kPacked = std::is_same_v<T, Half> || std::is_same_v<T, Brain>;
template <class T>
constexpr bool kPair = std::is_same_v<T, HalfPair> || std::is_same_v<T, BrainPair>;

template <AtomicOp Op, class T>
T combined(T old, T b, T c) {
  if constexpr (Op == AtomicOp::exch) {
    return b;
  } else if constexpr (Op == AtomicOp::cas) {
    return std::memcmp(&old, &b, sizeof(T)) == 0 ? c : old;
  } else if constexpr (kPacked<T>) {
    T out;
    const float x = wide(old);
    const float y = wide(b);
    narrow(Op == AtomicOp::add ? x + y : Op == AtomicOp::min ? std::min(x, y) : std::max(x, y), out);
    return out;
  } else if constexpr (kPair<T>) {
    using One = std::conditional_t<std::is_same_v<T, HalfPair>, Half, Brain>;
    const One low =
        combined<Op>(One{static_cast<std::uint16_t>(old.raw)}, One{static_cast<std::uint16_t>(b.raw)}, One{});
    const One high = combined<Op>(One{static_cast<std::uint16_t>(old.raw >> 16)},
                                  One{static_cast<std::uint16_t>(b.raw >> 16)}, One{});
    return T{static_cast<std::uint32_t>(low.raw) | (static_cast<std::uint32_t>(high.raw) << 16)};
  } else if constexpr (Op == AtomicOp::add) {
    if constexpr (std::is_floating_point_v<T>)
      return old + b;
    else
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) + static_cast<std::make_unsigned_t<T>>(b));
  } else if constexpr (Op == AtomicOp::min) {
    return std::min(old, b);
  } else if constexpr (Op == AtomicOp::max) {
    return std::max(old, b);
  } else if constexpr (Op == AtomicOp::inc) {
    return old >= b ? T{0} : static_cast<T>(old + 1);
  } else if constexpr (Op == AtomicOp::dec) {
    return old == 0 || old > b ? b : static_cast<T>(old - 1);
  } else if constexpr (Op == AtomicOp::bit_and) {
    return static_cast<T>(old & b);
  } else if constexpr (Op == AtomicOp::bit_or) {
    return static_cast<T>(old | b);
  } else {
    return static_cast<T>(old ^ b);
  }
}

template <class T>
using Word =
    std::conditional_t<sizeof(T) == 2, std::uint16_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

template <AtomicOp Op, class T, AddressSpace Space>
bool atomic(const Ins& in, ExecFrame& frame, const Mask& mask) {
  using W = Word<T>;
  return each_lane(mask, [&](std::uint32_t lane) {
    const std::uint64_t address = get<std::uint64_t>(frame, in.a, lane) + static_cast<std::uint64_t>(in.imm);
    std::byte* at = nullptr;
    RangeSlot& slot = frame.ranges[in.cache];
    if (Space == AddressSpace::global && address - slot.begin <= slot.end - slot.begin - sizeof(T) &&
        slot.end > slot.begin && slot.writable && (address & (sizeof(T) - 1)) == 0) {
      at = reinterpret_cast<std::byte*>(address);
    } else {
      at = frame.resolve(frame, in, address, lane, sizeof(T), true, static_cast<int>(Space));
      if (at == nullptr) return false;
      if (Space == AddressSpace::global && !frame.find_range(frame, address, sizeof(T), true, slot)) return false;
    }
    const T b = get<T>(frame, in.b, lane);
    const T c = Op == AtomicOp::cas ? get<T>(frame, in.c, lane) : b;
    auto* word = reinterpret_cast<W*>(at);
    W old = 0;
    if constexpr (Space == AddressSpace::shared) {  // a block runs on one thread
      old = *word;
      *word = std::bit_cast<W>(combined<Op>(std::bit_cast<T>(old), b, c));
    } else {
      old = __atomic_load_n(word, __ATOMIC_RELAXED);
      while (!__atomic_compare_exchange_n(word, &old, std::bit_cast<W>(combined<Op>(std::bit_cast<T>(old), b, c)), true,
                                          __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
      }
      frame.global_bytes += sizeof(T);
    }
    if (in.d_width != 0) set(frame, in.d, lane, old);
    return true;
  });
}

template <AtomicOp Op, class T>
EffectFn in_space(AddressSpace space) {
  switch (space) {
    case AddressSpace::global:
      return atomic<Op, T, AddressSpace::global>;
    case AddressSpace::shared:
      return atomic<Op, T, AddressSpace::shared>;
    case AddressSpace::generic:
      return atomic<Op, T, AddressSpace::generic>;
    default:
      return nullptr;
  }
}

template <AtomicOp Op>
EffectFn of_bits(Type type, AddressSpace space) {
  switch (bytes_of(type)) {
    case 2:
      return in_space<Op, std::uint16_t>(space);
    case 4:
      return in_space<Op, std::uint32_t>(space);
    case 8:
      return in_space<Op, std::uint64_t>(space);
    default:
      return nullptr;
  }
}

template <AtomicOp Op>
EffectFn of_integer(Type type, AddressSpace space) {
  switch (type) {
    case Type::u32:
      return in_space<Op, std::uint32_t>(space);
    case Type::u64:
      return in_space<Op, std::uint64_t>(space);
    case Type::s32:
      return in_space<Op, std::int32_t>(space);
    case Type::s64:
      return in_space<Op, std::int64_t>(space);
    default:
      return nullptr;
  }
}

template <AtomicOp Op>
EffectFn of_half_types(Type type, AddressSpace space) {
  switch (type) {
    case Type::f16:
      return in_space<Op, Half>(space);
    case Type::bf16:
      return in_space<Op, Brain>(space);
    case Type::f16x2:
      return in_space<Op, HalfPair>(space);
    case Type::bf16x2:
      return in_space<Op, BrainPair>(space);
    default:
      return nullptr;
  }
}

template <class T, AddressSpace Space, bool Store>
bool ordered(const Ins& in, ExecFrame& frame, const Mask& mask) {
  return each_lane(mask, [&](std::uint32_t lane) {
    const std::uint64_t address = get<std::uint64_t>(frame, in.a, lane) + static_cast<std::uint64_t>(in.imm);
    std::byte* at = frame.resolve(frame, in, address, lane, sizeof(T), Store, static_cast<int>(Space));
    if (at == nullptr) return false;
    auto* word = reinterpret_cast<T*>(at);
    if constexpr (Store)
      __atomic_store_n(word, get<T>(frame, in.b, lane), __ATOMIC_RELEASE);
    else
      set(frame, in.d, lane, __atomic_load_n(word, __ATOMIC_ACQUIRE));
    if (Space == AddressSpace::global) frame.global_bytes += sizeof(T);
    return true;
  });
}

template <class T, AddressSpace Space>
EffectFn ordered_in(bool store) {
  return store ? ordered<T, Space, true> : ordered<T, Space, false>;
}

template <class T>
EffectFn ordered_of(AddressSpace space, bool store) {
  switch (space) {
    case AddressSpace::global:
      return ordered_in<T, AddressSpace::global>(store);
    case AddressSpace::shared:
      return ordered_in<T, AddressSpace::shared>(store);
    case AddressSpace::local:
      return ordered_in<T, AddressSpace::local>(store);
    case AddressSpace::param:
      return ordered_in<T, AddressSpace::param>(store);
    default:
      return ordered_in<T, AddressSpace::generic>(store);
  }
}

}  // namespace

EffectFn atomic_effect(AtomicOp op, Type type, AddressSpace space) {
  switch (op) {
    case AtomicOp::add:
      if (type == Type::f32) return in_space<AtomicOp::add, float>(space);
      if (type == Type::f64) return in_space<AtomicOp::add, double>(space);
      return is_floating(type) ? of_half_types<AtomicOp::add>(type, space) : of_integer<AtomicOp::add>(type, space);
    case AtomicOp::min:
      return is_floating(type) ? of_half_types<AtomicOp::min>(type, space) : of_integer<AtomicOp::min>(type, space);
    case AtomicOp::max:
      return is_floating(type) ? of_half_types<AtomicOp::max>(type, space) : of_integer<AtomicOp::max>(type, space);
    case AtomicOp::inc:
      return type == Type::u32 ? in_space<AtomicOp::inc, std::uint32_t>(space) : nullptr;
    case AtomicOp::dec:
      return type == Type::u32 ? in_space<AtomicOp::dec, std::uint32_t>(space) : nullptr;
    case AtomicOp::bit_and:
      return of_bits<AtomicOp::bit_and>(type, space);
    case AtomicOp::bit_or:
      return of_bits<AtomicOp::bit_or>(type, space);
    case AtomicOp::bit_xor:
      return of_bits<AtomicOp::bit_xor>(type, space);
    case AtomicOp::exch:
      return of_bits<AtomicOp::exch>(type, space);
    case AtomicOp::cas:
      return of_bits<AtomicOp::cas>(type, space);
  }
  return nullptr;
}

EffectFn ordered_effect(int width, AddressSpace space, bool store) {
  switch (width) {
    case 1:
      return ordered_of<std::uint8_t>(space, store);
    case 2:
      return ordered_of<std::uint16_t>(space, store);
    case 4:
      return ordered_of<std::uint32_t>(space, store);
    default:
      return ordered_of<std::uint64_t>(space, store);
  }
}

}  // namespace tensor_fusion::sim::ptx
