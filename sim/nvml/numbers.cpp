// Clocks, power, links, memory: one number each. What a simulated card cannot have is derived from its load.
#include <algorithm>
#include <cstring>
#include <ctime>

#include "sim/device/account.h"
#include "sim/device/memory.h"
#include "sim/nvml/session.h"

namespace tensor_fusion::sim::nvml {
namespace {

// Percent of the last window with a kernel running; of all parts of a partitioned card together.
[[nodiscard]] unsigned load(Target& t) {
  unsigned busy = 0;
  for (const auto& engine : t.machine.engines_of(t.device)) {
    const auto samples = device::utilisation(t.machine, engine.id, 0);
    if (samples.empty()) continue;
    const double part = static_cast<double>(engine.sm_count) / t.profile.sm_count;
    busy += static_cast<unsigned>(samples.back().compute * part + 0.5);
  }
  return std::min(busy, 100u);
}

[[nodiscard]] unsigned power_mw(Target& t) {
  return t.profile.power_idle_mw +
         (t.profile.power_limit_mw - std::min(t.profile.power_limit_mw, t.profile.power_idle_mw)) / 100 * load(t) * 9 /
             10;
}

[[nodiscard]] std::uint64_t energy_mj(Target& t) {
  std::uint64_t mj = 0;
  for (const auto& engine : t.machine.engines_of(t.device)) {
    const auto account = device::account(t.machine, engine.id);
    const double active = (t.profile.power_limit_mw - static_cast<double>(t.profile.power_idle_mw)) * 0.9;
    mj += static_cast<std::uint64_t>(
        (static_cast<double>(account.busy_ns) * active +
         static_cast<double>(account.clock_ns - account.created_ns) * t.profile.power_idle_mw) /
        1e9);
  }
  return mj;
}

[[nodiscard]] unsigned clock_mhz(Target& t, int type, bool now) {
  if (type == abi::kClockMemory) return t.profile.memory_clock_mhz;
  return now && load(t) == 0 ? std::min(t.profile.sm_clock_mhz, 345u) : t.profile.sm_clock_mhz;
}

[[nodiscard]] Return clock_value(abi::Device handle, int type, unsigned* out, bool now) {
  if (type < abi::kClockGraphics || type > abi::kClockVideo)
    return session() ? abi::kInvalidArgument : abi::kUninitialized;
  return card_value(handle, out, [&](Target& t) { return clock_mhz(t, type, now); });
}

[[nodiscard]] int temperature(Target& t) { return 30 + static_cast<int>(load(t)) * 35 / 100; }

struct Memory {
  std::uint64_t total = 0, reserved = 0, used = 0;
};
[[nodiscard]] Memory memory_of(Target& t) {
  Memory m;
  if (t.is_mig()) {
    const auto engine = t.machine.engine(t.engine_id());
    const auto info = device::memory_info(t.machine, engine ? engine->memory_domain : t.engine_id());
    return {info.capacity_bytes, 0, info.used_bytes};
  }
  m.reserved = t.profile.memory_reserved_bytes;
  m.total = t.profile.memory_bytes + m.reserved;
  if (!device::mig_enabled(t.machine, t.device)) {
    m.used = device::memory_info(t.machine, t.device * device::kEnginesPerDevice).used_bytes;
  } else {
    for (const auto& gi : device::gpu_instances(t.machine, t.device))
      m.used += device::memory_info(t.machine, gi.memory_domain).used_bytes;
  }
  return m;
}

[[nodiscard]] Return only(bool yes, auto&& body) { return yes ? body() : abi::kNotSupported; }

}  // namespace

extern "C" {

Return nvmlDeviceGetMemoryInfo(abi::Device handle, abi::Memory* out) {
  return with_device(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    const Memory m = memory_of(t);
    *out = {m.total, m.total - std::min(m.total, m.used + m.reserved), m.used + m.reserved};
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetMemoryInfo_v2(abi::Device handle, abi::MemoryV2* out) {
  return with_device(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    if (out->version != abi::version_word<abi::MemoryV2>(2)) return abi::kArgumentVersionMismatch;
    const Memory m = memory_of(t);
    *out = {out->version, m.total, m.reserved, m.total - std::min(m.total, m.used + m.reserved), m.used};
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetBAR1MemoryInfo(abi::Device handle, abi::Bar1Memory* out) {
  return with_card(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    const std::uint64_t used = 2ull << 20;
    *out = {t.profile.bar1_bytes, t.profile.bar1_bytes - std::min(used, t.profile.bar1_bytes), used};
    return abi::kSuccess;
  });
}

Return nvmlDeviceGetClockInfo(abi::Device h, int type, unsigned* out) { return clock_value(h, type, out, true); }
Return nvmlDeviceGetMaxClockInfo(abi::Device h, int type, unsigned* out) { return clock_value(h, type, out, false); }
Return nvmlDeviceGetApplicationsClock(abi::Device h, int type, unsigned* out) {
  return clock_value(h, type, out, false);
}
Return nvmlDeviceGetDefaultApplicationsClock(abi::Device h, int type, unsigned* out) {
  return clock_value(h, type, out, false);
}
Return nvmlDeviceGetMaxCustomerBoostClock(abi::Device h, int type, unsigned* out) {
  return clock_value(h, type, out, false);
}
Return nvmlDeviceGetClock(abi::Device h, int type, int which, unsigned* out) {
  if (which < 0 || which > 3) return session() ? abi::kInvalidArgument : abi::kUninitialized;
  return clock_value(h, type, out, which == 0);
}
Return nvmlDeviceGetCurrentClocksThrottleReasons(abi::Device h, unsigned long long* out) {
  return card_value(h, out, [](Target& t) { return load(t) == 0 ? 1u : 0u; });  // bit 0: idle
}
Return nvmlDeviceGetCurrentClocksEventReasons(abi::Device h, unsigned long long* out) {
  return nvmlDeviceGetCurrentClocksThrottleReasons(h, out);
}
Return nvmlDeviceGetSupportedClocksThrottleReasons(abi::Device h, unsigned long long* out) {
  return card_value(h, out, [](Target&) { return 0x1ffu; });
}
Return nvmlDeviceGetSupportedClocksEventReasons(abi::Device h, unsigned long long* out) {
  return card_value(h, out, [](Target&) { return 0x1ffu; });
}
Return nvmlDeviceGetPerformanceState(abi::Device h, int* out) {
  return card_value(
      h, out, [](Target& t) { return load(t) == 0 && t.profile.architecture < device::Architecture::hopper ? 8 : 0; });
}
Return nvmlDeviceGetPowerState(abi::Device h, int* out) { return nvmlDeviceGetPerformanceState(h, out); }

Return nvmlDeviceGetTemperature(abi::Device h, int sensor, unsigned* out) {
  if (sensor != 0) return session() ? abi::kInvalidArgument : abi::kUninitialized;
  return card_value(h, out, [](Target& t) { return temperature(t); });
}
Return nvmlDeviceGetTemperatureV(abi::Device h, abi::Temperature* out) {
  return with_card(h, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    if (out->version != abi::version_word<abi::Temperature>(1)) return abi::kArgumentVersionMismatch;
    if (out->sensor != 0) return abi::kInvalidArgument;
    out->celsius = temperature(t);
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetTemperatureThreshold(abi::Device h, int type, unsigned* out) {
  static constexpr unsigned kLimits[] = {92, 89, 95, 87};
  if (type < 0 || type > 7) return session() ? abi::kInvalidArgument : abi::kUninitialized;
  if (type > 3) return with_card(h, [](Target&) { return abi::kNotSupported; });
  return card_value(h, out, [&](Target&) { return kLimits[type]; });
}
Return nvmlDeviceGetFanSpeed(abi::Device h, unsigned*) {
  return with_card(h, [](Target&) { return abi::kNotSupported; });
}
Return nvmlDeviceGetFanSpeed_v2(abi::Device h, unsigned, unsigned*) {
  return with_card(h, [](Target&) { return abi::kNotSupported; });
}
Return nvmlDeviceGetNumFans(abi::Device h, unsigned* out) {
  return card_value(h, out, [](Target&) { return 0; });
}

Return nvmlDeviceGetPowerUsage(abi::Device h, unsigned* out) { return card_value(h, out, power_mw); }
Return nvmlDeviceGetTotalEnergyConsumption(abi::Device h, unsigned long long* out) {
  return card_value(h, out, energy_mj);
}
Return nvmlDeviceGetPowerManagementMode(abi::Device h, int* out) {
  return card_value(h, out, [](Target&) { return 1; });
}
Return nvmlDeviceGetPowerManagementLimit(abi::Device h, unsigned* out) {
  return card_value(h, out, [](Target& t) { return t.profile.power_limit_mw; });
}
Return nvmlDeviceGetPowerManagementDefaultLimit(abi::Device h, unsigned* out) {
  return nvmlDeviceGetPowerManagementLimit(h, out);
}
Return nvmlDeviceGetEnforcedPowerLimit(abi::Device h, unsigned* out) {
  return nvmlDeviceGetPowerManagementLimit(h, out);
}
Return nvmlDeviceGetPowerManagementLimitConstraints(abi::Device h, unsigned* least, unsigned* most) {
  return with_card(h, [&](Target& t) -> Return {
    if (least == nullptr || most == nullptr) return abi::kInvalidArgument;
    *least = t.profile.power_limit_mw * 2 / 7;
    *most = t.profile.power_limit_mw;
    return abi::kSuccess;
  });
}

Return nvmlDeviceGetMaxPcieLinkGeneration(abi::Device h, unsigned* out) {
  return card_value(h, out, [](Target& t) { return t.profile.pcie_generation; });
}
Return nvmlDeviceGetGpuMaxPcieLinkGeneration(abi::Device h, unsigned* out) {
  return nvmlDeviceGetMaxPcieLinkGeneration(h, out);
}
Return nvmlDeviceGetCurrPcieLinkGeneration(abi::Device h, unsigned* out) {
  return nvmlDeviceGetMaxPcieLinkGeneration(h, out);
}
Return nvmlDeviceGetMaxPcieLinkWidth(abi::Device h, unsigned* out) {
  return card_value(h, out, [](Target& t) { return t.profile.pcie_width; });
}
Return nvmlDeviceGetCurrPcieLinkWidth(abi::Device h, unsigned* out) { return nvmlDeviceGetMaxPcieLinkWidth(h, out); }
Return nvmlDeviceGetPcieLinkMaxSpeed(abi::Device h, unsigned* out) {
  static constexpr unsigned kMbps[] = {0, 2500, 5000, 8000, 16000, 32000, 64000, 128000};
  return card_value(h, out, [](Target& t) { return kMbps[std::min(t.profile.pcie_generation, 7u)]; });
}
Return nvmlDeviceGetPcieSpeed(abi::Device h, unsigned* out) { return nvmlDeviceGetPcieLinkMaxSpeed(h, out); }
Return nvmlDeviceGetPcieReplayCounter(abi::Device h, unsigned* out) {
  return card_value(h, out, [](Target&) { return 0; });
}
Return nvmlDeviceGetPcieThroughput(abi::Device h, int counter, unsigned* out) {
  if (counter != 0 && counter != 1) return session() ? abi::kInvalidArgument : abi::kUninitialized;
  return card_value(h, out, [](Target& t) {
    const auto samples = device::utilisation(t.machine, t.engine_id(), 0);
    const double share = samples.empty() ? 0 : samples.back().memory / 100.0;
    return t.profile.pcie_gb_per_s * 1e6 * share;  // KB/s
  });
}

Return nvmlDeviceGetEccMode(abi::Device h, int* current, int* pending) {
  return with_card(h, [&](Target& t) -> Return {
    if (current == nullptr || pending == nullptr) return abi::kInvalidArgument;
    return only(t.profile.ecc != 0, [&] {
      *current = *pending = 1;
      return abi::kSuccess;
    });
  });
}
Return nvmlDeviceGetDefaultEccMode(abi::Device h, int* out) {
  return card_value(h, out, [](Target& t) { return t.profile.ecc; });
}
Return nvmlDeviceGetTotalEccErrors(abi::Device h, int, int, unsigned long long* out) {
  return card_value(h, out, [](Target&) { return 0; });
}
Return nvmlDeviceGetMemoryErrorCounter(abi::Device h, int, int, int, unsigned long long* out) {
  return card_value(h, out, [](Target&) { return 0; });
}
Return nvmlDeviceGetRetiredPages(abi::Device h, int, unsigned* count, unsigned long long*) {
  return card_value(h, count, [](Target&) { return 0; });
}
Return nvmlDeviceGetRetiredPages_v2(abi::Device h, int, unsigned* count, unsigned long long*, unsigned long long*) {
  return card_value(h, count, [](Target&) { return 0; });
}
Return nvmlDeviceGetRetiredPagesPendingStatus(abi::Device h, int* out) {
  return card_value(h, out, [](Target&) { return 0; });
}
Return nvmlDeviceGetRemappedRows(abi::Device h, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                                 unsigned* failed) {
  return with_card(h, [&](Target& t) -> Return {
    if (corrected == nullptr || uncorrected == nullptr || pending == nullptr || failed == nullptr)
      return abi::kInvalidArgument;
    return only(t.profile.architecture >= device::Architecture::ampere, [&] {
      *corrected = *uncorrected = *pending = *failed = 0;
      return abi::kSuccess;
    });
  });
}

Return nvmlDeviceGetNumGpuCores(abi::Device h, unsigned* out) {
  return card_value(h, out, [](Target& t) { return t.profile.sm_count * t.profile.cores_per_sm; });
}
Return nvmlDeviceGetMemoryBusWidth(abi::Device h, unsigned* out) {
  return card_value(h, out, [](Target& t) { return t.profile.memory_bus_bits; });
}
Return nvmlDeviceGetBusType(abi::Device h, unsigned* out) {
  return card_value(h, out, [](Target&) { return 2; });
}  // PCIe
Return nvmlDeviceGetVirtualizationMode(abi::Device h, int* out) {
  return card_value(h, out, [](Target&) { return 0; });
}
Return nvmlDeviceGetComputeMode(abi::Device h, int* out) {
  return card_value(h, out, [](Target&) { return 0; });
}
Return nvmlDeviceGetPersistenceMode(abi::Device h, int* out) {
  return card_value(h, out, [](Target&) { return 1; });
}
Return nvmlDeviceGetDisplayMode(abi::Device h, int* out) {
  return card_value(h, out, [](Target&) { return 0; });
}
Return nvmlDeviceGetDisplayActive(abi::Device h, int* out) {
  return card_value(h, out, [](Target&) { return 0; });
}
Return nvmlDeviceGetAccountingMode(abi::Device h, int* out) {
  return card_value(h, out, [](Target&) { return 0; });
}
Return nvmlDeviceGetAutoBoostedClocksEnabled(abi::Device h, int*, int*) {
  return with_card(h, [](Target&) { return abi::kNotSupported; });
}

Return nvmlDeviceGetFieldValues(abi::Device handle, int count, abi::FieldValue* values) {
  return with_card(handle, [&](Target& t) -> Return {
    if (count <= 0 || values == nullptr) return abi::kInvalidArgument;
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; ++i) {
      abi::FieldValue& v = values[i];
      v.timestamp_us = now.tv_sec * 1'000'000 + now.tv_nsec / 1000;
      v.latency_us = 0;
      v.result = abi::kSuccess;
      v.value_type = abi::kUnsignedInt;
      v.value.u64 = 0;
      const bool linked = t.profile.link_kind != device::LinkKind::none && t.profile.nvlink_links != 0;
      switch (v.field) {
        case abi::kFieldEnergyMj:
          v.value_type = abi::kUnsignedLongLong;
          v.value.u64 = energy_mj(t);
          break;
        case abi::kFieldNvlinkCount:
          v.value.u32 = linked ? t.profile.nvlink_links : 0;
          break;
        case abi::kFieldNvlinkSpeedCommon:
        case abi::kFieldNvlinkSpeed:
          if (!linked || v.scope >= t.profile.nvlink_links)
            v.result = linked ? abi::kInvalidArgument : abi::kNotSupported;
          else
            v.value.u32 = static_cast<unsigned>(t.profile.nvlink_gb_per_s * 1000 / t.profile.nvlink_links);
          break;
        case abi::kFieldNvlinkState:
          if (!linked || v.scope >= t.profile.nvlink_links)
            v.result = linked ? abi::kInvalidArgument : abi::kNotSupported;
          else
            v.value.u32 = 1;
          break;
        case abi::kFieldNvlinkVersion:
          v.value.u32 = linked ? t.profile.nvlink_version : 0;
          break;
        case abi::kFieldPcieReplay:
          break;
        case abi::kFieldC2cCount:
          break;
        case abi::kFieldPowerAverage:
        case abi::kFieldPowerInstant:
          v.value.u32 = power_mw(t);
          break;
        default:
          v.result = abi::kNotSupported;
      }
    }
    return abi::kSuccess;
  });
}

}  // extern "C"
}  // namespace tensor_fusion::sim::nvml
