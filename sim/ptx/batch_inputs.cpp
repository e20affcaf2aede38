// What a batch's registers hold before its first instruction.
#include <algorithm>
#include <cstring>

#include "sim/ptx/batch.h"
#include "sim/ptx/special.h"

namespace tensor_fusion::sim::ptx {

std::uint64_t Batch::launch_value(const RegInfo& info) const {
  const Launch& launch = *run_.launch;
  switch (static_cast<Special>(info.index)) {
    case Special::ntid_x:
      return launch.block[0];
    case Special::ntid_y:
      return launch.block[1];
    case Special::ntid_z:
      return launch.block[2];
    case Special::nctaid_x:
      return launch.grid[0];
    case Special::nctaid_y:
      return launch.grid[1];
    case Special::nctaid_z:
      return launch.grid[2];
    case Special::nwarpid:
      return (run_.block_threads + kWarp - 1) / kWarp;
    case Special::nsmid:
      return run_.options->multiprocessors;
    case Special::dynamic_smem_size:
      return launch.dynamic_shared_bytes;
    case Special::total_smem_size:
      return run_.shared_bytes;
    case Special::cluster_nctaid:
      return 1;
    default:
      return 0;
  }
}

void Batch::fill_constants() {
  const auto& regs = run_.program->regs;
  for (Reg reg = 0; reg < regs.size(); ++reg) {
    const RegInfo& info = regs[reg];
    if (info.kind == RegClass::normal || info.kind == RegClass::input || info.width == 0) continue;
    std::uint64_t value = info.value;
    if (info.kind == RegClass::global) {
      const auto& addresses = run_.launch->image->global_addresses;
      value += info.index < addresses.size() ? addresses[info.index] : 0;
    } else if (info.kind == RegClass::launch) {
      value = launch_value(info);
    } else if (info.kind == RegClass::parameter) {
      const std::span<const std::byte> params = run_.launch->params;
      value = 0;
      if (info.value < params.size()) {
        std::memcpy(&value, params.data() + info.value, std::min<std::size_t>(info.width, params.size() - info.value));
      }
    }
    std::byte* at = regs_ + run_.linked->places[reg].at;
    for (std::uint32_t lane = 0; lane < kWarp; ++lane)
      std::memcpy(at + std::size_t{lane} * info.width, &value, info.width);
  }
}

// What differs by lane but not by block is written once; the rest is written again for each batch.
void Batch::fill_inputs(bool by_block) {
  const Launch& launch = *run_.launch;
  const auto& regs = run_.program->regs;
  const auto block_value = [&](Special which, std::uint64_t block) {
    switch (which) {
      case Special::ctaid_x:
        return static_cast<std::uint32_t>(block % launch.grid[0]);
      case Special::ctaid_y:
        return static_cast<std::uint32_t>(block / launch.grid[0] % launch.grid[1]);
      case Special::ctaid_z:
        return static_cast<std::uint32_t>(block / launch.grid[0] / launch.grid[1]);
      default:
        return static_cast<std::uint32_t>(block % std::max(1U, run_.options->multiprocessors));
    }
  };
  const auto lane_value = [&](Special which, std::uint32_t thread) {
    const std::uint32_t in_warp = thread % kWarp;
    switch (which) {
      case Special::tid_x:
        return thread % launch.block[0];
      case Special::tid_y:
        return thread / launch.block[0] % launch.block[1];
      case Special::tid_z:
        return thread / launch.block[0] / launch.block[1];
      case Special::laneid:
        return in_warp;
      case Special::warpid:
        return thread / kWarp;
      case Special::lanemask_eq:
        return 1U << in_warp;
      case Special::lanemask_lt:
        return (1U << in_warp) - 1;
      case Special::lanemask_le:
        return ((1U << in_warp) - 1) | (1U << in_warp);
      case Special::lanemask_gt:
        return ~(((1U << in_warp) - 1) | (1U << in_warp));
      case Special::lanemask_ge:
        return ~((1U << in_warp) - 1);
      default:
        return 0U;
    }
  };
  for (Reg reg = 0; reg < regs.size(); ++reg) {
    const RegInfo& info = regs[reg];
    if (info.kind != RegClass::input || info.width == 0) continue;
    const auto which = static_cast<Special>(info.index);
    const bool of_block =
        which == Special::ctaid_x || which == Special::ctaid_y || which == Special::ctaid_z || which == Special::smid;
    if (of_block != by_block) continue;
    auto* at = reinterpret_cast<std::uint32_t*>(regs_ + run_.linked->places[reg].at);
    for (std::uint32_t block = 0; block < run_.blocks_per_batch; ++block) {
      std::uint32_t* lanes = at + std::size_t{block} * run_.block_lanes;
      if (of_block) {
        std::fill_n(lanes, run_.block_lanes, block_value(which, std::min(first_block_ + block, run_.blocks - 1)));
      } else {
        for (std::uint32_t i = 0; i < run_.block_lanes; ++i)
          lanes[i] = lane_value(which, std::min(i, run_.block_threads - 1));
      }
    }
  }
}

}  // namespace tensor_fusion::sim::ptx
