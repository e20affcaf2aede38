// Initialisation and what a device says of itself, beside its attributes.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/device/memory.h"

namespace tensor_fusion::sim::cuda {

TF_API(cuInit, (unsigned flags)) { return flags != 0 ? CUDA_ERROR_INVALID_VALUE : Driver::get().init(); }

TF_API(cuDriverGetVersion, (int* out)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = Driver::get().version();
  return CUDA_SUCCESS;
}

TF_API(cuDeviceGetCount, (int* out)) {
  TF_TRY(enter("cuDeviceGetCount"));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = static_cast<int>(Driver::get().devices().size());
  return CUDA_SUCCESS;
}

TF_API(cuDeviceGet, (CUdevice * out, int ordinal)) {
  TF_TRY(enter("cuDeviceGet"));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  *out = device->ordinal;
  return CUDA_SUCCESS;
}

TF_API(cuDeviceGetName, (char* out, int length, CUdevice ordinal)) {
  TF_TRY(enter("cuDeviceGetName"));
  if (out == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  std::snprintf(out, static_cast<std::size_t>(length), "%s", device->engine.name);
  return CUDA_SUCCESS;
}

namespace {

// "GPU-0123…" or "MIG-0123…" as 16 bytes.
CUuuid bytes_of(const char* text) {
  CUuuid uuid{};
  std::size_t nibble = 0;
  for (const char* at = std::strchr(text, '-'); at != nullptr && *at != '\0' && nibble < 32; ++at) {
    const char c = *at;
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) continue;
    auto& byte = uuid.bytes[nibble / 2];
    byte = static_cast<unsigned char>(nibble % 2 == 0 ? digit << 4 : byte | digit);
    ++nibble;
  }
  return uuid;
}

CUresult uuid_of(CUuuid* out, CUdevice ordinal, bool instance) {
  TF_TRY(enter("cuDeviceGetUuid"));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  *out = bytes_of(instance ? device->engine.uuid : device->card.uuid);
  return CUDA_SUCCESS;
}

CUresult total_memory(std::size_t* out, CUdevice ordinal) {
  TF_TRY(enter("cuDeviceTotalMem"));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  *out = device->engine.memory_bytes;
  return CUDA_SUCCESS;
}

bool connected(const Device& a, const Device& b) {
  return &a != &b && !a.is_mig() && !b.is_mig() && a.engine.device != b.engine.device;
}

CUresult atomic_capabilities(unsigned* out, const int* operations, unsigned count) {
  if (out == nullptr || operations == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  std::fill(out, out + count, 0U);
  return CUDA_SUCCESS;
}

}  // namespace

TF_API(cuDeviceGetUuid, (CUuuid * out, CUdevice device)) { return uuid_of(out, device, false); }
TF_API(cuDeviceGetUuid_v2, (CUuuid * out, CUdevice device)) { return uuid_of(out, device, true); }

TF_API(cuDeviceGetLuid, (char*, unsigned*, CUdevice ordinal)) {
  TF_TRY(enter("cuDeviceGetLuid"));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  return CUDA_ERROR_NOT_SUPPORTED;  // of another operating system
}

TF_API(cuDeviceTotalMem_v2, (std::size_t* out, CUdevice device)) { return total_memory(out, device); }
TF_API(cuDeviceTotalMem, (unsigned* out, CUdevice device)) {
  std::size_t bytes = 0;
  TF_TRY(total_memory(out != nullptr ? &bytes : nullptr, device));
  *out = static_cast<unsigned>(std::min<std::size_t>(bytes, UINT32_MAX));
  return CUDA_SUCCESS;
}

TF_API(cuDeviceGetPCIBusId, (char* out, int length, CUdevice ordinal)) {
  TF_TRY(enter("cuDeviceGetPCIBusId"));
  if (out == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  std::snprintf(out, static_cast<std::size_t>(length), "%04X:%02X:%02X.0", device->card.pci_domain,
                device->card.pci_bus, device->card.pci_device);
  return CUDA_SUCCESS;
}

TF_API(cuDeviceGetByPCIBusId, (CUdevice * out, const char* text)) {
  TF_TRY(enter("cuDeviceGetByPCIBusId"));
  if (out == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, slot = 0;
  if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    domain = 0;
    if (std::sscanf(text, "%x:%x", &bus, &slot) != 2) return CUDA_ERROR_INVALID_VALUE;
  }
  for (const auto& device : Driver::get().devices()) {
    if (device->card.pci_domain != domain || device->card.pci_bus != bus || device->card.pci_device != slot) continue;
    *out = device->ordinal;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

TF_API(cuDeviceComputeCapability, (int* major, int* minor, CUdevice ordinal)) {
  TF_TRY(enter("cuDeviceComputeCapability"));
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  *major = static_cast<int>(device->profile().capability_major);
  *minor = static_cast<int>(device->profile().capability_minor);
  return CUDA_SUCCESS;
}

TF_API(cuDeviceGetProperties, (CUdevprop * out, CUdevice ordinal)) {
  TF_TRY(enter("cuDeviceGetProperties"));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  const auto& profile = device->profile();
  *out = {static_cast<int>(profile.max_threads_per_block),
          {1024, 1024, 64},
          {0x7fffffff, 65535, 65535},
          static_cast<int>(profile.shared_bytes_per_block),
          65536,
          static_cast<int>(profile.warp_size),
          0x7fffffff,
          static_cast<int>(profile.registers_per_block),
          static_cast<int>(profile.sm_clock_mhz * 1000),
          512};
  return CUDA_SUCCESS;
}

TF_API(cuDeviceCanAccessPeer, (int* out, CUdevice from, CUdevice to)) {
  TF_TRY(enter("cuDeviceCanAccessPeer"));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device *a = nullptr, *b = nullptr;
  TF_TRY(find_device(from, a));
  TF_TRY(find_device(to, b));
  *out = connected(*a, *b);
  return CUDA_SUCCESS;
}

TF_API(cuDeviceGetP2PAttribute, (int* out, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)) {
  TF_TRY(enter("cuDeviceGetP2PAttribute"));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device *a = nullptr, *b = nullptr;
  TF_TRY(find_device(from, a));
  TF_TRY(find_device(to, b));
  if (a == b) return CUDA_ERROR_INVALID_DEVICE;
  const bool linked = connected(*a, *b) && a->profile().link_kind != device::LinkKind::none;
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      *out = linked ? 0 : 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *out = connected(*a, *b);
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      *out = linked;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

TF_API(cuDeviceGetHostAtomicCapabilities, (unsigned* out, const int* operations, unsigned count, CUdevice ordinal)) {
  TF_TRY(enter("cuDeviceGetHostAtomicCapabilities"));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  return atomic_capabilities(out, operations, count);
}
TF_API(cuDeviceGetP2PAtomicCapabilities,
       (unsigned* out, const int* operations, unsigned count, CUdevice from, CUdevice to)) {
  TF_TRY(enter("cuDeviceGetP2PAtomicCapabilities"));
  Device* device = nullptr;
  TF_TRY(find_device(from, device));
  TF_TRY(find_device(to, device));
  return atomic_capabilities(out, operations, count);
}

TF_API(cuDeviceGetExecAffinitySupport, (int* out, int type, CUdevice ordinal)) {
  TF_TRY(enter("cuDeviceGetExecAffinitySupport"));
  if (out == nullptr || type != 0) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  *out = 0;  // only under an MPS server
  return CUDA_SUCCESS;
}

TF_API(cuDeviceGetTexture1DLinearMaxWidth,
       (std::size_t* out, CUarray_format format, unsigned channels, CUdevice ordinal)) {
  TF_TRY(enter("cuDeviceGetTexture1DLinearMaxWidth"));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  if (out == nullptr || format == 0 || (channels != 1 && channels != 2 && channels != 4))
    return CUDA_ERROR_INVALID_VALUE;
  *out = std::size_t{1} << 28;
  return CUDA_SUCCESS;
}

// Private tables of the vendor's own libraries: we have none.
TF_API(cuGetExportTable, (const void** out, const CUuuid* id)) {
  if (out == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  char text[64];
  int at = 0;
  for (const unsigned char byte : id->bytes)
    at += std::snprintf(text + at, sizeof text - static_cast<std::size_t>(at), "%02x", byte);
  log_line(std::string("cuGetExportTable: unknown table ") + text);
  return CUDA_ERROR_NOT_FOUND;
}

TF_API(cuModuleGetLoadingMode, (int* out)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const char* wish = std::getenv("CUDA_MODULE_LOADING");
  *out = wish != nullptr && std::strcmp(wish, "EAGER") == 0 ? 1 : 2;
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
