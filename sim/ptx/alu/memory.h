// Loads and stores. A warp whose lanes touch neighbours or one and the same place moves as a block; a warp that is
// scattered moves lane by lane behind one check of all its addresses; a warp that is partly off, or touches more than
// one range, goes through ExecFrame::resolve for what the cached range does not cover.
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "sim/ptx/address.h"
#include "sim/ptx/alu/kernel.h"
#include "sim/ptx/frame.h"

namespace tensor_fusion::sim::ptx::TF_PTX_ISA {
namespace {

constexpr int kGlobal = static_cast<int>(AddressSpace::global);
constexpr int kShared = static_cast<int>(AddressSpace::shared);
constexpr int kLocal = static_cast<int>(AddressSpace::local);
constexpr int kParam = static_cast<int>(AddressSpace::param);
constexpr int kGeneric = static_cast<int>(AddressSpace::generic);

struct Window {
  std::byte* base = nullptr;  // what an address is added to
  uint64_t begin = 0;         // addresses from here …
  uint64_t limit = 0;         // … up to begin + limit, inclusive, fit the access
  bool usable = false;
};

// Where warp w's accesses of `bytes` lie when all is well.
template <int Space, bool Write>
inline Window window_of(const Ins& in, ExecFrame& frame, uint32_t w, uint64_t first_address, uint64_t bytes) {
  Window out;
  if constexpr (Space == kGlobal || Space == kGeneric) {
    RangeSlot& slot = frame.ranges[in.cache];
    if (first_address - slot.begin >= slot.end - slot.begin || slot.end < slot.begin) {
      if (Space == kGeneric && (first_address >> 56) != 0) return out;
      if (!frame.find_range(frame, first_address, bytes, Write, slot)) return out;
    }
    if (Write && !slot.writable) return out;
    out.begin = slot.begin;
    out.usable = slot.end - slot.begin >= bytes;
    out.limit = slot.end - slot.begin - bytes;
  } else if constexpr (Space == kShared) {
    const uint32_t at = frame.shared_base[w * kWarp];
    if (!frame.one_shared && frame.shared_base[w * kWarp + kWarp - 1] != at) return out;
    out.base = frame.shared + at;
    out.usable = frame.shared_bytes >= bytes;
    out.limit = frame.shared_bytes - bytes;
  } else if constexpr (Space == kParam) {
    out.base = const_cast<std::byte*>(frame.params);
    out.usable = frame.param_bytes >= bytes;
    out.limit = frame.param_bytes - bytes;
  }
  return out;
}

inline std::byte* place(const Window& window, uint64_t address) {
  return window.base != nullptr ? window.base + address : reinterpret_cast<std::byte*>(address);
}

inline bool all_active(const uint8_t* mask) {
  uint64_t parts[4];
  memcpy(parts, mask, sizeof parts);
  return (parts[0] & parts[1] & parts[2] & parts[3]) == 0x0101010101010101ULL;
}
inline bool none_active(const uint8_t* mask) {
  uint64_t parts[4];
  memcpy(parts, mask, sizeof parts);
  return (parts[0] | parts[1] | parts[2] | parts[3]) == 0;
}

// All 32 addresses fit the window and are aligned.
inline bool all_fit(const uint64_t* a, uint64_t offset, const Window& window, uint64_t align_mask) {
  uint64_t bad = 0;
  const uint64_t shift = offset - window.begin;
  for (uint32_t i = 0; i < kWarp; ++i) {
    bad |= static_cast<uint64_t>(a[i] + shift > window.limit) | ((a[i] + offset) & align_mask);
  }
  return bad == 0;
}

template <class T>
inline bool in_row(const uint64_t* a) {
  if (a[31] - a[0] != 31 * sizeof(T)) return false;
  uint64_t off = 0;
  for (uint64_t i = 0; i < kWarp; ++i) off |= (a[i] - a[0]) ^ (i * sizeof(T));
  return off == 0;
}
inline bool all_same(const uint64_t* a, uint32_t n) {
  uint64_t off = 0;
  for (uint32_t i = 0; i < n; ++i) off |= a[i] ^ a[0];
  return off == 0;
}

// Lane by lane, for the warps that are in no hurry.
template <class T, int Count, int Space, bool Write>
bool slow_warp(const Ins& in, ExecFrame& frame, uint32_t w, const uint8_t* mask, const uint64_t* a, T* const* regs) {
  const Window window = [&] {
    uint32_t lane = 0;
    while (mask != nullptr && lane < kWarp - 1 && mask[lane] == 0) ++lane;
    if constexpr (Space == kLocal)
      return Window{};
    else
      return window_of<Space, Write>(in, frame, w, a[lane] + static_cast<uint64_t>(in.imm), sizeof(T) * Count);
  }();
  uint32_t active = 0;
  frame.fault = 0;
  for (uint32_t i = 0; i < kWarp; ++i) {
    if (mask != nullptr && mask[i] == 0) continue;
    ++active;
    const uint64_t address = a[i] + static_cast<uint64_t>(in.imm);
    std::byte* p = nullptr;
    if (window.usable && address - window.begin <= window.limit && (address & (sizeof(T) * Count - 1)) == 0) {
      p = place(window, address);
    } else {
      p = frame.resolve(frame, in, address, w * kWarp + i, sizeof(T) * Count, Write, Space);
      if (p == nullptr) return false;
    }
    for (int k = 0; k < Count; ++k) {
      if constexpr (Write)
        memcpy(p + static_cast<size_t>(k) * sizeof(T), regs[k] + i, sizeof(T));
      else
        memcpy(regs[k] + i, p + static_cast<size_t>(k) * sizeof(T), sizeof(T));
    }
  }
  if (Space == kGlobal || Space == kGeneric) frame.global_bytes += active * sizeof(T) * Count;
  return true;
}

template <class T>
inline void gather_eight(const Window& window, const uint64_t* a, uint64_t offset, T* d) {
  if (a[7] == a[0] && all_same(a, 8)) {
    T x;
    memcpy(&x, place(window, a[0] + offset), sizeof x);
    for (int i = 0; i < 8; ++i) d[i] = x;
    return;
  }
  if (a[7] - a[0] == 7 * sizeof(T)) {
    uint64_t off = 0;
    for (uint64_t i = 0; i < 8; ++i) off |= (a[i] - a[0]) ^ (i * sizeof(T));
    if (off == 0) {
      memcpy(d, place(window, a[0] + offset), 8 * sizeof(T));
      return;
    }
  }
  for (int i = 0; i < 8; ++i) memcpy(d + i, place(window, a[i] + offset), sizeof(T));
}

template <class T, int Space>
bool load(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const auto offset = static_cast<uint64_t>(in.imm);
  for (uint32_t w = mask.first; w < mask.last; ++w) {
    const uint64_t* a = lanes_at<uint64_t>(frame.regs, in.a, w);
    T* d = lanes_at<T>(frame.regs, in.d, w);
    const uint8_t* m = mask.bytes == nullptr ? nullptr : mask.bytes + w * kWarp;
    if (m != nullptr) {
      if (none_active(m)) continue;
      if (all_active(m)) m = nullptr;
    }
    if (m == nullptr) {
      const Window window = window_of<Space, false>(in, frame, w, a[0] + offset, sizeof(T));
      if (window.usable) {
        const uint64_t at = a[0] + offset;
        if (in_row<T>(a)) {
          if (at - window.begin <= window.limit && at + 31 * sizeof(T) - window.begin <= window.limit &&
              (at & (sizeof(T) - 1)) == 0) {
            memcpy(d, place(window, at), kWarp * sizeof(T));
            if (Space != kShared && Space != kParam) frame.global_bytes += kWarp * sizeof(T);
            continue;
          }
        } else if (all_fit(a, offset, window, sizeof(T) - 1)) {
          for (uint32_t g = 0; g < kWarp; g += 8) gather_eight(window, a + g, offset, d + g);
          if (Space != kShared && Space != kParam) frame.global_bytes += kWarp * sizeof(T);
          continue;
        }
      }
    }
    T* const regs[1] = {d};
    if (!slow_warp<T, 1, Space, false>(in, frame, w, m, a, regs)) return false;
  }
  return true;
}

template <class T, int Space>
bool store(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const auto offset = static_cast<uint64_t>(in.imm);
  for (uint32_t w = mask.first; w < mask.last; ++w) {
    const uint64_t* a = lanes_at<uint64_t>(frame.regs, in.a, w);
    T* b = lanes_at<T>(frame.regs, in.b, w);
    const uint8_t* m = mask.bytes == nullptr ? nullptr : mask.bytes + w * kWarp;
    if (m != nullptr) {
      if (none_active(m)) continue;
      if (all_active(m)) m = nullptr;
    }
    if (m == nullptr) {
      const Window window = window_of<Space, true>(in, frame, w, a[0] + offset, sizeof(T));
      if (window.usable) {
        const uint64_t at = a[0] + offset;
        if (in_row<T>(a)) {
          if (at - window.begin <= window.limit && at + 31 * sizeof(T) - window.begin <= window.limit &&
              (at & (sizeof(T) - 1)) == 0) {
            memcpy(place(window, at), b, kWarp * sizeof(T));
            if (Space != kShared) frame.global_bytes += kWarp * sizeof(T);
            continue;
          }
        } else if (all_fit(a, offset, window, sizeof(T) - 1)) {
          for (uint32_t i = 0; i < kWarp; ++i) memcpy(place(window, a[i] + offset), b + i, sizeof(T));
          if (Space != kShared) frame.global_bytes += kWarp * sizeof(T);
          continue;
        }
      }
    }
    T* const regs[1] = {b};
    if (!slow_warp<T, 1, Space, true>(in, frame, w, m, a, regs)) return false;
  }
  return true;
}

#if defined(__SSE2__)
// Four lanes' 16 bytes ↔ four registers of four lanes.
inline void load_four(const Window& window, const uint64_t* a, uint64_t offset, uint32_t* const* d, uint32_t lane) {
  __m128 x0 = _mm_loadu_ps(reinterpret_cast<const float*>(place(window, a[0] + offset)));
  __m128 x1 = _mm_loadu_ps(reinterpret_cast<const float*>(place(window, a[1] + offset)));
  __m128 x2 = _mm_loadu_ps(reinterpret_cast<const float*>(place(window, a[2] + offset)));
  __m128 x3 = _mm_loadu_ps(reinterpret_cast<const float*>(place(window, a[3] + offset)));
  _MM_TRANSPOSE4_PS(x0, x1, x2, x3);
  _mm_storeu_ps(reinterpret_cast<float*>(d[0] + lane), x0);
  _mm_storeu_ps(reinterpret_cast<float*>(d[1] + lane), x1);
  _mm_storeu_ps(reinterpret_cast<float*>(d[2] + lane), x2);
  _mm_storeu_ps(reinterpret_cast<float*>(d[3] + lane), x3);
}
inline void store_four(const Window& window, const uint64_t* a, uint64_t offset, uint32_t* const* s, uint32_t lane) {
  __m128 x0 = _mm_loadu_ps(reinterpret_cast<const float*>(s[0] + lane));
  __m128 x1 = _mm_loadu_ps(reinterpret_cast<const float*>(s[1] + lane));
  __m128 x2 = _mm_loadu_ps(reinterpret_cast<const float*>(s[2] + lane));
  __m128 x3 = _mm_loadu_ps(reinterpret_cast<const float*>(s[3] + lane));
  _MM_TRANSPOSE4_PS(x0, x1, x2, x3);
  _mm_storeu_ps(reinterpret_cast<float*>(place(window, a[0] + offset)), x0);
  _mm_storeu_ps(reinterpret_cast<float*>(place(window, a[1] + offset)), x1);
  _mm_storeu_ps(reinterpret_cast<float*>(place(window, a[2] + offset)), x2);
  _mm_storeu_ps(reinterpret_cast<float*>(place(window, a[3] + offset)), x3);
}
constexpr bool kTransposes = true;
#else
inline void load_four(const Window&, const uint64_t*, uint64_t, uint32_t* const*, uint32_t) {}
inline void store_four(const Window&, const uint64_t*, uint64_t, uint32_t* const*, uint32_t) {}
constexpr bool kTransposes = false;
#endif

template <class T, int Count, int Space, bool Write>
bool vector(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const auto offset = static_cast<uint64_t>(in.imm);
  const LinkedExtra& extra = frame.extras[in.extra];
  const Slot* slots = Write ? extra.ins : extra.outs;
  constexpr uint64_t kBytes = sizeof(T) * Count;
  for (uint32_t w = mask.first; w < mask.last; ++w) {
    const uint64_t* a = lanes_at<uint64_t>(frame.regs, in.a, w);
    T* regs[Count];
    for (int k = 0; k < Count; ++k) regs[k] = lanes_at<T>(frame.regs, slots[k], w);
    const uint8_t* m = mask.bytes == nullptr ? nullptr : mask.bytes + w * kWarp;
    if (m != nullptr) {
      if (none_active(m)) continue;
      if (all_active(m)) m = nullptr;
    }
    if (m == nullptr) {
      const Window window = window_of<Space, Write>(in, frame, w, a[0] + offset, kBytes);
      if (window.usable && all_fit(a, offset, window, kBytes - 1)) {
        if (Space != kShared && Space != kParam) frame.global_bytes += kWarp * kBytes;
        if constexpr (Write) {
          if constexpr (Count == 4 && sizeof(T) == 4 && kTransposes) {
            for (uint32_t i = 0; i < kWarp; i += 4) store_four(window, a + i, offset, regs, i);
          } else {
            for (uint32_t i = 0; i < kWarp; ++i) {
              T x[Count];
              for (int k = 0; k < Count; ++k) x[k] = regs[k][i];
              memcpy(place(window, a[i] + offset), x, sizeof x);
            }
          }
        } else {
          if (a[0] == a[31] && all_same(a, kWarp)) {
            T x[Count];
            memcpy(x, place(window, a[0] + offset), sizeof x);
            for (int k = 0; k < Count; ++k) {
              T* d = regs[k];
              TF_LANES for (uint32_t i = 0; i < kWarp; ++i) d[i] = x[k];
            }
          } else if constexpr (Count == 4 && sizeof(T) == 4 && kTransposes) {
            for (uint32_t i = 0; i < kWarp; i += 4) {
              if (a[i] == a[i + 3] && a[i] == a[i + 1] && a[i] == a[i + 2]) {
                uint32_t x[4];
                memcpy(x, place(window, a[i] + offset), sizeof x);
                for (int k = 0; k < 4; ++k) {
                  for (uint32_t j = 0; j < 4; ++j) regs[k][i + j] = x[k];
                }
              } else {
                load_four(window, a + i, offset, regs, i);
              }
            }
          } else {
            for (uint32_t i = 0; i < kWarp; ++i) {
              T x[Count];
              memcpy(x, place(window, a[i] + offset), sizeof x);
              for (int k = 0; k < Count; ++k) regs[k][i] = x[k];
            }
          }
        }
        continue;
      }
    }
    if (!slow_warp<T, Count, Space, Write>(in, frame, w, m, a, regs)) return false;
  }
  return true;
}

// Local memory lies lane after lane.
template <class T, int Count, bool Write>
bool local(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const auto offset = static_cast<uint64_t>(in.imm);
  const LinkedExtra& extra = frame.extras[in.extra];
  constexpr uint64_t kBytes = sizeof(T) * Count;
  for (uint32_t w = mask.first; w < mask.last; ++w) {
    const uint64_t* a = lanes_at<uint64_t>(frame.regs, in.a, w);
    T* regs[Count];
    if constexpr (Count == 1)
      regs[0] = lanes_at<T>(frame.regs, Write ? in.b : in.d, w);
    else
      for (int k = 0; k < Count; ++k) regs[k] = lanes_at<T>(frame.regs, Write ? extra.ins[k] : extra.outs[k], w);
    const uint8_t* m = mask.bytes == nullptr ? nullptr : mask.bytes + w * kWarp;
    for (uint32_t i = 0; i < kWarp; ++i) {
      if (m != nullptr && m[i] == 0) continue;
      const uint64_t address = a[i] + offset;
      std::byte* p = nullptr;
      if (frame.local_bytes >= kBytes && address <= frame.local_bytes - kBytes && (address & (kBytes - 1)) == 0) {
        p = frame.local + (static_cast<uint64_t>(w) * kWarp + i) * frame.local_bytes + address;
      } else {
        p = frame.resolve(frame, in, address, w * kWarp + i, kBytes, Write, kLocal);
        if (p == nullptr) return false;
      }
      for (int k = 0; k < Count; ++k) {
        if constexpr (Write)
          memcpy(p + static_cast<size_t>(k) * sizeof(T), regs[k] + i, sizeof(T));
        else
          memcpy(regs[k] + i, p + static_cast<size_t>(k) * sizeof(T), sizeof(T));
      }
    }
  }
  return true;
}

template <class T, int Space>
EffectFn find_counted(int count, bool write) {
  if constexpr (Space == kLocal) {
    switch (count) {
      case 1:
        return write ? local<T, 1, true> : local<T, 1, false>;
      case 2:
        return write ? local<T, 2, true> : local<T, 2, false>;
      case 4:
        return write ? local<T, 4, true> : local<T, 4, false>;
      default:
        return nullptr;
    }
  } else {
    switch (count) {
      case 1:
        return write ? store<T, Space> : load<T, Space>;
      case 2:
        return write ? vector<T, 2, Space, true> : vector<T, 2, Space, false>;
      case 4:
        return write ? vector<T, 4, Space, true> : vector<T, 4, Space, false>;
      case 8:
        if constexpr (sizeof(T) <= 4)
          return write ? vector<T, 8, Space, true> : vector<T, 8, Space, false>;
        else
          return nullptr;
      default:
        return nullptr;
    }
  }
}

template <int Space>
EffectFn find_width(int width, int count, bool write) {
  switch (width) {
    case 1:
      return find_counted<uint8_t, Space>(count, write);
    case 2:
      return find_counted<uint16_t, Space>(count, write);
    case 4:
      return find_counted<uint32_t, Space>(count, write);
    case 8:
      return find_counted<uint64_t, Space>(count, write);
    default:
      return nullptr;
  }
}

}  // namespace

EffectFn find_memory(int width, int count, int space, bool write) {
  switch (space) {
    case kGlobal:
      return find_width<kGlobal>(width, count, write);
    case kShared:
      return find_width<kShared>(width, count, write);
    case kLocal:
      return find_width<kLocal>(width, count, write);
    case kParam:
      return write ? nullptr : find_width<kParam>(width, count, false);
    default:
      return find_width<kGeneric>(width, count, write);
  }
}

}  // namespace tensor_fusion::sim::ptx::TF_PTX_ISA
