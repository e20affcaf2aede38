// The one function here that NVIDIA's library does not have: a real card's device files are in /dev, ours are where the
// machine is. A program that hands device files to others asks for it by name and does without where it is missing.
#include <string>

#include "sim/nvml/session.h"

extern "C" __attribute__((visibility("default"))) const char* nvmlTensorFusionDeviceDirectory() {
  static std::string directory;
  if (const auto machine = tensor_fusion::sim::nvml::session()) directory = machine->directory();
  return directory.c_str();
}
