#pragma once
// What can go wrong at the doors of the simulated machine, as a value. `message` is one sentence for a person.
#include <cstdint>
#include <string>

namespace tensor_fusion::sim::device {

enum class Errc : std::uint8_t {
  no_device,      // no machine in the directory and none asked for, or none of its device files can be opened
  bad_spec,       // TENSOR_FUSION_SIM cannot be read; the message names key and place
  spec_conflict,  // a live machine of another description owns the directory; the message names both
  system,         // a system call failed
  exhausted,      // a table of the machine is full (contexts, processes, event slots)
  out_of_memory,  // the memory domain has not that many bytes left
  invalid,        // an argument that no caller may pass
  not_found,      // no such device, instance or process
  in_use,         // something still lives on it
  not_supported,  // this profile has no such thing
  no_permission,  // the device file cannot be opened for reading and writing
  lost,           // the device has fallen off the bus
};

struct Error {
  Errc code = Errc::system;
  std::string message;
};

}  // namespace tensor_fusion::sim::device
