#pragma once

#include <bit>
#include <random>
#include <string>
#include <vector>

#include "sim/ptx/test_device.h"

// For tests: one instruction over arrays of operands.
namespace tensor_fusion::sim::ptx {

template <class T>
[[nodiscard]] std::string register_type() {
  return "b" + std::to_string(sizeof(T) * 8);
}

// `code` works on %a, %b, %c (registers of A, B, C) and sets %d (of D); it may use %p and %q as predicates, %h0 and %h1
// as 16-bit, %t0 … %t3 as 32-bit and %u0 … %u3 as 64-bit temporaries.
template <class D, class A, class B = A, class C = A>
[[nodiscard]] std::vector<D> apply(const std::string& code, const std::vector<A>& a, const std::vector<B>& b = {},
                                   const std::vector<C>& c = {}, Isa isa = Isa::best, std::string* error = nullptr) {
  const auto load = [](const std::string& name, const std::string& type, std::size_t bytes, bool wanted) {
    if (!wanted) return std::string();
    return "  ld.param.u64 %x, [p" + name + "];\n  mad.wide.u32 %x, %i, " + std::to_string(bytes) +
           ", %x;\n  ld.global." + type + " %" + name + ", [%x];\n";
  };
  const std::string text =
      ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pd, .param .u64 pa, .param .u64 "
      "pb, .param .u64 pc, .param .u32 pn)\n{\n"
      "  .reg .pred %p, %q, %out;\n  .reg .b16 %h<2>;\n  .reg .b32 %i, %n, %t<4>;\n  .reg .b64 %x, %u<4>;\n"
      "  .reg ." +
      register_type<D>() + " %d;\n  .reg ." + register_type<A>() + " %a;\n  .reg ." + register_type<B>() +
      " %b;\n  .reg ." + register_type<C>() +
      " %c;\n"
      "  mov.u32 %i, %ctaid.x;\n  mov.u32 %n, %ntid.x;\n  mov.u32 %t0, %tid.x;\n  mad.lo.u32 %i, %i, %n, %t0;\n"
      "  ld.param.u32 %n, [pn];\n  setp.ge.u32 %out, %i, %n;\n  @%out ret;\n" +
      load("a", register_type<A>(), sizeof(A), true) + load("b", register_type<B>(), sizeof(B), !b.empty()) +
      load("c", register_type<C>(), sizeof(C), !c.empty()) + "  " + code +
      "\n  ld.param.u64 %x, [pd];\n  mad.wide.u32 %x, %i, " + std::to_string(sizeof(D)) + ", %x;\n  st.global." +
      register_type<D>() + " [%x], %d;\n  ret;\n}\n";
  TestDevice device(text, isa);
  if (device.image.module == nullptr) {
    if (error != nullptr) *error = device.error.render();
    return {};
  }
  const auto out = device.allocate(a.size() * sizeof(D));
  const auto count = static_cast<std::uint32_t>(a.size());
  const Outcome outcome = device.launch("k", {(count + 127) / 128, 1, 1}, {128, 1, 1}, out, device.upload(a),
                                        b.empty() ? 0 : device.upload(b), c.empty() ? 0 : device.upload(c), count);
  if (outcome.status != Status::ok) {
    if (error != nullptr) *error = std::string(status_name(outcome.status));
    return {};
  }
  return device.download<D>(out, a.size());
}

// Random bits, with the values that break things sprinkled in.
template <class T>
[[nodiscard]] std::vector<T> random_bits(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<T> out(count);
  for (T& value : out) {
    std::uint64_t bits = random();
    if (random() % 8 == 0) {
      constexpr std::uint64_t kEdges[] = {0,
                                          1,
                                          0x8000000000000000ULL,
                                          0x7fffffffffffffffULL,
                                          0xffffffffffffffffULL,
                                          0x3ff0000000000000ULL,
                                          0x7ff0000000000000ULL,
                                          0x7ff8000000000000ULL,
                                          0x0010000000000000ULL,
                                          0x000fffffffffffffULL,
                                          2};
      constexpr std::uint64_t kEdges4[] = {0,          1,          0x80000000, 0x7fffffff, 0xffffffff,
                                           0x3f800000, 0x7f800000, 0xff800000, 0x7fc00000, 0x00800000,
                                           0x807fffff, 0x3effffff, 0x3f000000, 0x4b000000};
      constexpr std::uint64_t kEdges2[] = {0,      1,      0x8000, 0x7fff, 0xffff, 0x3c00, 0x7c00,
                                           0xfc00, 0x0400, 0x83ff, 0x7bff, 0x0001, 0x3f80};
      const auto any = [&](const auto& list) { return list[random() % std::size(list)]; };
      bits = sizeof(T) == 8 ? any(kEdges) : sizeof(T) == 4 ? any(kEdges4) : any(kEdges2);
    } else if (random() % 3 == 0 && sizeof(T) >= 4) {
      // exponents close to each other, so that sums have something to round
      if (sizeof(T) == 4)
        bits = (bits & 0x807fffffU) | ((120U + random() % 16) << 23);
      else
        bits = (bits & 0x800fffffffffffffULL) | ((1015ULL + random() % 16) << 52);
    }
    std::memcpy(&value, &bits, sizeof(T));
  }
  return out;
}

}  // namespace tensor_fusion::sim::ptx
