#include "sim/ptx/resolve.h"

#include "sim/ptx/address.h"
#include "sim/ptx/batch.h"

namespace tensor_fusion::sim::ptx {
namespace {

std::byte* fault(ExecFrame& frame, Status status, std::uint64_t address) {
  frame.fault = static_cast<std::uint8_t>(status);
  frame.fault_address = address;
  return nullptr;
}

}  // namespace

bool find_range(ExecFrame& frame, std::uint64_t address, std::uint64_t bytes, bool write, RangeSlot& slot) {
  auto* batch = static_cast<Batch*>(frame.machine);
  const auto holds = [&](const Range& range) {
    return address >= range.begin && address < range.end && range.end - address >= bytes && (!write || range.writable);
  };
  for (const Range& range : batch->ranges().ranges) {
    if (!holds(range)) continue;
    slot = {range.begin, range.end, range.writable};
    return true;
  }
  const std::optional<Range> range = (address >> 56) == 0 ? batch->run().memory->range_of(address) : std::nullopt;
  if (range && holds(*range)) {
    batch->ranges().ranges.push_back(*range);
    slot = {range->begin, range->end, range->writable};
    return true;
  }
  fault(frame, Status::illegal_address, address);
  return false;
}

std::byte* resolve(ExecFrame& frame, const Ins& ins, std::uint64_t address, std::uint32_t lane, std::uint32_t bytes,
                   bool write, int space) {
  static_cast<void>(ins);
  if ((address & (bytes - 1)) != 0) return fault(frame, Status::misaligned_address, address);
  auto where = static_cast<AddressSpace>(space);
  if (where == AddressSpace::generic) {
    where = AddressSpace::global;
    constexpr std::pair<std::uint64_t, AddressSpace> kWindows[] = {{kSharedWindow, AddressSpace::shared},
                                                                   {kLocalWindow, AddressSpace::local},
                                                                   {kParamWindow, AddressSpace::param}};
    for (const auto& [window, of] : kWindows) {
      if ((address & kWindowMask) == window) {
        where = of;
        address -= window;
        break;
      }
    }
  }
  const auto within = [&](std::uint64_t size) { return size >= bytes && address <= size - bytes; };
  switch (where) {
    case AddressSpace::shared:
      if (!within(frame.shared_bytes)) return fault(frame, Status::illegal_address, kSharedWindow + address);
      return frame.shared + frame.shared_base[lane] + address;
    case AddressSpace::local:
      if (!within(frame.local_bytes)) return fault(frame, Status::illegal_address, kLocalWindow + address);
      return frame.local + std::uint64_t{lane} * frame.local_bytes + address;
    case AddressSpace::param:
      if (!within(frame.param_bytes) || write) return fault(frame, Status::illegal_address, kParamWindow + address);
      return const_cast<std::byte*>(frame.params) + address;
    default:
      break;
  }
  RangeSlot slot;
  if (!find_range(frame, address, bytes, write, slot)) return nullptr;
  return reinterpret_cast<std::byte*>(address);
}

}  // namespace tensor_fusion::sim::ptx
