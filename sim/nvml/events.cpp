// Event sets: Xids of the cards that were registered, from the moment of registering on.
#include <algorithm>
#include <memory>
#include <mutex>
#include <set>

#include "sim/device/health.h"
#include "sim/nvml/session.h"

namespace tensor_fusion::contract::nvml {

struct EventSetHandle {
  std::mutex mutex;
  std::vector<std::uint64_t> seen;   // per card: number of the last event delivered or older than the registering
  std::vector<std::uint64_t> types;  // per card: registered types, 0 = none
};

}  // namespace tensor_fusion::contract::nvml

namespace tensor_fusion::sim::nvml {
namespace {

constexpr std::uint64_t kSupported = abi::kEventXidCritical | abi::kEventSingleBitEcc | abi::kEventDoubleBitEcc;
constexpr std::uint32_t kNapMs = 100;  // how soon a lost card is noticed

std::mutex registry_mutex;
std::set<abi::EventSet>& registry() {
  static auto* sets = new std::set<abi::EventSet>;
  return *sets;
}
[[nodiscard]] bool known(abi::EventSet set) {
  const std::lock_guard guard(registry_mutex);
  return registry().contains(set);
}

// The oldest event not yet delivered to the set.
[[nodiscard]] bool take(device::Machine& machine, abi::EventSetHandle& set, abi::EventData* out) {
  const std::lock_guard guard(set.mutex);
  for (unsigned d = 0; d < machine.device_count(); ++d) {
    if ((set.types[d] & abi::kEventXidCritical) == 0) continue;
    const auto events = device::health_events(machine, d, set.seen[d]);
    if (events.empty()) continue;
    const auto& e = events.front();
    set.seen[d] = e.number;
    *out = {device_handle(d), abi::kEventXidCritical, e.xid, static_cast<unsigned>(e.gpu_instance),
            static_cast<unsigned>(e.compute_instance)};
    return true;
  }
  return false;
}

[[nodiscard]] Return wait_for_event(abi::EventSet set, abi::EventData* out, unsigned timeout_ms) {
  const auto machine = session();
  if (!machine) return abi::kUninitialized;
  if (set == nullptr || out == nullptr || !known(set)) return abi::kInvalidArgument;
  const std::uint64_t deadline = device::now_ns() + std::uint64_t{timeout_ms} * 1'000'000;
  for (;;) {
    if (take(*machine, *set, out)) return abi::kSuccess;
    std::vector<std::uint64_t> seen;
    {
      const std::lock_guard guard(set->mutex);
      seen = set->seen;
      for (unsigned d = 0; d < machine->device_count(); ++d) {
        if (set->types[d] == 0)
          seen[d] = ~std::uint64_t{0};  // nobody waits for that card
        else if (machine->lost(d))
          return abi::kGpuIsLost;
      }
    }
    const std::uint64_t now = device::now_ns();
    if (now >= deadline) return abi::kTimeout;
    const auto left_ms = static_cast<std::uint32_t>((deadline - now + 999'999) / 1'000'000);
    device::wait_health_event(*machine, seen, std::min(kNapMs, left_ms));
  }
}

}  // namespace

extern "C" {

Return nvmlEventSetCreate(abi::EventSet* out) {
  const auto machine = session();
  if (!machine) return abi::kUninitialized;
  if (out == nullptr) return abi::kInvalidArgument;
  auto* set = new abi::EventSetHandle;
  set->seen.assign(device::kMaxMachineDevices, 0);
  set->types.assign(device::kMaxMachineDevices, 0);
  const std::lock_guard guard(registry_mutex);
  registry().insert(set);
  *out = set;
  return abi::kSuccess;
}
Return nvmlEventSetFree(abi::EventSet set) {
  if (!session()) return abi::kUninitialized;
  const std::lock_guard guard(registry_mutex);
  if (set == nullptr || registry().erase(set) == 0) return abi::kInvalidArgument;
  delete set;
  return abi::kSuccess;
}
Return nvmlDeviceGetSupportedEventTypes(abi::Device handle, unsigned long long* out) {
  return card_value(handle, out, [](Target&) { return kSupported; });
}
Return nvmlDeviceRegisterEvents(abi::Device handle, unsigned long long types, abi::EventSet set) {
  return with_card(handle, [&](Target& t) -> Return {
    if (set == nullptr || !known(set)) return abi::kInvalidArgument;
    if ((types & ~kSupported) != 0) return abi::kNotSupported;
    const std::lock_guard guard(set->mutex);
    if (set->types[t.device] == 0) set->seen[t.device] = device::last_health_event(t.machine, t.device);
    set->types[t.device] |= types;
    return abi::kSuccess;
  });
}
Return nvmlEventSetWait_v2(abi::EventSet set, abi::EventData* out, unsigned timeout_ms) {
  return wait_for_event(set, out, timeout_ms);
}
Return nvmlEventSetWait(abi::EventSet set, abi::EventDataV1* out, unsigned timeout_ms) {
  abi::EventData wide{};
  const Return result = wait_for_event(set, out == nullptr ? nullptr : &wide, timeout_ms);
  if (result == abi::kSuccess) *out = {wide.device, wide.type, wide.data};
  return result;
}

}  // extern "C"
}  // namespace tensor_fusion::sim::nvml
