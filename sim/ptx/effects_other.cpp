// Clocks, fences, frames of called functions, cp.async, printf, assert and conditions of graphs.
#include <atomic>
#include <chrono>

#include "sim/ptx/batch.h"
#include "sim/ptx/effects.h"
#include "sim/ptx/lane.h"
#include "sim/ptx/printf.h"
#include "sim/ptx/resolve.h"
#include "sim/ptx/special.h"

#if defined(__SANITIZE_THREAD__)
#define TF_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TF_THREAD_SANITIZER
#endif
#endif

namespace tensor_fusion::sim::ptx {
namespace {

constexpr std::uint64_t kClocksPerUs = 1500;

bool read_special(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const auto ns = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
  const std::uint64_t clocks = ns / 1000 * kClocksPerUs + ns % 1000 * kClocksPerUs / 1000;
  std::uint64_t value = 0;
  switch (static_cast<Special>(in.imm)) {
    case Special::clock:
      value = clocks & 0xffffffffU;
      break;
    case Special::clock_hi:
      value = clocks >> 32;
      break;
    case Special::clock64:
      value = clocks;
      break;
    case Special::globaltimer_lo:
      value = ns & 0xffffffffU;
      break;
    case Special::globaltimer_hi:
      value = ns >> 32;
      break;
    default:
      value = ns;
      break;
  }
  return each_lane(mask, [&](std::uint32_t lane) {
    if (in.d_width == 4)
      set(frame, in.d, lane, static_cast<std::uint32_t>(value));
    else
      set(frame, in.d, lane, value);
    return true;
  });
}

bool fence(const Ins&, ExecFrame&, const Mask&) {
#if defined(TF_THREAD_SANITIZER)
  // It understands no fence; an exchange of one word for all orders as well, at the price of its cache line.
  static std::atomic<int> word{0};
  word.exchange(0, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  return true;
}

bool copy_local(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const auto packed = static_cast<std::uint64_t>(in.imm);
  const std::uint64_t from = packed & 0x1fffff;
  const std::uint64_t to = (packed >> 21) & 0x1fffff;
  const std::uint64_t size = packed >> 42;
  return each_lane(mask, [&](std::uint32_t lane) {
    const std::uint64_t base = get<std::uint64_t>(frame, in.a, lane);
    if (base + std::max(from, to) + size > frame.local_bytes) {
      frame.fault = static_cast<std::uint8_t>(Status::illegal_address);
      frame.fault_address = kLocalWindow + base + std::max(from, to);
      return false;
    }
    std::byte* local = frame.local + std::uint64_t{lane} * frame.local_bytes + base;
    std::memmove(local + to, local + from, size);
    return true;
  });
}

std::uint32_t width_of(const Slot& slot) { return slot.step / kWarp; }

bool save_frame(const Ins& in, ExecFrame& frame, const Mask& mask) {
  auto* batch = static_cast<Batch*>(frame.machine);
  const LinkedExtra& extra = frame.extras[in.extra];
  auto& saved = batch->saved_frames();
  saved.resize(frame.lanes);
  return each_lane(mask, [&](std::uint32_t lane) {
    for (std::uint32_t k = 0; k < extra.in_count; ++k) {
      const Slot& slot = extra.ins[k];
      const std::uint32_t width = width_of(slot);
      const std::byte* at = frame.regs + slot.at + std::size_t{lane} * width;
      saved[lane].insert(saved[lane].end(), at, at + width);
    }
    return true;
  });
}

bool restore_frame(const Ins& in, ExecFrame& frame, const Mask& mask) {
  auto* batch = static_cast<Batch*>(frame.machine);
  const LinkedExtra& extra = frame.extras[in.extra];
  auto& saved = batch->saved_frames();
  return each_lane(mask, [&](std::uint32_t lane) {
    for (std::uint32_t k = extra.out_count; k-- > 0;) {
      const Slot& slot = extra.outs[k];
      const std::uint32_t width = width_of(slot);
      if (saved[lane].size() < width) return true;
      std::memcpy(frame.regs + slot.at + std::size_t{lane} * width, saved[lane].data() + saved[lane].size() - width,
                  width);
      saved[lane].erase(saved[lane].end() - width, saved[lane].end());
    }
    return true;
  });
}

bool copy_async(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const auto size = static_cast<std::uint32_t>(in.imm);
  return each_lane(mask, [&](std::uint32_t lane) {
    const std::uint32_t wanted = std::min(get<std::uint32_t>(frame, in.c, lane), size);
    std::byte* to = resolve(frame, in, get<std::uint64_t>(frame, in.a, lane), lane, size, true,
                            static_cast<int>(AddressSpace::shared));
    if (to == nullptr) return false;
    if (wanted != 0) {
      const std::byte* from = resolve(frame, in, get<std::uint64_t>(frame, in.b, lane), lane, size, false,
                                      static_cast<int>(AddressSpace::global));
      if (from == nullptr) return false;
      std::memcpy(to, from, wanted);
      frame.global_bytes += wanted;
    }
    std::memset(to + wanted, 0, size - wanted);
    return true;
  });
}

// A string in generic space, at most 64 KiB of it.
bool read_string(ExecFrame& frame, const Ins& in, std::uint64_t address, std::uint32_t lane, std::string& out) {
  while (out.size() < 65536) {
    const std::byte* at = resolve(frame, in, address++, lane, 1, false, static_cast<int>(AddressSpace::generic));
    if (at == nullptr) return false;
    if (*at == std::byte{0}) return true;
    out.push_back(static_cast<char>(*at));
  }
  return true;
}

void print(Batch& batch, std::string_view text) {
  RunState& run = batch.run();
  if (!run.options->print) return;
  const std::lock_guard lock(run.print_mutex);
  run.options->print(text);
}

bool device_printf(const Ins& in, ExecFrame& frame, const Mask& mask) {
  auto* batch = static_cast<Batch*>(frame.machine);
  return each_lane(mask, [&](std::uint32_t lane) {
    std::string format;
    if (!read_string(frame, in, get<std::uint64_t>(frame, in.a, lane), lane, format)) return false;
    bool readable = true;
    std::uint64_t at = get<std::uint64_t>(frame, in.b, lane);
    int count = 0;
    const std::string text = format_device(
        format,
        [&](std::uint32_t bytes) {
          ++count;
          at = (at + bytes - 1) / bytes * bytes;
          std::uint64_t value = 0;
          const std::byte* p = resolve(frame, in, at, lane, bytes, false, static_cast<int>(AddressSpace::generic));
          if (p == nullptr)
            readable = false;
          else
            std::memcpy(&value, p, bytes);
          at += bytes;
          return value;
        },
        [&](std::uint64_t address) {
          std::string argument;
          if (address == 0) return std::string("(null)");
          readable = read_string(frame, in, address, lane, argument) && readable;
          return argument;
        });
    if (!readable) return false;
    print(*batch, text);
    if (in.d_width != 0) set(frame, in.d, lane, static_cast<std::uint32_t>(count));
    return true;
  });
}

bool device_assert(const Ins& in, ExecFrame& frame, const Mask& mask) {
  auto* batch = static_cast<Batch*>(frame.machine);
  const LinkedExtra& extra = frame.extras[in.extra];
  bool failed = false;
  const bool good = each_lane(mask, [&](std::uint32_t lane) {
    std::string text[3];
    constexpr std::uint32_t kStrings[] = {0, 1, 3};
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t address = get<std::uint64_t>(frame, extra.ins[kStrings[i]], lane);
      if (address != 0 && !read_string(frame, in, address, lane, text[i])) return false;
    }
    const RunState& run = batch->run();
    const std::uint64_t block = batch->first_block() + lane / run.block_lanes;
    const std::uint32_t thread = lane % run.block_lanes;
    const auto& grid = run.launch->grid;
    const auto& size = run.launch->block;
    const auto number = [](std::uint64_t value) { return std::to_string(value); };
    print(*batch, text[1] + ":" + number(get<std::uint32_t>(frame, extra.ins[2], lane)) + ": " + text[2] +
                      ": block: [" + number(block % grid[0]) + "," + number(block / grid[0] % grid[1]) + "," +
                      number(block / grid[0] / grid[1]) + "], thread: [" + number(thread % size[0]) + "," +
                      number(thread / size[0] % size[1]) + "," + number(thread / size[0] / size[1]) + "] Assertion `" +
                      text[0] + "` failed.\n");
    failed = true;
    return true;
  });
  if (good && failed) frame.fault = static_cast<std::uint8_t>(Status::assert_failed);
  return good && !failed;
}

bool set_condition(const Ins& in, ExecFrame& frame, const Mask& mask) {
  const RunState& run = static_cast<Batch*>(frame.machine)->run();
  return each_lane(mask, [&](std::uint32_t lane) {
    if (run.options->set_condition)
      run.options->set_condition(get<std::uint64_t>(frame, in.a, lane), get<std::uint32_t>(frame, in.b, lane));
    return true;
  });
}

}  // namespace

EffectFn special_effect() { return read_special; }
EffectFn fence_effect() { return fence; }
EffectFn printf_effect() { return device_printf; }
EffectFn assert_effect() { return device_assert; }
EffectFn set_condition_effect() { return set_condition; }
EffectFn copy_local_effect() { return copy_local; }
EffectFn save_frame_effect() { return save_frame; }
EffectFn restore_frame_effect() { return restore_frame; }
EffectFn copy_async_effect() { return copy_async; }

}  // namespace tensor_fusion::sim::ptx
