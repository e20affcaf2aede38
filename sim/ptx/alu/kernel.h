#pragma once

// Loops over the lanes of a batch. Everything below is compiled once per instruction set with that set's flags, so it
// must stay free of the standard library: an inline function of it, compiled here for AVX-512, could be the copy the
// linker keeps for all.
#include <stdint.h>
#include <string.h>

#include "sim/ptx/alu/key.h"

#if defined(__clang__)
#define TF_LANES _Pragma("clang loop vectorize(assume_safety)")
#else
#define TF_LANES _Pragma("GCC ivdep")
#endif

namespace tensor_fusion::sim::ptx::TF_PTX_ISA {

AluFn find_integer(const AluKey& key);
AluFn find_bits_of_integers(const AluKey& key);  // part of the above
AluFn find_logic(const AluKey& key);
AluFn find_floating(const AluKey& key);
AluFn find_half(const AluKey& key);
AluFn find_convert(const AluKey& key);
AluFn find_math(const AluKey& key);
EffectFn find_memory(int width, int count, int space, bool store);
const MaskTable& mask_table();

namespace {

template <class T>
inline T* lanes_at(std::byte* registers, const Slot& slot, uint32_t warp) {
  return reinterpret_cast<T*>(registers + slot.at + static_cast<size_t>(warp) * slot.step);
}

template <class To, class From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

// N elements per warp: 32, or 64 where a register holds two.
template <class F, class D, class A, int N = 32>
void unary(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
  for (uint32_t w = first; w < last; ++w) {
    D* d = lanes_at<D>(r, in.d, w);
    const A* a = lanes_at<A>(r, in.a, w);
    TF_LANES for (int i = 0; i < N; ++i) d[i] = F::f(a[i]);
  }
}

template <class F, class D, class A, class B, int N = 32>
void binary(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
  for (uint32_t w = first; w < last; ++w) {
    D* d = lanes_at<D>(r, in.d, w);
    const A* a = lanes_at<A>(r, in.a, w);
    const B* b = lanes_at<B>(r, in.b, w);
    TF_LANES for (int i = 0; i < N; ++i) d[i] = F::f(a[i], b[i]);
  }
}

template <class F, class D, class A, class B, class C, int N = 32>
void ternary(const Ins& in, std::byte* r, uint32_t first, uint32_t last) {
  for (uint32_t w = first; w < last; ++w) {
    D* d = lanes_at<D>(r, in.d, w);
    const A* a = lanes_at<A>(r, in.a, w);
    const B* b = lanes_at<B>(r, in.b, w);
    const C* c = lanes_at<C>(r, in.c, w);
    TF_LANES for (int i = 0; i < N; ++i) d[i] = F::f(a[i], b[i], c[i]);
  }
}

__extension__ typedef unsigned __int128 UWide128;
__extension__ typedef __int128 Wide128;

template <class T>
struct Traits;
template <>
struct Traits<uint8_t> {
  using S = int8_t;
  using U = uint8_t;
  using Wide = uint16_t;
};
template <>
struct Traits<uint16_t> {
  using S = int16_t;
  using U = uint16_t;
  using Wide = uint32_t;
};
template <>
struct Traits<uint32_t> {
  using S = int32_t;
  using U = uint32_t;
  using Wide = uint64_t;
};
template <>
struct Traits<uint64_t> {
  using S = int64_t;
  using U = uint64_t;
  using Wide = UWide128;
};
template <>
struct Traits<int8_t> {
  using S = int8_t;
  using U = uint8_t;
  using Wide = int16_t;
};
template <>
struct Traits<int16_t> {
  using S = int16_t;
  using U = uint16_t;
  using Wide = int32_t;
};
template <>
struct Traits<int32_t> {
  using S = int32_t;
  using U = uint32_t;
  using Wide = int64_t;
};
template <>
struct Traits<int64_t> {
  using S = int64_t;
  using U = uint64_t;
  using Wide = Wide128;
};

template <class T>
inline constexpr bool kSigned = static_cast<T>(-1) < static_cast<T>(0);

}  // namespace
}  // namespace tensor_fusion::sim::ptx::TF_PTX_ISA
