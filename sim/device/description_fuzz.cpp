// Machine files and lists of any content end in a description or a message.
#include <cstddef>
#include <cstdint>
#include <string>

#include "sim/device/description.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const auto& d : {tensor_fusion::sim::device::parse_yaml_description(text),
                        tensor_fusion::sim::device::parse_list_description(text)}) {
    if (!d && d.error().message.empty()) __builtin_trap();
    if (d && d->devices.empty()) __builtin_trap();
  }
  return 0;
}
