#pragma once
// How a file is named among the mounts of whoever has it bound somewhere: by its device and its path from the root of
// its file system, as /proc/PID/mountinfo writes them. A mount namespace that is made within a slice's view begins with
// all its mounts, and who only covers them has them still; who has another root, be it by chroot, is shown only what
// lies below that. The name cannot be forged: only that file has it. Reads /proc; no state.
#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

namespace tensor_fusion::node::hypervisor {

struct Mounts {
  std::string text;
  bool whole =
      false;  // nothing of it is left out; none at all is what a process shows that has ended or changed its root
};

std::string mount_name(const std::string& file);  // "": the kernel does not say
Mounts mounts_of(pid_t pid);
// Of its first thread only: none when that has ended, whatever others of its threads see.
Mounts mounts_of_first_thread(pid_t pid);
std::string all_of(int mountinfo);  // from its beginning; "" when it is longer than anybody needs
bool has_mount(std::string_view mounts, std::string_view name);
void for_each_mount(std::string_view mounts, const std::function<void(std::string_view name)>& take);

}  // namespace tensor_fusion::node::hypervisor
