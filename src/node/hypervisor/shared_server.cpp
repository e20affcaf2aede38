#include "node/hypervisor/shared_server.h"

#include <unistd.h>

#include <string_view>

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

}  // namespace

bool is_shared_server(const system::ProcessStat& stat) {
  if (executes(stat, kControl)) return is_trusted(stat.pid);
  if (!executes(stat, kServer)) return false;
  if (is_trusted(stat.pid)) return true;
  const auto parent = system::process_stat(stat.parent);
  return parent && is_trusted(parent->pid) && executes(*parent, kControl);
}

}  // namespace tensor_fusion::node::hypervisor
