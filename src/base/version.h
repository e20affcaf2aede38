#pragma once
// The version of everything built from this tree; CMakeLists.txt names the same one. It stands in a program once.

namespace tensor_fusion::base {

extern const char* const kVersion;

}  // namespace tensor_fusion::base
