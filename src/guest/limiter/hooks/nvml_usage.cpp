// What the management library shows of a device of the slice: its memory as the slice, and the tenant's processes
// alone, named as the tenant names them.
#include "guest/limiter/core/os.h"
#include "guest/limiter/hooks/nvml.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::size_t kMostProcesses = contract::kMaxListedProcesses;

Device slice_device(int row) {
  Device device{};
  device.index = static_cast<std::uint32_t>(row);
  device.grant = &g_shared.slice.grant->devices[row];
  device.grant_page = g_shared.slice.grant;
  device.claim = &g_shared.slice.claim->devices[row];
  return device;
}

template <class Memory>
void show_slice(NvmlDevice device, Memory& memory) {
  const int row = granted_row(device);
  if (row < 0) return;
  const Ledger::View view = Ledger::view(slice_device(row));
  if (view.unlimited || view.limit >= memory.total) return;
  memory.total = view.limit;
  memory.used = view.used;
  memory.free = view.limit - view.used;
}

// The tenant's own pid for a host pid; 0 when it is none of the tenant's processes.
unsigned tenant_pid(unsigned host_pid) {
  const contract::GrantPage& grant = *g_shared.slice.grant;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const std::uint32_t before = grant.process_sequence.load(std::memory_order_acquire);
    std::uint32_t count = grant.process_count.load(std::memory_order_relaxed);
    if (count > kMostProcesses) count = kMostProcesses;
    unsigned found = 0;
    // Acquired, so that the sequence is read again after them.
    for (std::uint32_t i = 0; i < count && found == 0; ++i)
      if (grant.processes[i].host_pid.load(std::memory_order_acquire) == host_pid)
        found = grant.processes[i].tenant_pid.load(std::memory_order_acquire);
    if ((before & 1) == 0 && grant.process_sequence.load(std::memory_order_relaxed) == before) {
      if (count != 0) return found;
      break;
    }
    os::relax();
  }
  // No list (yet): a process is the tenant's if it says so, and host and tenant name processes alike or it would not
  // match.
  const contract::ClaimPage& claim = *g_shared.slice.claim;
  std::uint32_t high = claim.process_high.load(std::memory_order_relaxed);
  if (high > contract::kMaxProcesses) high = contract::kMaxProcesses;
  for (std::uint32_t slot = 0; slot < high; ++slot)
    if (claim.processes[slot].state.load(std::memory_order_relaxed) == contract::kSlotLive &&
        claim.processes[slot].pid.load(std::memory_order_relaxed) == host_pid)
      return host_pid;
  return 0;
}

// Keeps the tenant's entries and renames them; answers how many.
template <class Entry>
unsigned keep_own(Entry* list, unsigned count) {
  unsigned kept = 0;
  for (unsigned i = 0; i < count; ++i) {
    const unsigned pid = tenant_pid(list[i].pid);
    if (pid == 0) continue;
    list[kept] = list[i];
    list[kept++].pid = pid;
  }
  return kept;
}

template <class Entry>
struct Scratch {
  static constexpr std::size_t kSize = kMostProcesses * 4 * sizeof(Entry);  // utilisation lists several samples of each
  Scratch() : list(static_cast<Entry*>(os::map_memory(kSize))) {}
  ~Scratch() {
    if (list != nullptr) os::unmap(list, kSize);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Entry* list;
  unsigned count = kMostProcesses * 4;
};

// Gives a filtered list by the library's own rules: the count alone, or an error, when the caller's buffer is too
// small.
template <class Entry>
NvmlResult hand_over(const Entry* own, unsigned found, Entry* list, unsigned* count) {
  const unsigned room = list == nullptr ? 0 : *count;
  *count = found;
  if (found > room) return nvml::kInsufficientSize;
  for (unsigned i = 0; i < found; ++i) list[i] = own[i];
  return nvml::kSuccess;
}

template <auto Member, class Entry>
NvmlResult list_processes(NvmlDevice device, unsigned* count, Entry* list) {
  const auto ask = real_nvml<Member>();
  if (!limited() || count == nullptr) return ask(device, count, list);
  Scratch<Entry> scratch;
  if (scratch.list == nullptr) return nvml::kMemory;
  const NvmlResult result = ask(device, &scratch.count, scratch.list);
  if (result != nvml::kSuccess) return result;
  return hand_over(scratch.list, keep_own(scratch.list, scratch.count), list, count);
}

}  // namespace

TF_NVML_ENTRY(nvmlDeviceGetMemoryInfo, (NvmlDevice device, nvml::Memory* memory)) {
  const NvmlResult result = TF_REAL_NVML(nvmlDeviceGetMemoryInfo)(device, memory);
  if (result == nvml::kSuccess && limited()) show_slice(device, *memory);
  return result;
}
// `version` stays the caller's and `reserved` the driver's.
TF_NVML_ENTRY(nvmlDeviceGetMemoryInfo_v2, (NvmlDevice device, nvml::MemoryV2* memory)) {
  const NvmlResult result = TF_REAL_NVML(nvmlDeviceGetMemoryInfo_v2)(device, memory);
  if (result == nvml::kSuccess && limited()) show_slice(device, *memory);
  return result;
}

#define TF_LIST(symbol, Entry)                                                     \
  TF_NVML_ENTRY(symbol, (NvmlDevice device, unsigned* count, nvml::Entry* list)) { \
    return list_processes<&Nvml::symbol>(device, count, list);                     \
  }
