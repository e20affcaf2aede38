#include "sim/device/account.h"

#include <algorithm>

#include "sim/device/clock.h"
#include "sim/device/transaction.h"

namespace tensor_fusion::sim::device {
namespace {

// Samples in a ring that are newer than a time of day, oldest first.
template <typename Out, typename Make>
std::vector<Out> newer(const RawSample* ring, std::uint64_t written, std::uint64_t size, std::uint64_t oldest_end_ns,
                       std::uint64_t offset_ns, std::uint64_t newer_than_us, Make make) {
  std::vector<Out> list;
  for (std::uint64_t n = written - std::min(written, size); n < written; ++n) {
    const RawSample& sample = ring[n % size];
    const std::uint64_t us = (sample.end_ns + offset_ns) / 1000;
    if (us > newer_than_us && sample.end_ns >= oldest_end_ns) list.push_back(make(sample, us));
  }
  return list;
}

[[nodiscard]] std::uint64_t oldest(const EngineCore& core) {
  return core.clock_ns - std::min(core.clock_ns, 100 * kSampleWindowNs);
}

}  // namespace

EngineAccount account(Machine& machine, EngineId id) {
  machine.advance(id);
  State& state = machine.state();
  Transaction look(state, id);
  EngineRecord& engine = look.engine();
  const EngineCore& core = look.core();
  EngineAccount account;
  account.clock_ns = core.clock_ns;
  account.created_ns = engine.created_ns;
  account.busy_ns = core.busy_ns;
  account.switch_ns = core.switch_ns;
  account.idle_ns = core.idle_ns;
  account.switches = core.switches;
  const auto line_of = [&](std::uint32_t pid, std::uint64_t ticks) -> ProcessAccount& {
    for (ProcessAccount& line : account.processes) {
      if (line.pid == pid && line.start_ticks == ticks) return line;
    }
    return account.processes.emplace_back(ProcessAccount{pid, ticks, false, 0, 0, 0});
  };
  const auto count = [&](std::uint32_t pid, std::uint64_t ticks, std::uint64_t service, std::uint64_t copy,
                         std::uint64_t kernels) {
    ProcessAccount& line = line_of(pid, ticks);
    line.service_ns += service;
    line.copy_ns += copy;
    line.kernels += kernels;
  };
  for (const auto& member : engine.members) {
    const std::uint32_t entry = member.load(std::memory_order_acquire);
    if (entry == 0) continue;
    const ContextRecord& context = state.contexts[entry - 1];
    const ContextCore& c = look.committed(context);
    const std::uint32_t pid = context.pid.load(std::memory_order_relaxed);
    account.contexts.push_back(
        {make_context_id(entry - 1, context.generation.load()), pid, c.service_ns, c.copy_ns, c.kernels});
    count(pid, context.start_ticks, c.service_ns, c.copy_ns, c.kernels);
    line_of(pid, context.start_ticks).alive = true;
  }
  const std::uint64_t retired = engine.retired_count.load(std::memory_order_acquire);
  for (std::uint64_t n = retired - std::min<std::uint64_t>(retired, kMaxRetired); n < retired; ++n) {
    const RetiredContext& gone = engine.retired[n % kMaxRetired];
    const bool still_there = std::any_of(account.contexts.begin(), account.contexts.end(),
                                         [&](const ContextAccount& c) { return c.context == gone.id; });
    if (!still_there) count(gone.pid, gone.start_ticks, gone.service_ns, gone.copy_ns, gone.kernels);
  }
  return account;
}

std::vector<UtilisationSample> utilisation(Machine& machine, EngineId id, std::uint64_t newer_than_us) {
  machine.advance(id);
  State& state = machine.state();
  Transaction look(state, id);
  return newer<UtilisationSample>(
      look.engine().device_ring, look.core().device_samples, kDeviceSamples, oldest(look.core()),
      state.realtime_offset_ns, newer_than_us,
      [](const RawSample& s, std::uint64_t us) { return UtilisationSample{us, s.compute, s.memory}; });
}

std::vector<ProcessSample> process_utilisation(Machine& machine, EngineId id, std::uint64_t newer_than_us) {
  machine.advance(id);
  State& state = machine.state();
  Transaction look(state, id);
  return newer<ProcessSample>(
      look.engine().process_ring, look.core().process_samples, kProcessSamples, oldest(look.core()),
      state.realtime_offset_ns, newer_than_us,
      [](const RawSample& s, std::uint64_t us) { return ProcessSample{us, s.pid, s.compute, s.memory}; });
}

}  // namespace tensor_fusion::sim::device
