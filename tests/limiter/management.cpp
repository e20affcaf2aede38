// A tenant that asks the management library everything a tool could, by every variant of each call. Prints key=value
// lines; `pids` of a list by the name of the call.
//   management FIRST_UUID SECOND_UUID SECOND_BUS   of a card that is granted and one that is not
//   management fields                              the codes of what tools ask of each card
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "contract/nvml.h"
#include "tests/limiter/lookup.h"

namespace nvml = tensor_fusion::contract::nvml;
using namespace tensor_fusion::tests;

namespace {

void* g_management = nullptr;

template <class... Arguments>
int call(const char* name, Arguments... arguments) {
  auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(g_management, name));
  return function != nullptr ? function(arguments...) : static_cast<int>(nvml::kFunctionNotFound);
}

template <class Entry>
void list(const std::string& name, nvml::Device device) {
  unsigned none = 0;
  std::vector<Entry> entries(64);
  auto count = static_cast<unsigned>(entries.size());
  const int asked = call<nvml::Device, unsigned*, Entry*>(name.c_str(), device, &none, nullptr);
  const int result = call<nvml::Device, unsigned*, Entry*>(name.c_str(), device, &count, entries.data());
  std::printf("%s=%d size=%d:%u pids:%s=", name.c_str(), result, asked, none, name.c_str());
  for (unsigned i = 0; i < count && result == nvml::kSuccess; ++i) std::printf("%u,", entries[i].pid);
  std::printf("\n");
}

void handles(const char* first, const char* second, const char* bus) {
  nvml::Device device = nullptr;
  for (const char* suffix : {"", "_v2"}) {
    unsigned count = 0;
    call<unsigned*>((std::string("nvmlDeviceGetCount") + suffix).c_str(), &count);
    std::printf("count%s=%u\n", suffix, count);
    const std::string by_index = std::string("nvmlDeviceGetHandleByIndex") + suffix;
    std::printf("%s:0=%d\n", by_index.c_str(), call<unsigned, nvml::Device*>(by_index.c_str(), 0, &device));
    std::printf("%s:1=%d\n", by_index.c_str(), call<unsigned, nvml::Device*>(by_index.c_str(), 1, &device));
    const std::string by_bus = std::string("nvmlDeviceGetHandleByPciBusId") + suffix;
    std::printf("%s=%d\n", by_bus.c_str(), call<const char*, nvml::Device*>(by_bus.c_str(), bus, &device));
  }
  for (const char* uuid : {first, second}) {
    std::printf("by_uuid:%s=%d\n", uuid == first ? "own" : "foreign",
                call<const char*, nvml::Device*>("nvmlDeviceGetHandleByUUID", uuid, &device));
    nvml::UuidQuery id{};
    id.version = nvml::version_word<nvml::UuidQuery>(1);
    id.type = nvml::kUuidText;
    std::strncpy(id.value.text, uuid, sizeof id.value.text - 1);
    std::printf("by_uuid_v:%s=%d\n", uuid == first ? "own" : "foreign",
                call<const void*, nvml::Device*>("nvmlDeviceGetHandleByUUIDV", &id, &device));
  }
}

void near(nvml::Device device) {
  for (int level = 0; level <= nvml::kTopologySystem; level += 10) {
    unsigned count = 0;
    nvml::Device found[8] = {};
    call<nvml::Device, int, unsigned*, nvml::Device*>("nvmlDeviceGetTopologyNearestGpus", device, level, &count,
                                                      nullptr);
    unsigned room = 8;
    const int result = call<nvml::Device, int, unsigned*, nvml::Device*>("nvmlDeviceGetTopologyNearestGpus", device,
                                                                         level, &room, found);
    std::printf("near:%d=%d,%u,%u\n", level, result, count, room);
  }
  unsigned room = 8;
  nvml::Device found[8] = {};
  const int result = call<unsigned, unsigned*, nvml::Device*>("nvmlSystemGetTopologyGpuSet", 0, &room, found);
  std::printf("of_cpu=%d,%u\n", result, room);
}

void use(nvml::Device device) {
  nvml::Utilization rates{};
  const int result = call<nvml::Device, nvml::Utilization*>("nvmlDeviceGetUtilizationRates", device, &rates);
  std::printf("rates=%d gpu=%u\n", result, rates.gpu);
  nvml::ProcessUtilization samples[64];
  unsigned count = 64;
  const int listed = call<nvml::Device, nvml::ProcessUtilization*, unsigned*, unsigned long long>(
      "nvmlDeviceGetProcessUtilization", device, samples, &count, 0);
  std::printf("samples=%d pids:samples=", listed);
  for (unsigned i = 0; i < count && listed == nvml::kSuccess; ++i) std::printf("%u,", samples[i].pid);
  nvml::ProcessUtilizationInfo infos[64];
  nvml::ProcessesUtilization all{};
  all.version = nvml::version_word<nvml::ProcessesUtilization>(1);
  all.count = 64;
  all.list = infos;
  const int informed =
      call<nvml::Device, nvml::ProcessesUtilization*>("nvmlDeviceGetProcessesUtilizationInfo", device, &all);
  std::printf("\ninfos=%d pids:infos=", informed);
  for (unsigned i = 0; i < all.count && informed == nvml::kSuccess; ++i) std::printf("%u,", infos[i].pid);
  std::printf("\n");
}

