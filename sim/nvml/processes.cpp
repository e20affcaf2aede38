// Who uses a card, and how much of it: process lists and utilisation samples.
#include <algorithm>
#include <map>

#include "sim/device/account.h"
#include "sim/device/memory.h"
#include "sim/nvml/session.h"

namespace tensor_fusion::sim::nvml {
namespace {

[[nodiscard]] std::vector<abi::ProcessInfo> processes_of(Target& t) {
  std::vector<abi::ProcessInfo> list;
  const auto add = [&](std::uint32_t domain, unsigned gpu_instance, unsigned compute_instance) {
    for (const auto& p : device::memory_by_process(t.machine, domain)) {
      if (p.contexts != 0) list.push_back({p.pid, p.used_bytes, gpu_instance, compute_instance});
    }
  };
  if (!device::mig_enabled(t.machine, t.device)) {
    add(t.device * device::kEnginesPerDevice, abi::kNoInstance, abi::kNoInstance);
    return list;
  }
  for (const auto& ci : device::compute_instances(t.machine, t.device)) {
    if (t.is_mig() && ci.engine != t.engine_id()) continue;
    add(t.device * device::kEnginesPerDevice + ci.gpu_instance, ci.gpu_instance, ci.id);
  }
  return list;
}

// The library's way with arrays: too small answers the size needed.
template <typename Out, typename In, typename Convert>
[[nodiscard]] Return give_list(const std::vector<In>& list, unsigned* count, Out* out, Convert convert) {
  if (count == nullptr || (*count != 0 && out == nullptr)) return abi::kInvalidArgument;
  const auto needed = static_cast<unsigned>(list.size());
  if (*count < needed) {
    *count = needed;
    return abi::kInsufficientSize;
  }
  for (unsigned i = 0; i < needed; ++i) out[i] = convert(list[i]);
  *count = needed;
  return abi::kSuccess;
}

[[nodiscard]] Return compute_processes(abi::Device handle, unsigned* count, abi::ProcessInfo* out) {
  return with_device(
      handle, [&](Target& t) { return give_list(processes_of(t), count, out, [](const auto& p) { return p; }); });
}
[[nodiscard]] Return no_processes(abi::Device handle, unsigned* count) {
  return with_device(handle, [&](Target&) -> Return {
    if (count == nullptr) return abi::kInvalidArgument;
    *count = 0;
    return abi::kSuccess;
  });
}

// The newest sample of each process since a time; utilisation is not measured on partitioned cards.
[[nodiscard]] std::vector<device::ProcessSample> newest_samples(Target& t, std::uint64_t newer_than_us) {
  std::map<std::uint32_t, device::ProcessSample> newest;
  for (const auto& sample : device::process_utilisation(t.machine, t.engine_id(), newer_than_us))
    newest[sample.pid] = sample;
  std::vector<device::ProcessSample> list;
  for (const auto& [pid, sample] : newest) list.push_back(sample);
  return list;
}

template <typename Body>
[[nodiscard]] Return with_measured_card(abi::Device handle, Body body) {
  return with_card(handle, [&](Target& t) -> Return {
    return device::mig_enabled(t.machine, t.device) ? abi::kNotSupported : body(t);
  });
}

}  // namespace

extern "C" {

Return nvmlDeviceGetComputeRunningProcesses_v3(abi::Device h, unsigned* count, abi::ProcessInfo* out) {
  return compute_processes(h, count, out);
}
Return nvmlDeviceGetComputeRunningProcesses_v2(abi::Device h, unsigned* count, abi::ProcessInfo* out) {
  return compute_processes(h, count, out);
}
Return nvmlDeviceGetComputeRunningProcesses(abi::Device handle, unsigned* count, abi::ProcessInfoV1* out) {
  return with_device(handle, [&](Target& t) {
    return give_list(processes_of(t), count, out,
                     [](const auto& p) { return abi::ProcessInfoV1{p.pid, p.used_bytes}; });
  });
}
Return nvmlDeviceGetGraphicsRunningProcesses_v3(abi::Device h, unsigned* count, abi::ProcessInfo*) {
  return no_processes(h, count);
}
Return nvmlDeviceGetGraphicsRunningProcesses_v2(abi::Device h, unsigned* count, abi::ProcessInfo*) {
  return no_processes(h, count);
}
Return nvmlDeviceGetGraphicsRunningProcesses(abi::Device h, unsigned* count, abi::ProcessInfoV1*) {
  return no_processes(h, count);
}
Return nvmlDeviceGetMPSComputeRunningProcesses_v3(abi::Device h, unsigned* count, abi::ProcessInfo*) {
  return no_processes(h, count);
}
Return nvmlDeviceGetMPSComputeRunningProcesses_v2(abi::Device h, unsigned* count, abi::ProcessInfo*) {
  return no_processes(h, count);
}
Return nvmlDeviceGetMPSComputeRunningProcesses(abi::Device h, unsigned* count, abi::ProcessInfoV1*) {
  return no_processes(h, count);
}

Return nvmlDeviceGetRunningProcessDetailList(abi::Device handle, abi::ProcessDetailList* out) {
  return with_device(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    if (out->version != abi::version_word<abi::ProcessDetailList>(1)) return abi::kArgumentVersionMismatch;
    if (out->mode > 3) return abi::kInvalidArgument;
    const auto list = out->mode == 0 || out->mode == 3 ? processes_of(t) : std::vector<abi::ProcessInfo>{};
    return give_list(list, &out->count, out->list, [](const auto& p) {
      return abi::ProcessDetail{p.pid, p.used_bytes, p.gpu_instance, p.compute_instance, 0};
    });
  });
}

Return nvmlDeviceGetUtilizationRates(abi::Device handle, abi::Utilization* out) {
  return with_measured_card(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    const auto samples = device::utilisation(t.machine, t.engine_id(), 0);
    *out = samples.empty() ? abi::Utilization{0, 0} : abi::Utilization{samples.back().compute, samples.back().memory};
    return abi::kSuccess;
  });
}

