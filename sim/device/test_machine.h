#pragma once
// For tests: a machine of its own in a directory of its own, and children that work on it.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "sim/device/machine.h"

namespace tensor_fusion::sim::device {

class TestDirectory {
 public:
  TestDirectory() {
    char path[] = "/dev/shm/tensor-fusion-sim-test-XXXXXX";
    path_ = ::mkdtemp(path);
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::expected<std::unique_ptr<Machine>, Error> attach(const std::string& description,
                                                                      const std::string& faults = "") const {
    return Machine::attach({path_, description, faults});
  }

 private:
  std::string path_;
};

// Runs in a forked child; its return value is the exit code.
inline pid_t start_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  return pid;
}
// Exit code, or 128 + signal.
inline int join_child(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace tensor_fusion::sim::device
