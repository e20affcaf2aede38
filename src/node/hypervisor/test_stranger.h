#pragma once
// A user without rights, for tests that root runs.
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>

#include "node/hypervisor/test_daemon.h"

namespace tensor_fusion::node::hypervisor {

inline constexpr uid_t kNobody = 65534;

// Runs `talk` as a user without rights, connected to the daemon; its answer is the exit code.
inline int as_a_stranger(const TestDaemon& daemon, uid_t user,
                         const std::function<int(const std::string& socket)>& talk) {
  const std::filesystem::path state = daemon.state();
  std::filesystem::permissions(state.parent_path(), std::filesystem::perms::others_exec,
                               std::filesystem::perm_options::add);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0) ::_exit(99);
    ::_exit(talk(state / "hypervisor.sock"));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace tensor_fusion::node::hypervisor
