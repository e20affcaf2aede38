// Initialisation, errors and what is asked of the system rather than of a card.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "sim/nvml/session.h"

namespace tensor_fusion::sim::nvml {
namespace {

[[nodiscard]] Return driver_version(char* out, unsigned length) {
  const auto machine = session();
  if (!machine) return abi::kUninitialized;
  return put_text(machine->driver_version(), out, length);
}

[[nodiscard]] Return cuda_version(int* out) {
  const auto machine = session();
  if (!machine) return abi::kUninitialized;
  if (out == nullptr) return abi::kInvalidArgument;
  *out = static_cast<int>(machine->cuda_version());
  return abi::kSuccess;
}

}  // namespace

extern "C" {

Return nvmlInitWithFlags(unsigned) { return start(); }
Return nvmlInit_v2() { return start(); }
Return nvmlInit() { return start(); }
Return nvmlShutdown() { return stop(); }

const char* nvmlErrorString(int result) {
  switch (result) {
    case abi::kSuccess:
      return "Success";
    case abi::kUninitialized:
      return "Uninitialized";
    case abi::kInvalidArgument:
      return "Invalid Argument";
    case abi::kNotSupported:
      return "Not Supported";
    case abi::kNoPermission:
      return "Insufficient Permissions";
    case abi::kAlreadyInitialized:
      return "Already Initialized";
    case abi::kNotFound:
      return "Not Found";
    case abi::kInsufficientSize:
      return "Insufficient Size";
    case abi::kInsufficientPower:
      return "Insufficient External Power";
    case abi::kDriverNotLoaded:
      return "Driver Not Loaded";
    case abi::kTimeout:
      return "Timeout";
    case abi::kIrqIssue:
      return "Interrupt Request Issue";
    case abi::kLibraryNotFound:
      return "NVML Shared Library Not Found";
    case abi::kFunctionNotFound:
      return "Function Not Found";
    case abi::kCorruptedInforom:
      return "Corrupted infoROM";
    case abi::kGpuIsLost:
      return "GPU is lost";
    case abi::kResetRequired:
      return "GPU requires reset";
    case abi::kOperatingSystem:
      return "GPU access blocked by the operating system";
    case abi::kLibRmVersionMismatch:
      return "Driver/library version mismatch";
    case abi::kInUse:
      return "In use by another client";
    case abi::kMemory:
      return "Insufficient memory";
    case abi::kNoData:
      return "No data";
    case abi::kVgpuEccNotSupported:
      return "Operation not available with ECC on vGPU";
    case abi::kInsufficientResources:
      return "Insufficient resources";
    case abi::kFreqNotSupported:
      return "Requested frequency is not supported";
    case abi::kArgumentVersionMismatch:
      return "Argument version mismatch";
    case abi::kDeprecated:
      return "Deprecated function";
    case abi::kNotReady:
      return "Not ready";
    case abi::kGpuNotFound:
      return "GPU not found";
    case abi::kInvalidState:
      return "Invalid state";
    case abi::kResetTypeNotSupported:
      return "Reset type not supported";
    default:
      return "Unknown Error";
  }
}

Return nvmlSystemGetDriverVersion(char* out, unsigned length) { return driver_version(out, length); }
Return nvmlSystemGetNVMLVersion(char* out, unsigned length) {
  const auto machine = session();
  if (!machine) return abi::kUninitialized;
  return put_text(("13." + std::string(machine->driver_version())).c_str(), out, length);
}
Return nvmlSystemGetCudaDriverVersion(int* out) { return cuda_version(out); }
Return nvmlSystemGetCudaDriverVersion_v2(int* out) { return cuda_version(out); }

Return nvmlSystemGetProcessName(unsigned pid, char* out, unsigned length) {
  if (!session()) return abi::kUninitialized;
  if (out == nullptr || length == 0) return abi::kInvalidArgument;
  char name[4096] = {};
  const int fd = ::open(("/proc/" + std::to_string(pid) + "/cmdline").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return abi::kNotFound;
  const ssize_t n = ::read(fd, name, sizeof(name) - 1);
  ::close(fd);
  if (n <= 0) return abi::kNotFound;
  std::snprintf(out, length, "%s", name);  // the first argument, cut to what fits
  return abi::kSuccess;
}

// Private tables of function pointers: none of ours, and a success with empty slots would crash who asks.
Return nvmlInternalGetExportTable(const void** table, const void*) {
  if (table != nullptr) *table = nullptr;
  return abi::kFunctionNotFound;
}

Return nvmlDeviceGetCount_v2(unsigned* count) {
  if (!session()) return abi::kUninitialized;
  if (count == nullptr) return abi::kInvalidArgument;
  *count = static_cast<unsigned>(enumerated().size());
  return abi::kSuccess;
}
Return nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

Return nvmlUnitGetCount(unsigned* count) {
  if (!session()) return abi::kUninitialized;
  if (count == nullptr) return abi::kInvalidArgument;
  *count = 0;
  return abi::kSuccess;
}
Return nvmlGetExcludedDeviceCount(unsigned* count) { return nvmlUnitGetCount(count); }

}  // extern "C"
}  // namespace tensor_fusion::sim::nvml
