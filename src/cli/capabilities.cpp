#include "cli/capabilities.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tensor_fusion::cli {
namespace {

struct Capability {
  unsigned number;
  const char* name;
};
constexpr unsigned kPerfmon = 38, kBpf = 39, kCheckpointRestore = 40;  // newer than some headers
constexpr std::array kGivenUp{
    Capability{CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},              // mounts, other namespaces
    Capability{CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},            // the memory, files and roots of the hypervisor
    Capability{CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"},  // a file by its handle, whatever covers it
    Capability{CAP_MKNOD, "CAP_MKNOD"},                      // a device file for a card that was not granted
    Capability{CAP_SYS_MODULE, "CAP_SYS_MODULE"},            // code in the kernel
    Capability{CAP_SYS_RAWIO, "CAP_SYS_RAWIO"},              // the machine's memory
    Capability{CAP_SYS_BOOT, "CAP_SYS_BOOT"},                // another kernel
    Capability{kPerfmon, "CAP_PERFMON"},
    Capability{kBpf, "CAP_BPF"},
    Capability{kCheckpointRestore, "CAP_CHECKPOINT_RESTORE"},  // what other processes have mapped
};

}  // namespace

std::expected<void, std::string> give_up_capabilities() {
  // What no exec gives back.
  for (const Capability& capability : kGivenUp) {
    if (::prctl(PR_CAPBSET_READ, capability.number, 0, 0, 0) != 1) continue;  // not there, or not known to this kernel
    if (::prctl(PR_CAPBSET_DROP, capability.number, 0, 0, 0) != 0)
      return std::unexpected(fmt::format("give up {}: {}", capability.name, std::strerror(errno)));
  }
  // What is held now; ambient ones go with the inheritable.
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> held{};
  if (::syscall(SYS_capget, &header, held.data()) != 0)
    return std::unexpected(fmt::format("ask for capabilities: {}", std::strerror(errno)));
  for (const Capability& capability : kGivenUp) {
    auto& word = held[capability.number / 32];
    const std::uint32_t keep = ~(1u << (capability.number % 32));
    word.effective &= keep;
    word.permitted &= keep;
    word.inheritable &= keep;
  }
  if (::syscall(SYS_capset, &header, held.data()) != 0)
    return std::unexpected(fmt::format("give up capabilities: {}", std::strerror(errno)));
  return {};
}

}  // namespace tensor_fusion::cli
