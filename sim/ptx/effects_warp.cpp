// Lanes of a warp that look at each other. A batch's warps are the blocks' warps, because a program with such
// instructions starts each block at a warp.
#include <array>
#include <bit>

#include "sim/ptx/effects.h"
#include "sim/ptx/lane.h"

namespace tensor_fusion::sim::ptx {
namespace {

std::uint32_t active_bits(const Mask& mask, std::uint32_t warp) {
  if (mask.bytes == nullptr) return 0xffffffffU;
  std::uint32_t bits = 0;
  for (std::uint32_t i = 0; i < kWarp; ++i) bits |= static_cast<std::uint32_t>(mask.bytes[warp * kWarp + i]) << i;
  return bits;
}

template <Shuffle Mode>
bool shuffle(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const LinkedExtra& extra = frame.extras[in.extra];
  for (std::uint32_t w = mask.first; w < mask.last; ++w) {
    std::array<std::uint32_t, kWarp> source;
    std::array<std::uint32_t, kWarp> result;
    std::array<std::uint8_t, kWarp> good;
    for (std::uint32_t i = 0; i < kWarp; ++i) source[i] = get<std::uint32_t>(frame, in.a, w * kWarp + i);
    for (std::uint32_t i = 0; i < kWarp; ++i) {
      const std::uint32_t b = get<std::uint32_t>(frame, in.b, w * kWarp + i) & 31;
      const std::uint32_t c = get<std::uint32_t>(frame, in.c, w * kWarp + i);
      const std::uint32_t segment = (c >> 8) & 31;
      const std::uint32_t most = (i & segment) | (c & 31 & ~segment);
      const std::uint32_t least = i & segment;
      std::uint32_t j = 0;
      bool inside = false;
      if constexpr (Mode == Shuffle::up) {
        j = i - b;
        inside = static_cast<std::int32_t>(j) >= static_cast<std::int32_t>(most);
      } else if constexpr (Mode == Shuffle::down) {
        j = i + b;
        inside = j <= most;
      } else if constexpr (Mode == Shuffle::bfly) {
        j = i ^ b;
        inside = j <= most;
      } else {
        j = least | (b & ~segment);
        inside = j <= most;
      }
      result[i] = source[inside ? j & 31 : i];
      good[i] = inside ? 1 : 0;
    }
    for (std::uint32_t i = 0; i < kWarp; ++i) {
      const std::uint32_t lane = w * kWarp + i;
      if (!active(mask, lane)) continue;
      set(frame, in.d, lane, result[i]);
      if (extra.out_count != 0) set(frame, extra.outs[0], lane, good[i]);
    }
  }
  return true;
}

template <Vote Mode>
bool vote(const Ins& in, ExecFrame& frame, const Mask& mask) {
  for (std::uint32_t w = mask.first; w < mask.last; ++w) {
    const std::uint32_t here = active_bits(mask, w);
    std::uint32_t yes = 0;
    for (std::uint32_t i = 0; i < kWarp; ++i)
      yes |= (get<std::uint8_t>(frame, in.a, w * kWarp + i) != 0 ? 1U : 0U) << i;
    yes &= here;
    for (std::uint32_t i = 0; i < kWarp; ++i) {
      if (((here >> i) & 1) == 0) continue;
      const std::uint32_t lane = w * kWarp + i;
      if constexpr (Mode == Vote::ballot)
        set(frame, in.d, lane, yes);
      else if constexpr (Mode == Vote::all)
        set(frame, in.d, lane, static_cast<std::uint8_t>(yes == here));
      else if constexpr (Mode == Vote::any)
        set(frame, in.d, lane, static_cast<std::uint8_t>(yes != 0));
      else
        set(frame, in.d, lane, static_cast<std::uint8_t>(yes == 0 || yes == here));
    }
  }
  return true;
}

template <class T, bool All>
bool match(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const LinkedExtra& extra = frame.extras[in.extra];
  for (std::uint32_t w = mask.first; w < mask.last; ++w) {
    const std::uint32_t here = active_bits(mask, w);
    std::array<T, kWarp> value;
    for (std::uint32_t i = 0; i < kWarp; ++i) value[i] = get<T>(frame, in.a, w * kWarp + i);
    for (std::uint32_t i = 0; i < kWarp; ++i) {
      if (((here >> i) & 1) == 0) continue;
      std::uint32_t same = 0;
      for (std::uint32_t j = 0; j < kWarp; ++j) same |= (value[j] == value[i] ? 1U : 0U) << j;
      same &= here;
      if (All) same = same == here ? here : 0;
      set(frame, in.d, w * kWarp + i, same);
      if (extra.out_count != 0) set(frame, extra.outs[0], w * kWarp + i, static_cast<std::uint8_t>(same != 0));
    }
  }
  return true;
}

bool active_mask(const Ins& in, ExecFrame& frame, const Mask& mask) {
  return each_lane(mask, [&](std::uint32_t lane) {
    set(frame, in.d, lane, active_bits(mask, lane / kWarp));
    return true;
  });
}

bool elect(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const LinkedExtra& extra = frame.extras[in.extra];
  return each_lane(mask, [&](std::uint32_t lane) {
    const auto leader = static_cast<std::uint32_t>(std::countr_zero(active_bits(mask, lane / kWarp)));
    set(frame, in.d, lane, leader);
    if (extra.out_count != 0) set(frame, extra.outs[0], lane, static_cast<std::uint8_t>(lane % kWarp == leader));
    return true;
  });
}

template <Redux Op>
bool redux(const Ins& in, ExecFrame& frame, const Mask& mask) {
  for (std::uint32_t w = mask.first; w < mask.last; ++w) {
    const std::uint32_t here = active_bits(mask, w);
    bool first = true;
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < kWarp; ++i) {
      if (((here >> i) & 1) == 0) continue;
      const auto x = get<std::uint32_t>(frame, in.a, w * kWarp + i);
      const auto signed_x = static_cast<std::int32_t>(x);
      const auto signed_sum = static_cast<std::int32_t>(sum);
      if (first)
        sum = x;
      else if constexpr (Op == Redux::add)
        sum += x;
      else if constexpr (Op == Redux::umin)
        sum = x < sum ? x : sum;
      else if constexpr (Op == Redux::umax)
        sum = x > sum ? x : sum;
      else if constexpr (Op == Redux::min)
        sum = signed_x < signed_sum ? x : sum;
      else if constexpr (Op == Redux::max)
        sum = signed_x > signed_sum ? x : sum;
      else if constexpr (Op == Redux::bit_and)
        sum &= x;
      else if constexpr (Op == Redux::bit_or)
        sum |= x;
      else
        sum ^= x;
      first = false;
    }
    for (std::uint32_t i = 0; i < kWarp; ++i) {
      if (((here >> i) & 1) != 0) set(frame, in.d, w * kWarp + i, sum);
    }
  }
  return true;
}

}  // namespace

