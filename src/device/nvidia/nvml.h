#pragma once
// NVIDIA's management library, opened at run time, so that one binary serves machines with and without a GPU. What an
// older library lacks stays null and is asked for before it is called. Loaded once per process; never closed.
#include <string>

#include "contract/nvml.h"

namespace tensor_fusion::device::nvidia {

namespace nvml = contract::nvml;

struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle_by_index)(unsigned, nvml::Device*) = nullptr;
  int (*uuid)(nvml::Device, char*, unsigned) = nullptr;
  int (*name)(nvml::Device, char*, unsigned) = nullptr;
  int (*minor_number)(nvml::Device, unsigned*) = nullptr;
  int (*vbios)(nvml::Device, char*, unsigned) = nullptr;
  int (*memory)(nvml::Device, nvml::Memory*) = nullptr;
  int (*pci)(nvml::Device, nvml::PciInfo*) = nullptr;
  int (*numa)(nvml::Device, unsigned*) = nullptr;
  int (*pcie_generation)(nvml::Device, unsigned*) = nullptr;
  int (*pcie_width)(nvml::Device, unsigned*) = nullptr;
  int (*pcie_throughput)(nvml::Device, int, unsigned*) = nullptr;
  int (*cores)(nvml::Device, unsigned*) = nullptr;
  int (*capability)(nvml::Device, int*, int*) = nullptr;
  int (*max_clock)(nvml::Device, int, unsigned*) = nullptr;
  int (*utilization)(nvml::Device, nvml::Utilization*) = nullptr;
  int (*temperature)(nvml::Device, int, unsigned*) = nullptr;
  int (*power)(nvml::Device, unsigned*) = nullptr;
  int (*compute_processes)(nvml::Device, unsigned*, nvml::ProcessInfo*) = nullptr;
  int (*mps_processes)(nvml::Device, unsigned*, nvml::ProcessInfo*) = nullptr;
  int (*graphics_processes)(nvml::Device, unsigned*, nvml::ProcessInfo*) = nullptr;
  int (*process_utilization)(nvml::Device, nvml::ProcessUtilization*, unsigned*, unsigned long long) = nullptr;
  int (*common_ancestor)(nvml::Device, nvml::Device, int*) = nullptr;
  int (*mig_mode)(nvml::Device, unsigned*, unsigned*) = nullptr;
  int (*max_mig)(nvml::Device, unsigned*) = nullptr;
  int (*mig_by_index)(nvml::Device, unsigned, nvml::Device*) = nullptr;
  int (*gpu_instance)(nvml::Device, unsigned*) = nullptr;
  int (*compute_instance)(nvml::Device, unsigned*) = nullptr;
  int (*attributes)(nvml::Device, nvml::Attributes*) = nullptr;
  int (*gpu_instance_profile)(nvml::Device, unsigned, nvml::GpuInstanceProfile*) = nullptr;
  int (*create_gpu_instance)(nvml::Device, unsigned, nvml::GpuInstance*) = nullptr;
  int (*gpu_instance_by_id)(nvml::Device, unsigned, nvml::GpuInstance*) = nullptr;
  int (*gpu_instance_info)(nvml::GpuInstance, nvml::GpuInstanceInfo*) = nullptr;
  int (*destroy_gpu_instance)(nvml::GpuInstance) = nullptr;
  int (*compute_instance_profile)(nvml::GpuInstance, unsigned, unsigned, nvml::ComputeInstanceProfile*) = nullptr;
  int (*create_compute_instance)(nvml::GpuInstance, unsigned, nvml::ComputeInstance*) = nullptr;
  int (*compute_instance_by_id)(nvml::GpuInstance, unsigned, nvml::ComputeInstance*) = nullptr;
  int (*compute_instance_info)(nvml::ComputeInstance, nvml::ComputeInstanceInfo*) = nullptr;
  int (*destroy_compute_instance)(nvml::ComputeInstance) = nullptr;
  int (*event_set)(nvml::EventSet*) = nullptr;
  int (*register_events)(nvml::Device, unsigned long long, nvml::EventSet) = nullptr;
  int (*wait_event)(nvml::EventSet, nvml::EventData*, unsigned) = nullptr;
  const char* (*device_directory)() = nullptr;  // only in a library that stands in for NVIDIA's: where its files are

  // Empty when it could be opened and has what every version has; else a sentence.
  std::string load();
};

}  // namespace tensor_fusion::device::nvidia
