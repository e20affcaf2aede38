#include "node/hypervisor/shared_server.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "node/hypervisor/test_slice.h"

namespace tensor_fusion::node::hypervisor {
namespace {

bool is_believed(pid_t pid) { return is_shared_server(*system::process_stat(pid)); }

void become_somebody_else() {
  if (::setgroups(0, nullptr) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) std::_Exit(99);
}

TEST(SharedServer, is_known_by_the_program_and_not_by_what_it_calls_itself) {
  EXPECT_TRUE(is_believed(Program("nvidia-cuda-mps-server").pid));
  EXPECT_TRUE(is_believed(Program("nvidia-cuda-mps-control").pid));
  EXPECT_FALSE(is_believed(Program("nvidia-cuda-mps-server-2").pid));
  EXPECT_FALSE(is_believed(Child("nvidia-cuda-mps-server").pid));
}

TEST(SharedServer, is_none_that_anybody_runs) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Program server("nvidia-cuda-mps-server", become_somebody_else);
  EXPECT_FALSE(is_believed(server.pid));
  const Program hidden("nvidia-cuda-mps-server", [] {
    become_somebody_else();
    ::prctl(PR_SET_DUMPABLE, 0);
  });
  EXPECT_FALSE(is_believed(hidden.pid));
}

TEST(SharedServer, is_none_with_mounts_of_its_own) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes a mount namespace and keeps its user";
  const Program server("nvidia-cuda-mps-server", [] {
    if (::unshare(CLONE_NEWNS) != 0) std::_Exit(99);
  });
  EXPECT_FALSE(is_believed(server.pid)) << "so may a program of root's that has left its slice's view";
  EXPECT_EQ(system::process_user(server.pid), 0u);
}

TEST(SharedServer, stands_where_the_hypervisor_does) {
  const Child here;
  EXPECT_TRUE(stands_in_own_files(here.pid));
  if (::geteuid() != 0) GTEST_SKIP() << "only root can have another root folder";
  const system::ScratchDirectory scratch;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t elsewhere = ::fork();
  if (elsewhere == 0) {
    if (::chroot(scratch.path("").c_str()) != 0 || ::write(ready[1], "x", 1) != 1) std::_Exit(1);
    for (;;) ::pause();
  }
  char letter = 0;
  EXPECT_EQ(::read(ready[0], &letter, 1), 1);
  EXPECT_FALSE(stands_in_own_files(elsewhere));
  ::kill(elsewhere, SIGKILL);
  ::waitpid(elsewhere, nullptr, 0);
  for (const int fd : ready) ::close(fd);
}

TEST(SharedServer, may_be_another_users_where_the_control_daemon_of_root_has_started_it) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Program elsewhere("nvidia-cuda-mps-server");  // a file of that name
  const std::string file = system::process_program(elsewhere.pid);
  int name[2];
  ASSERT_EQ(::pipe(name), 0);
  const Program control("nvidia-cuda-mps-control", [&] {
    const pid_t server = ::fork();
    if (server != 0) {
      if (::write(name[1], &server, sizeof server) != sizeof server) std::_Exit(1);
      return;
    }
    become_somebody_else();
    ::execl(file.c_str(), "sleep", "1000", nullptr);
    std::_Exit(1);
  });
  pid_t server = 0;
  ASSERT_EQ(::read(name[0], &server, sizeof server), static_cast<ssize_t>(sizeof server));
  EXPECT_TRUE(eventually([&] { return is_believed(server); }));
  EXPECT_EQ(system::process_user(server), 65534u);
  ::kill(server, SIGKILL);
  for (const int fd : name) ::close(fd);
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
