#pragma once
// The device files of a machine: `nvidiactl`, `nvidia<index>` and one per MIG device. Each holds the identity of what
// it stands for; a process can use a device only if it can open that file for reading and writing and finds it there.
#include <string>
#include <string_view>

namespace tensor_fusion::sim::device {

inline constexpr std::string_view kControlFile = "nvidiactl";
inline constexpr std::string_view kControlText = "tensor-fusion-sim-control";

// Replaces or makes the file; false if the directory does not let us.
bool write_device_file(const std::string& directory, std::string_view name, std::string_view text);
void remove_device_file(const std::string& directory, std::string_view name);
void remove_all_device_files(const std::string& directory);
[[nodiscard]] bool opens_as(const std::string& directory, std::string_view name, std::string_view text);

}  // namespace tensor_fusion::sim::device
