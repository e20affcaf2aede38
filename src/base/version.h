#pragma once
// The version of everything built from this tree; CMakeLists.txt names the same one.

namespace tensor_fusion::base {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace tensor_fusion::base
