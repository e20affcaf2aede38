// Predicates and masks.
#include "sim/ptx/alu/kernel.h"

namespace tensor_fusion::sim::ptx::TF_PTX_ISA {
namespace {

const uint8_t* predicate_at(const std::byte* registers, const Slot& slot, uint32_t warp) {
  return reinterpret_cast<const uint8_t*>(registers + slot.at + static_cast<size_t>(warp) * slot.step);
}

uint32_t count(const uint8_t* mask, const std::byte* registers, const Slot& predicate, bool inverted, uint32_t first,
               uint32_t last) {
  const auto flip = static_cast<uint8_t>(inverted ? 1 : 0);
  uint32_t sum = 0;
  for (uint32_t w = first; w < last; ++w) {
    const uint8_t* p = predicate_at(registers, predicate, w);
    uint8_t part[32];
    if (mask == nullptr) {
      for (int i = 0; i < 32; ++i) part[i] = p[i] ^ flip;
    } else {
      const uint8_t* m = mask + w * kWarp;
      for (int i = 0; i < 32; ++i) part[i] = m[i] & (p[i] ^ flip);
    }
    uint64_t words[4];
    memcpy(words, part, sizeof words);
    sum += static_cast<uint32_t>(((words[0] + words[1] + words[2] + words[3]) * 0x0101010101010101ULL) >> 56);
  }
  return sum;
}

uint32_t combine(uint8_t* out, const uint8_t* mask, const std::byte* registers, const Slot& predicate, bool inverted,
                 uint32_t first, uint32_t last) {
  const auto flip = static_cast<uint8_t>(inverted ? 1 : 0);
  uint32_t sum = 0;
  for (uint32_t w = first; w < last; ++w) {
    const uint8_t* p = predicate_at(registers, predicate, w);
    uint8_t* o = out + w * kWarp;
    if (mask == nullptr) {
      TF_LANES for (int i = 0; i < 32; ++i) o[i] = p[i] ^ flip;
    } else {
      const uint8_t* m = mask + w * kWarp;
      TF_LANES for (int i = 0; i < 32; ++i) o[i] = m[i] & (p[i] ^ flip);
    }
    uint64_t words[4];
    memcpy(words, o, sizeof words);
    sum += static_cast<uint32_t>(((words[0] + words[1] + words[2] + words[3]) * 0x0101010101010101ULL) >> 56);
  }
  return sum;
}

template <class T>
void blend_lanes(std::byte* registers, const Slot& to, const Slot& from, const uint8_t* mask, uint32_t first,
                 uint32_t last) {
  for (uint32_t w = first; w < last; ++w) {
    T* d = lanes_at<T>(registers, to, w);
    const T* s = lanes_at<T>(registers, from, w);
    const uint8_t* m = mask + w * kWarp;
    TF_LANES for (int i = 0; i < 32; ++i) d[i] = m[i] != 0 ? s[i] : d[i];
  }
}

void blend(std::byte* registers, const Slot& to, const Slot& from, const uint8_t* mask, int width, uint32_t first,
           uint32_t last) {
  switch (width) {
    case 1:
      return blend_lanes<uint8_t>(registers, to, from, mask, first, last);
    case 2:
      return blend_lanes<uint16_t>(registers, to, from, mask, first, last);
    case 4:
      return blend_lanes<uint32_t>(registers, to, from, mask, first, last);
    default:
      return blend_lanes<uint64_t>(registers, to, from, mask, first, last);
  }
}

}  // namespace

const MaskTable& mask_table() {
  static const MaskTable table{count, combine, blend};
  return table;
}

}  // namespace tensor_fusion::sim::ptx::TF_PTX_ISA
