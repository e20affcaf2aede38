#include "node/hypervisor/shared_server.h"

#include <unistd.h>

#include <string>
#include <string_view>

#include "system/file.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::string_view kServer = "nvidia-cuda-mps-server";
constexpr std::string_view kControl = "nvidia-cuda-mps-control";
constexpr std::string_view kCalled = "nvidia-cuda-mps";  // as much of both as the kernel keeps

bool executes(const system::ProcessStat& stat, std::string_view file) {
  const std::string program = system::process_program(stat.pid);
  // A daemon without rights cannot see what root executes; it has no tenant that could be root.
  if (program.empty()) return ::geteuid() != 0 && stat.name == kCalled && system::process_user(stat.pid) == 0;
  return std::string_view(program).substr(program.rfind('/') + 1) == file;
}

bool is_trusted(pid_t pid) {
  const auto user = system::process_user(pid);
  return user && (*user == 0 || *user == ::geteuid());
}

// A daemon without rights cannot see where root's programs stand, and has no tenant that could be root.
bool is_hidden_root(pid_t pid) {
  return ::geteuid() != 0 && system::process_user(pid) == 0 && system::namespace_inode(pid, "mnt") == 0;
}

std::optional<system::FileIdentity> root_of(pid_t pid) {
  return system::identity_of("/proc/" + std::to_string(pid) + "/root" + "/");  // through the link
}

bool stands_with(pid_t pid, pid_t other) {
  const std::uint64_t mounts = system::namespace_inode(pid, "mnt");
  if (mounts == 0 || mounts != system::namespace_inode(other, "mnt")) return false;
  const auto theirs = root_of(pid), root = root_of(other);
  return theirs && root && theirs->inode == root->inode && theirs->device == root->device;
}

}  // namespace

bool stands_in_own_files(pid_t pid) { return stands_with(pid, ::getpid()) || stands_with(pid, 1); }

bool is_shared_server(const system::ProcessStat& stat) {
  if (!is_hidden_root(stat.pid) && !stands_in_own_files(stat.pid)) return false;
  if (executes(stat, kControl)) return is_trusted(stat.pid);
  if (!executes(stat, kServer)) return false;
  if (is_trusted(stat.pid)) return true;
  const auto parent = system::process_stat(stat.parent);
  return parent && is_trusted(parent->pid) && executes(*parent, kControl);
}

}  // namespace tensor_fusion::node::hypervisor
