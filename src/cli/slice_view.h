#pragma once
// A private view of a few files for one program and all its children: their slice's pages where the limiter looks for
// them, the limiter in /etc/ld.so.preload whatever the environment, GPUs that were not granted unopenable, and the
// hypervisor's own files out of sight. Changes the calling process for good (its mount namespace, and its user
// namespace when it is not root), so it is called just before exec, from a process of one thread.
#include <expected>
#include <string>
#include <vector>

namespace tensor_fusion::cli {

struct SliceView {
  std::string slice_directory;              // holds grant, claim and bell
  std::string state_directory;              // hidden
  std::string limiter_bytes;                // becomes a file of the view: no other copy of it can be changed under it
  std::vector<std::string> hidden_devices;  // device files that cannot be opened any more
};

inline constexpr const char* kViewDirectory = "/run/tensor-fusion";
inline constexpr const char* kPreloadFile = "/etc/ld.so.preload";

// Nothing changed for the caller when it fails, except, for root, namespaces of its own. The error says what the kernel
// did not allow.
std::expected<void, std::string> enter_slice_view(const SliceView& view);

// Whether enter_slice_view would get its namespaces here. Forks a child that tries.
std::expected<void, std::string> can_make_namespaces();

}  // namespace tensor_fusion::cli