EffectFn shuffle_effect(Shuffle mode) {
  switch (mode) {
    case Shuffle::up:
      return shuffle<Shuffle::up>;
    case Shuffle::down:
      return shuffle<Shuffle::down>;
    case Shuffle::bfly:
      return shuffle<Shuffle::bfly>;
    default:
      return shuffle<Shuffle::idx>;
  }
}

EffectFn vote_effect(Vote mode) {
  switch (mode) {
    case Vote::all:
      return vote<Vote::all>;
    case Vote::any:
      return vote<Vote::any>;
    case Vote::uni:
      return vote<Vote::uni>;
    default:
      return vote<Vote::ballot>;
  }
}

EffectFn match_effect(bool all, int width) {
  if (width == 4) return all ? match<std::uint32_t, true> : match<std::uint32_t, false>;
  if (width == 8) return all ? match<std::uint64_t, true> : match<std::uint64_t, false>;
  return nullptr;
}

EffectFn active_mask_effect() { return active_mask; }
EffectFn elect_effect() { return elect; }

EffectFn redux_effect(Redux op) {
  switch (op) {
    case Redux::add:
      return redux<Redux::add>;
    case Redux::min:
      return redux<Redux::min>;
    case Redux::max:
      return redux<Redux::max>;
    case Redux::umin:
      return redux<Redux::umin>;
    case Redux::umax:
      return redux<Redux::umax>;
    case Redux::bit_and:
      return redux<Redux::bit_and>;
    case Redux::bit_or:
      return redux<Redux::bit_or>;
    default:
      return redux<Redux::bit_xor>;
  }
}

}  // namespace tensor_fusion::sim::ptx
