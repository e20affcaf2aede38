#pragma once
// One accelerator library as a table of its functions, whoever it is from: a vendor's libaccelerator_*.so, or the
// NVIDIA provider built in here, which speaks NVML opened at run time. Only ever called inside a provider process
// (provider_process.h): such a library may crash, hang or end its process.
#include <string>

#include "base/result.h"
#include "contract/accelerator.h"

namespace tensor_fusion::device {

struct Provider {
  std::string name;
  AccelInitFn init = nullptr;
  AccelShutdownFn shutdown = nullptr;
  AccelGetDeviceCountFn device_count = nullptr;
  AccelGetAllDevicesFn all_devices = nullptr;
  AccelGetAllDevicesTopologyFn topology = nullptr;
  AccelAssignPartitionFn assign_partition = nullptr;
  AccelRemovePartitionFn remove_partition = nullptr;
  AccelSetMemHardLimitFn set_memory_hard_limit = nullptr;
  AccelSetComputeUnitHardLimitFn set_compute_hard_limit = nullptr;
  AccelSnapshotFn snapshot = nullptr;
  AccelResumeFn resume = nullptr;
  AccelGetProcessInformationFn process_information = nullptr;
  AccelGetDeviceMetricsFn device_metrics = nullptr;
  AccelGetVendorMountLibsFn mount_libraries = nullptr;
  const char* (*trouble)() = nullptr;                 // of the built-in one: why init failed, as a sentence
  AccelRegisterLogCallbackFn register_log = nullptr;  // may be absent
  const AccelExtension* extension = nullptr;          // may be absent; at least of the size we know
};

// Every required function must be there; the refusal names the missing one. The library is never unloaded.
base::Result<Provider> load_provider(const std::string& library);
Provider nvidia_provider();

const char* word_of(AccelResult result);

}  // namespace tensor_fusion::device
