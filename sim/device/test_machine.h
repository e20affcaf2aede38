#pragma once
// For tests: a machine of its own in a directory of its own, and children that work on it.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "sim/device/context.h"
#include "sim/device/machine.h"

namespace tensor_fusion::sim::device {

inline constexpr std::uint64_t kMs = 1'000'000;

inline Work kernel(std::uint64_t ns) { return {.kind = WorkKind::compute, .duration_ns = ns}; }

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

// A forked child that does something and then stays as it is until it is killed. `body` gets the function that stays
// and returns what it answers.
class StayingChild {
 public:
  using Stay = std::function<int()>;
  explicit StayingChild(const std::function<int(const Stay&)>& body) {
    int line[2];
    EXPECT_EQ(::pipe(line), 0);
    pid_ = start_child([&] {
      return body([&] {
        if (::write(line[1], "x", 1) != 1) return 100;
        ::pause();
        return 101;
      });
    });
    ::close(line[1]);
    char byte = 0;
    stays_ = ::read(line[0], &byte, 1) == 1;  // it has reached that point, or is gone
    ::close(line[0]);
  }
  ~StayingChild() {
    if (pid_ > 0) end();
  }
  StayingChild(const StayingChild&) = delete;
  StayingChild& operator=(const StayingChild&) = delete;
  [[nodiscard]] bool stays() const { return stays_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  void kill() const { ::kill(pid_, SIGKILL); }
  void end() {
    kill();
    join_child(std::exchange(pid_, 0));
  }

 private:
  pid_t pid_ = 0;
  bool stays_ = false;
};

// A machine of one tiny card and a context on it.
class OnTinyCard : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(machine) << machine.error().message;
    context = Context::create(**machine, 0);
    ASSERT_TRUE(context) << context.error().message;
  }
  const TestDirectory directory;
  std::expected<std::unique_ptr<Machine>, Error> machine = directory.attach("tiny");
  std::expected<Context, Error> context = std::unexpected(Error{});
};

}  // namespace tensor_fusion::sim::device
