// mbarrier: barriers that are words in shared memory. A phase ends when as many have arrived as the barrier was made
// for, and all announced bytes have come; the next one begins at once. Blocks of one batch run on one thread, so that
// a word is changed without atomics.
#include "sim/ptx/effects.h"
#include "sim/ptx/lane.h"

namespace tensor_fusion::sim::ptx {
namespace {

class BarrierWord {
 public:
  explicit BarrierWord(std::uint64_t bits) : bits_(bits) {}
  static BarrierWord made_for(std::uint32_t count) {
    BarrierWord word(0);
    word.put(kExpected, count);
    word.put(kPending, count);
    return word;
  }
  [[nodiscard]] std::uint64_t bits() const { return bits_; }
  [[nodiscard]] bool odd_phase() const { return (bits_ >> 63) != 0; }
  [[nodiscard]] std::uint32_t pending() const { return take(kPending); }
  void arrive(std::uint32_t count) { put(kPending, pending() - count); }
  void leave(std::uint32_t count) {
    put(kExpected, take(kExpected) - count);
    arrive(count);
  }
  void expect_bytes(std::uint32_t bytes) { put(kBytes, take(kBytes) + bytes); }
  void complete() {
    if (pending() != 0 || take(kBytes) != 0) return;
    put(kPending, take(kExpected));
    bits_ ^= std::uint64_t{1} << 63;
  }

 private:
  static constexpr unsigned kPending = 0, kExpected = 20, kBytes = 40;
  static constexpr std::uint64_t kField = (1U << 20) - 1;
  [[nodiscard]] std::uint32_t take(unsigned field) const { return static_cast<std::uint32_t>(bits_ >> field & kField); }
  void put(unsigned field, std::uint32_t value) {
    bits_ = (bits_ & ~(kField << field)) | ((std::uint64_t{value} & kField) << field);
  }
  std::uint64_t bits_;
};

bool mbarrier(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const auto action = static_cast<Mbarrier>(in.imm & 0xff);
  const int space = static_cast<int>(in.imm >> 8);
  return each_lane(mask, [&](std::uint32_t lane) {
    std::byte* at = frame.resolve(frame, in, get<std::uint64_t>(frame, in.a, lane), lane, 8, true, space);
    if (at == nullptr) return false;
    std::uint64_t before = 0;
    std::memcpy(&before, at, 8);
    BarrierWord word(before);
    const auto count = [&] { return get<std::uint32_t>(frame, in.b, lane); };
    switch (action) {
      case Mbarrier::init:
        word = BarrierWord::made_for(count());
        break;
      case Mbarrier::inval:
        word = BarrierWord(0);
        break;
      case Mbarrier::arrive:
        word.arrive(count());
        break;
      case Mbarrier::drop:
        word.leave(count());
        break;
      case Mbarrier::expect:
        word.expect_bytes(count());
        break;
      case Mbarrier::arrive_expect:
        word.expect_bytes(count());
        word.arrive(1);
        break;
      case Mbarrier::bytes_came:
        word.expect_bytes(0 - count());
        break;
      case Mbarrier::test_state:
        set<std::uint8_t>(frame, in.d, lane,
                          BarrierWord(get<std::uint64_t>(frame, in.b, lane)).odd_phase() != word.odd_phase());
        return true;
      case Mbarrier::test_parity:
        set<std::uint8_t>(frame, in.d, lane, ((count() & 1) != 0) != word.odd_phase());
        return true;
    }
    if (action != Mbarrier::init && action != Mbarrier::inval) word.complete();
    const std::uint64_t after = word.bits();
    std::memcpy(at, &after, 8);
    if (in.d_width == 8) set(frame, in.d, lane, before);
    return true;
  });
}

bool pending_count(const Ins& in, ExecFrame& frame, const Mask& mask) {
  return each_lane(mask, [&](std::uint32_t lane) {
    set(frame, in.d, lane, BarrierWord(get<std::uint64_t>(frame, in.a, lane)).pending());
    return true;
  });
}

}  // namespace

EffectFn mbarrier_effect() { return mbarrier; }
EffectFn pending_count_effect() { return pending_count; }

}  // namespace tensor_fusion::sim::ptx
