#pragma once
// What NVML does not tell of a card: its dense half-precision matrix throughput, from the makers' data sheets, by name.
// Pure.
#include <string_view>

namespace tensor_fusion::device::nvidia {

double tflops_of(std::string_view model);                 // 0: not in the list
unsigned cores_per_multiprocessor(int major, int minor);  // by compute capability

}  // namespace tensor_fusion::device::nvidia
