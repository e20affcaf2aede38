#pragma once
// Cuts a card into MIG devices and puts it together again, through NVML. A template is what the provider ABI passes
// on: the number of a GPU instance profile. The whole instance becomes one device; where on the card it lies the
// driver decides. Refuses with NVML's own codes; leaves nothing half made.
#include <string>

#include "device/nvidia/nvml.h"

namespace tensor_fusion::device::nvidia {

// kInvalidArgument: `profile` is no number, or none that this card has.
int make_partition(const Nvml& library, nvml::Device card, const char* profile, std::string& uuid);
int destroy_partition(const Nvml& library, nvml::Device card, unsigned gpu_instance, unsigned compute_instance);

}  // namespace tensor_fusion::device::nvidia
