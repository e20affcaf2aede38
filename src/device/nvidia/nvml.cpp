#include "device/nvidia/nvml.h"

#include <dlfcn.h>

namespace tensor_fusion::device::nvidia {
namespace {

constexpr const char* kLibrary = "libnvidia-ml.so.1";

template <typename Function>
void find(void* library, Function& function, const char* symbol, const char* older = nullptr) {
  function = reinterpret_cast<Function>(::dlsym(library, symbol));
  if (!function && older) function = reinterpret_cast<Function>(::dlsym(library, older));
}

}  // namespace

std::string Nvml::load() {
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = ::dlerror();
    return std::string("NVIDIA's driver library cannot be opened (") + (why ? why : kLibrary) + "); install the driver";
  }
  find(library, init, "nvmlInit_v2");
  find(library, shutdown, "nvmlShutdown");
  find(library, error_string, "nvmlErrorString");
  find(library, driver_version, "nvmlSystemGetDriverVersion");
  find(library, count, "nvmlDeviceGetCount_v2");
  find(library, handle_by_index, "nvmlDeviceGetHandleByIndex_v2");
  find(library, uuid, "nvmlDeviceGetUUID");
  find(library, name, "nvmlDeviceGetName");
  find(library, minor_number, "nvmlDeviceGetMinorNumber");
  find(library, vbios, "nvmlDeviceGetVbiosVersion");
  find(library, memory, "nvmlDeviceGetMemoryInfo");
  find(library, pci, "nvmlDeviceGetPciInfo_v3");
  find(library, numa, "nvmlDeviceGetNumaNodeId");
  find(library, pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
  find(library, pcie_width, "nvmlDeviceGetMaxPcieLinkWidth");
  find(library, pcie_throughput, "nvmlDeviceGetPcieThroughput");
  find(library, cores, "nvmlDeviceGetNumGpuCores");
  find(library, capability, "nvmlDeviceGetCudaComputeCapability");
  find(library, max_clock, "nvmlDeviceGetMaxClockInfo");
  find(library, utilization, "nvmlDeviceGetUtilizationRates");
  find(library, temperature, "nvmlDeviceGetTemperature");
  find(library, power, "nvmlDeviceGetPowerUsage");
  find(library, compute_processes, "nvmlDeviceGetComputeRunningProcesses_v3",
       "nvmlDeviceGetComputeRunningProcesses_v2");
  find(library, mps_processes, "nvmlDeviceGetMPSComputeRunningProcesses_v3",
       "nvmlDeviceGetMPSComputeRunningProcesses_v2");
  find(library, graphics_processes, "nvmlDeviceGetGraphicsRunningProcesses_v3",
       "nvmlDeviceGetGraphicsRunningProcesses_v2");
  find(library, process_utilization, "nvmlDeviceGetProcessUtilization");
  find(library, common_ancestor, "nvmlDeviceGetTopologyCommonAncestor");
  find(library, mig_mode, "nvmlDeviceGetMigMode");
  find(library, max_mig, "nvmlDeviceGetMaxMigDeviceCount");
  find(library, mig_by_index, "nvmlDeviceGetMigDeviceHandleByIndex");
  find(library, gpu_instance, "nvmlDeviceGetGpuInstanceId");
  find(library, compute_instance, "nvmlDeviceGetComputeInstanceId");
  find(library, attributes, "nvmlDeviceGetAttributes_v2");
  find(library, gpu_instance_profile, "nvmlDeviceGetGpuInstanceProfileInfo");
  find(library, create_gpu_instance, "nvmlDeviceCreateGpuInstance");
  find(library, gpu_instance_by_id, "nvmlDeviceGetGpuInstanceById");
  find(library, gpu_instance_info, "nvmlGpuInstanceGetInfo");
  find(library, destroy_gpu_instance, "nvmlGpuInstanceDestroy");
  find(library, compute_instance_profile, "nvmlGpuInstanceGetComputeInstanceProfileInfo");
  find(library, create_compute_instance, "nvmlGpuInstanceCreateComputeInstance");
  find(library, compute_instance_by_id, "nvmlGpuInstanceGetComputeInstanceById");
  find(library, compute_instance_info, "nvmlComputeInstanceGetInfo_v2", "nvmlComputeInstanceGetInfo");
  find(library, destroy_compute_instance, "nvmlComputeInstanceDestroy");
  find(library, event_set, "nvmlEventSetCreate");
  find(library, register_events, "nvmlDeviceRegisterEvents");
  find(library, wait_event, "nvmlEventSetWait_v2");
  find(library, device_directory, "nvmlTensorFusionDeviceDirectory");
  if (init && count && handle_by_index && uuid && name && memory && compute_processes) return "";
  return std::string(kLibrary) + " is too old: it lacks functions that driver 450 has; install a newer driver";
}

}  // namespace tensor_fusion::device::nvidia
