#pragma once
// What one process keeps beside the shared file: working memory of the clock, one per engine and used under its lock.
#include <array>
#include <memory>

#include "sim/device/state.h"

namespace tensor_fusion::sim::device {

struct EngineScratch {
  CoreScratch core;
  std::array<MemberView, kMaxMembers> members;
};

struct Machine::Local {
  [[nodiscard]] EngineScratch& scratch(EngineId engine) {
    auto& slot = scratch_[engine];
    if (!slot) slot = std::make_unique<EngineScratch>();
    return *slot;
  }
  [[nodiscard]] static Rules rules(const State& state, EngineId engine) {
    const Profile& profile = state.devices[engine / kEnginesPerDevice].info.profile;
    Rules rules;
    rules.slice_ns = static_cast<std::uint64_t>(profile.slice_us * 1e3);
    rules.switch_ns = static_cast<std::uint64_t>(profile.switch_us * 1e3);
    rules.stall_ns = static_cast<std::uint64_t>(profile.stall_ms * 1e6);
    return rules;
  }

 private:
  std::array<std::unique_ptr<EngineScratch>, kMaxEngines> scratch_;
};

}  // namespace tensor_fusion::sim::device
