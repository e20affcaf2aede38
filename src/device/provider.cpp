#include "device/provider.h"

#include <dlfcn.h>

#include <utility>

namespace tensor_fusion::device {
namespace {

template <typename Function>
bool find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, symbol));
  return function != nullptr;
}

}  // namespace

base::Result<Provider> load_provider(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    const char* why = ::dlerror();
    return base::fail(base::ErrorCode::kNoDevice,
                      "cannot load the provider " + path + ": " + (why ? why : "unknown error"));
  }
  Provider provider;
  provider.name = path.substr(path.rfind('/') + 1);
  const char* missing = nullptr;
  const auto require = [&](const char* symbol, auto& function) {
    if (!find(library, symbol, function) && !missing) missing = symbol;
  };
  require("AccelInit", provider.init);
  require("AccelShutdown", provider.shutdown);
  require("AccelGetDeviceCount", provider.device_count);
  require("AccelGetAllDevices", provider.all_devices);
  require("AccelGetAllDevicesTopology", provider.topology);
  require("AccelAssignPartition", provider.assign_partition);
  require("AccelRemovePartition", provider.remove_partition);
  require("AccelSetMemHardLimit", provider.set_memory_hard_limit);
  require("AccelSetComputeUnitHardLimit", provider.set_compute_hard_limit);
  require("AccelSnapshot", provider.snapshot);
  require("AccelResume", provider.resume);
  require("AccelGetProcessInformation", provider.process_information);
  require("AccelGetDeviceMetrics", provider.device_metrics);
  require("AccelGetVendorMountLibs", provider.mount_libraries);
  if (missing)
    return base::fail(base::ErrorCode::kNoDevice, path + " is no accelerator provider: it has no function " + missing);
  if (!find(library, "AccelRegisterLogCallback", provider.register_log))
    find(library, "RegisterLogCallback", provider.register_log);
  AccelGetExtensionFn extension = nullptr;
  if (find(library, "AccelGetExtension", extension)) {
    const AccelExtension* table = extension(ACCEL_EXTENSION_VERSION);
    if (table && table->structSize >= sizeof(AccelExtension)) provider.extension = table;
  }
  return provider;
}

const char* word_of(AccelResult result) {
  switch (result) {
    case ACCEL_SUCCESS:
      return "success";
    case ACCEL_ERROR_INVALID_PARAM:
      return "invalid parameter";
    case ACCEL_ERROR_NOT_FOUND:
      return "not found";
    case ACCEL_ERROR_NOT_SUPPORTED:
      return "not supported";
    case ACCEL_ERROR_RESOURCE_EXHAUSTED:
      return "resource exhausted";
    case ACCEL_ERROR_OPERATION_FAILED:
      return "operation failed";
    case ACCEL_ERROR_INTERNAL:
      return "internal error";
  }
  return "unknown error";
}

}  // namespace tensor_fusion::device
