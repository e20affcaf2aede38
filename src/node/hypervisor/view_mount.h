#pragma once
// How a file is named among the mounts of whoever has it bound somewhere: by its device and its path from the root of
// its file system, as /proc/PID/mountinfo writes them. A mount namespace that is made within a slice's view begins with
// all its mounts, and who only covers them has them still; who has another root, be it by chroot, is shown only what
// lies below that. The name cannot be forged: only that file has it. Reads /proc; no state.
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tensor_fusion::node::hypervisor {

struct Mounts {
  std::string text;
  // Nothing of it is left out. None at all is what a process shows that has ended or changed its root.
  bool whole = false;
  bool failed = false;  // it could not be read, for want of descriptors or memory
};

std::string mount_name(const std::string& file);  // "": the kernel does not say
// Nothing more is begun after that thread_cpu_ns(): the kernel writes some 15 MB/s, and who has made mounts, how many.
Mounts mounts_of(pid_t pid, std::uint64_t until_ns = UINT64_MAX);
// Of its first thread only: none when that has ended, whatever others of its threads see.
Mounts mounts_of_first_thread(pid_t pid, std::uint64_t until_ns = UINT64_MAX);
// Where a process's root is: its path from the top of the mount namespace, and its mount where that is to be seen.
struct RootFolder {
  std::string path;  // "": not to be seen
  std::uint64_t mount = 0;
  bool operator==(const RootFolder&) const = default;
};
std::optional<RootFolder> root_of(pid_t pid);  // nothing: it has ended
std::string all_of(int mountinfo);             // from its beginning; "" when it is longer than anybody needs
bool has_mount(std::string_view mounts, std::string_view name);
void for_each_mount(std::string_view mounts, const std::function<void(std::string_view name)>& take);

}  // namespace tensor_fusion::node::hypervisor