TF_LIST(nvmlDeviceGetComputeRunningProcesses, ProcessInfoV1)
TF_LIST(nvmlDeviceGetComputeRunningProcesses_v2, ProcessInfo)
TF_LIST(nvmlDeviceGetComputeRunningProcesses_v3, ProcessInfo)
TF_LIST(nvmlDeviceGetGraphicsRunningProcesses, ProcessInfoV1)
TF_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, ProcessInfo)
TF_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, ProcessInfo)
TF_LIST(nvmlDeviceGetMPSComputeRunningProcesses, ProcessInfoV1)
TF_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, ProcessInfo)
TF_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, ProcessInfo)
#undef TF_LIST

TF_NVML_ENTRY(nvmlDeviceGetRunningProcessDetailList, (NvmlDevice device, nvml::ProcessDetailList* list)) {
  if (!limited() || list == nullptr) return TF_REAL_NVML(nvmlDeviceGetRunningProcessDetailList)(device, list);
  Scratch<nvml::ProcessDetail> scratch;
  if (scratch.list == nullptr) return nvml::kMemory;
  nvml::ProcessDetailList all = *list;
  all.count = scratch.count;
  all.list = scratch.list;
  const NvmlResult result = TF_REAL_NVML(nvmlDeviceGetRunningProcessDetailList)(device, &all);
  if (result != nvml::kSuccess) return result;
  return hand_over(scratch.list, keep_own(scratch.list, all.count), list->list, &list->count);
}

// The processes that the card keeps statistics of, the ended ones included: those of the tenant that it knows of.
TF_NVML_ENTRY(nvmlDeviceGetAccountingPids, (NvmlDevice device, unsigned* count, unsigned* pids)) {
  if (!limited() || count == nullptr) return TF_REAL_NVML(nvmlDeviceGetAccountingPids)(device, count, pids);
  struct Named {
    unsigned pid;
  };
  static_assert(sizeof(Named) == sizeof(unsigned));
  Scratch<Named> scratch;
  if (scratch.list == nullptr) return nvml::kMemory;
  const NvmlResult result =
      TF_REAL_NVML(nvmlDeviceGetAccountingPids)(device, &scratch.count, reinterpret_cast<unsigned*>(scratch.list));
  if (result != nvml::kSuccess) return result;
  return hand_over(scratch.list, keep_own(scratch.list, scratch.count), reinterpret_cast<Named*>(pids), count);
}

TF_NVML_ENTRY(nvmlDeviceGetProcessUtilization,
              (NvmlDevice device, nvml::ProcessUtilization* list, unsigned* count, unsigned long long newer_than)) {
  if (!limited() || count == nullptr)
    return TF_REAL_NVML(nvmlDeviceGetProcessUtilization)(device, list, count, newer_than);
  Scratch<nvml::ProcessUtilization> scratch;
  if (scratch.list == nullptr) return nvml::kMemory;
  const NvmlResult result =
      TF_REAL_NVML(nvmlDeviceGetProcessUtilization)(device, scratch.list, &scratch.count, newer_than);
  if (result != nvml::kSuccess) return result;
  const unsigned found = keep_own(scratch.list, scratch.count);
  return found == 0 ? static_cast<NvmlResult>(nvml::kNotFound) : hand_over(scratch.list, found, list, count);
}

TF_NVML_ENTRY(nvmlDeviceGetProcessesUtilizationInfo, (NvmlDevice device, nvml::ProcessesUtilization* list)) {
  if (!limited() || list == nullptr) return TF_REAL_NVML(nvmlDeviceGetProcessesUtilizationInfo)(device, list);
  Scratch<nvml::ProcessUtilizationInfo> scratch;
  if (scratch.list == nullptr) return nvml::kMemory;
  nvml::ProcessesUtilization all = *list;
  all.count = scratch.count;
  all.list = scratch.list;
  const NvmlResult result = TF_REAL_NVML(nvmlDeviceGetProcessesUtilizationInfo)(device, &all);
  if (result != nvml::kSuccess) return result;
  const unsigned found = keep_own(scratch.list, all.count);
  return found == 0 ? static_cast<NvmlResult>(nvml::kNotFound)
                    : hand_over(scratch.list, found, list->list, &list->count);
}

// The use of a device by the tenant: of each of its processes the newest sample of the last second, together.
TF_NVML_ENTRY(nvmlDeviceGetUtilizationRates, (NvmlDevice device, nvml::Utilization* utilization)) {
  const NvmlResult result = TF_REAL_NVML(nvmlDeviceGetUtilizationRates)(device, utilization);
  if (result != nvml::kSuccess || !limited() || g_nvml.nvmlDeviceGetProcessUtilization == nullptr) return result;
  Scratch<nvml::ProcessUtilization> scratch;
  if (scratch.list == nullptr) return result;
  const std::uint64_t second = os::realtime_us() - 1'000'000;
  const NvmlResult listed = g_nvml.nvmlDeviceGetProcessUtilization(device, scratch.list, &scratch.count, second);
  if (listed != nvml::kSuccess && listed != nvml::kNotFound) return result;  // this device cannot tell: its own rates
  const unsigned found = listed == nvml::kSuccess ? keep_own(scratch.list, scratch.count) : 0;
  unsigned compute = 0;
  unsigned memory = 0;
  for (unsigned i = 0; i < found; ++i) {
    bool newest = true;
    for (unsigned j = 0; j < found && newest; ++j)
      newest = scratch.list[j].pid != scratch.list[i].pid ||
               scratch.list[j].timestamp_us < scratch.list[i].timestamp_us ||
               (scratch.list[j].timestamp_us == scratch.list[i].timestamp_us && j >= i);
    if (!newest) continue;
    compute += scratch.list[i].sm;
    memory += scratch.list[i].memory;
  }
  if (compute < utilization->gpu) utilization->gpu = compute;
  if (memory < utilization->memory) utilization->memory = memory;
  return result;
}

}  // namespace tensor_fusion::guest::limiter