void fields(nvml::Device device) {
  // All take a device and a place for the answer, which is large enough for any of them.
  for (const char* name : {"nvmlDeviceGetBrand",
                           "nvmlDeviceGetMinorNumber",
                           "nvmlDeviceGetPowerUsage",
                           "nvmlDeviceGetPowerManagementLimit",
                           "nvmlDeviceGetEnforcedPowerLimit",
                           "nvmlDeviceGetTotalEnergyConsumption",
                           "nvmlDeviceGetPerformanceState",
                           "nvmlDeviceGetPersistenceMode",
                           "nvmlDeviceGetComputeMode",
                           "nvmlDeviceGetDisplayMode",
                           "nvmlDeviceGetFanSpeed",
                           "nvmlDeviceGetBAR1MemoryInfo",
                           "nvmlDeviceGetPciInfo_v3",
                           "nvmlDeviceGetCurrPcieLinkWidth",
                           "nvmlDeviceGetMaxPcieLinkGeneration",
                           "nvmlDeviceGetMultiGpuBoard",
                           "nvmlDeviceGetArchitecture",
                           "nvmlDeviceGetNumGpuCores",
                           "nvmlDeviceGetMemoryBusWidth",
                           "nvmlDeviceGetMaxMigDeviceCount",
                           "nvmlDeviceGetCurrentClocksThrottleReasons",
                           "nvmlDeviceGetVirtualizationMode"}) {
    alignas(64) unsigned char answer[4096] = {};
    std::printf("%s=%d\n", name, call<nvml::Device, void*>(name, device, answer));
  }
  char text[256] = {};
  for (const char* name :
       {"nvmlDeviceGetName", "nvmlDeviceGetSerial", "nvmlDeviceGetUUID", "nvmlDeviceGetVbiosVersion"})
    std::printf("%s=%d %s\n", name, call<nvml::Device, char*, unsigned>(name, device, text, sizeof text), text);
  unsigned number = 0;
  std::printf("temperature=%d\n", call<nvml::Device, int, unsigned*>("nvmlDeviceGetTemperature", device, 0, &number));
  for (int clock = 0; clock < 4; ++clock)
    std::printf("clock%d=%d\n", clock,
                call<nvml::Device, int, unsigned*>("nvmlDeviceGetClockInfo", device, clock, &number));
  std::printf("driver=%d %s\n", call<char*, unsigned>("nvmlSystemGetDriverVersion", text, sizeof text), text);
}

}  // namespace

int main(int count, char** arguments) {
  g_library = dlopen("libcuda.so.1", RTLD_NOW);
  g_management = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (g_library == nullptr || g_management == nullptr || count < 2) return 4;
  start();
  CUdeviceptr pointer = 0;
  find<CUdeviceptr*, std::size_t>("cuMemAlloc_v2")(&pointer, 10 << 20);
  call<>("nvmlInit_v2");
  if (std::strcmp(arguments[1], "fields") == 0) {
    nvml::Device card = nullptr;
    call<unsigned, nvml::Device*>("nvmlDeviceGetHandleByIndex_v2", 0, &card);
    fields(card);
    return 0;
  }
  if (count < 4) return 4;
  std::printf("own=%d\n", getpid());
  handles(arguments[1], arguments[2], arguments[3]);
  nvml::Device device = nullptr;
  call<unsigned, nvml::Device*>("nvmlDeviceGetHandleByIndex_v2", 0, &device);
  unsigned index = 99;
  call<nvml::Device, unsigned*>("nvmlDeviceGetIndex", device, &index);
  nvml::Device part = nullptr;
  std::printf("index=%u mig=%d\n", index,
              call<nvml::Device, unsigned, nvml::Device*>("nvmlDeviceGetMigDeviceHandleByIndex", device, 0, &part));
  near(device);
  for (const char* kind : {"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses",
                           "nvmlDeviceGetMPSComputeRunningProcesses"}) {
    list<nvml::ProcessInfoV1>(kind, device);
    list<nvml::ProcessInfo>(std::string(kind) + "_v2", device);
    list<nvml::ProcessInfo>(std::string(kind) + "_v3", device);
  }
  nvml::ProcessDetail details[64];
  nvml::ProcessDetailList detailed{};
  detailed.version = nvml::version_word<nvml::ProcessDetailList>(1);
  detailed.count = 64;
  detailed.list = details;
  const int told =
      call<nvml::Device, nvml::ProcessDetailList*>("nvmlDeviceGetRunningProcessDetailList", device, &detailed);
  std::printf("details=%d pids:details=", told);
  for (unsigned i = 0; i < detailed.count && told == nvml::kSuccess; ++i) std::printf("%u,", details[i].pid);
  unsigned pids[64];
  unsigned kept = 64;
  const int accounted = call<nvml::Device, unsigned*, unsigned*>("nvmlDeviceGetAccountingPids", device, &kept, pids);
  std::printf("\naccounting=%d pids:accounting=", accounted);
  for (unsigned i = 0; i < kept && accounted == nvml::kSuccess; ++i) std::printf("%u,", pids[i]);
  std::printf("\n");
  use(device);
  nvml::MemoryV2 memory{};
  memory.version = nvml::version_word<nvml::MemoryV2>(2);
  const int seen = call<nvml::Device, nvml::MemoryV2*>("nvmlDeviceGetMemoryInfo_v2", device, &memory);
  nvml::Memory plain{};
  call<nvml::Device, nvml::Memory*>("nvmlDeviceGetMemoryInfo", device, &plain);
  std::printf("memory=%d total=%llu plain_total=%llu sum=%llu\n", seen, static_cast<unsigned long long>(memory.total),
              static_cast<unsigned long long>(plain.total), static_cast<unsigned long long>(memory.free + memory.used));
  nvml::MemoryV2 unversioned{};
  std::printf("unversioned=%d\n",
              call<nvml::Device, nvml::MemoryV2*>("nvmlDeviceGetMemoryInfo_v2", device, &unversioned));
  return 0;
}