Return nvmlDeviceGetProcessUtilization(abi::Device handle, abi::ProcessUtilization* out, unsigned* count,
                                       unsigned long long newer_than_us) {
  return with_measured_card(handle, [&](Target& t) -> Return {
    if (count == nullptr) return abi::kInvalidArgument;
    const auto list = newest_samples(t, newer_than_us);
    if (list.empty()) {
      *count = 0;
      return abi::kNotFound;
    }
    if (out == nullptr) {
      *count = static_cast<unsigned>(list.size());
      return abi::kInsufficientSize;
    }
    return give_list(list, count, out, [](const auto& s) {
      return abi::ProcessUtilization{s.pid, s.timestamp_us, s.compute, s.memory, 0, 0};
    });
  });
}

Return nvmlDeviceGetProcessesUtilizationInfo(abi::Device handle, abi::ProcessesUtilization* info) {
  return with_measured_card(handle, [&](Target& t) -> Return {
    if (info == nullptr) return abi::kInvalidArgument;
    if (info->version != abi::version_word<abi::ProcessesUtilization>(1)) return abi::kArgumentVersionMismatch;
    const auto list = newest_samples(t, info->last_seen_us);
    if (list.empty()) {
      info->count = 0;
      return abi::kNotFound;
    }
    if (info->list == nullptr) {
      info->count = static_cast<unsigned>(list.size());
      return abi::kInsufficientSize;
    }
    const Return result = give_list(list, &info->count, info->list, [](const auto& s) {
      return abi::ProcessUtilizationInfo{s.timestamp_us, s.pid, s.compute, s.memory, 0, 0, 0, 0};
    });
    if (result == abi::kSuccess) {
      for (const auto& s : list) info->last_seen_us = std::max<std::uint64_t>(info->last_seen_us, s.timestamp_us);
    }
    return result;
  });
}

// type 1: compute, 2: memory; the others are for engines that a simulated card lacks.
Return nvmlDeviceGetSamples(abi::Device handle, int type, unsigned long long newer_than_us, int* value_type,
                            unsigned* count, abi::Sample* out) {
  return with_measured_card(handle, [&](Target& t) -> Return {
    if (value_type == nullptr || count == nullptr) return abi::kInvalidArgument;
    if (type != 1 && type != 2) return abi::kNotSupported;
    const auto samples = device::utilisation(t.machine, t.engine_id(), newer_than_us);
    *value_type = abi::kUnsignedInt;
    if (samples.empty()) return abi::kNotFound;
    if (out == nullptr) {
      *count = static_cast<unsigned>(samples.size());
      return abi::kSuccess;
    }
    const std::size_t n = std::min<std::size_t>(*count, samples.size());
    for (std::size_t i = 0; i < n; ++i) {
      const auto& s = samples[samples.size() - n + i];
      out[i].timestamp_us = s.timestamp_us;
      out[i].value.u64 = type == 1 ? s.compute : s.memory;
    }
    *count = static_cast<unsigned>(n);
    return abi::kSuccess;
  });
}

Return nvmlDeviceGetEncoderUtilization(abi::Device handle, unsigned* percent, unsigned* period_us) {
  return with_measured_card(handle, [&](Target&) -> Return {
    if (percent == nullptr || period_us == nullptr) return abi::kInvalidArgument;
    *percent = 0;
    *period_us = static_cast<unsigned>(device::kSampleWindowNs / 1000);
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetDecoderUtilization(abi::Device h, unsigned* percent, unsigned* period_us) {
  return nvmlDeviceGetEncoderUtilization(h, percent, period_us);
}
Return nvmlDeviceGetJpgUtilization(abi::Device h, unsigned* percent, unsigned* period_us) {
  return nvmlDeviceGetEncoderUtilization(h, percent, period_us);
}
Return nvmlDeviceGetOfaUtilization(abi::Device h, unsigned* percent, unsigned* period_us) {
  return nvmlDeviceGetEncoderUtilization(h, percent, period_us);
}

}  // extern "C"
}  // namespace tensor_fusion::sim::nvml
