#pragma once
// What a hypervisor and its provider process say to each other over a socket pair: a header and as many bytes as it
// names. Both ends are the same build, so structs travel as they are.
#include <cstdint>

#include "contract/accelerator.h"

namespace tensor_fusion::device {

enum class ProviderCall : std::uint32_t {
  kStart = 1,        // load and init; reply: the provider's name, or the reason as text
  kDevices = 2,      // reply: ExtendedDeviceInfo[]
  kTopology = 3,     // reply: ExtendedDeviceTopology
  kProcesses = 4,    // reply: ProcessInformation[]
  kMetrics = 5,      // request: char[64][] of UUIDs; reply: DeviceMetrics[]
  kEvents = 6,       // reply: AccelEvent[]
  kDeviceFiles = 7,  // request: char[64]; reply: MountPath[]
  kLog = 100,        // unasked: level, NUL, message
};
const char* word_of(ProviderCall call);

struct ProviderHeader {
  std::uint32_t call = 0;
  std::int32_t result = 0;  // AccelResult of a reply
  std::uint64_t id = 0;     // of the request
  std::uint64_t size = 0;   // bytes that follow
};

inline constexpr std::uint64_t kMaxProviderMessage = 4u << 20;  // 64 devices of 21 KB, or 1024 processes of 144 bytes

// The provider process's whole life: answers requests on `fd` one after another until it is closed. `library` is a
// path, or empty for the built-in NVIDIA provider.
int serve_provider(const char* library, int fd);

}  // namespace tensor_fusion::device
