#include "system/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "system/eventually.h"

namespace tensor_fusion::system {
namespace {

TEST(Process, describes_itself) {
  const auto stat = process_stat(::getpid());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->parent, ::getppid());
  EXPECT_GT(stat->start_ticks, 0u);
  EXPECT_TRUE(is_alive(::getpid(), stat->start_ticks));
  EXPECT_FALSE(is_alive(::getpid(), stat->start_ticks + 1)) << "a reused pid is another process";
  EXPECT_EQ(namespace_pids(::getpid()).back(), ::getpid());
  EXPECT_NE(namespace_inode(::getpid(), "mnt"), 0u);
  EXPECT_GT(resident_bytes(::getpid()), 100'000u);
  EXPECT_FALSE(boot_id().empty());
}

TEST(Process, has_its_user_whatever_it_lets_be_seen) {
  const pid_t child = ::fork();
  if (child == 0) {
    [[maybe_unused]] const int not_root = ::seteuid(65534);  // it stays who it is
    ::prctl(PR_SET_DUMPABLE, 0);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_EQ(process_user(child), ::geteuid() == 0 ? 65534 : ::geteuid()) << "the owner of its entry in /proc is root";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(process_user(child));
}

TEST(Process, lives_while_any_of_its_threads_does) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::thread([] {
      for (;;) ::pause();
    }).detach();
    ::syscall(SYS_exit, 0);
  }
  EXPECT_TRUE(eventually([child] {
    const auto stat = process_stat(child);
    return stat && stat->state == 'Z';
  }));
  EXPECT_FALSE(process_stat(child)->dead());
  EXPECT_TRUE(is_alive(child, *start_ticks(child)));
  EXPECT_EQ(namespace_inode(child, "mnt"), namespace_inode(::getpid(), "mnt"));
  EXPECT_NE(living_thread(child), child);
  EXPECT_EQ(living_thread(::getpid()), ::getpid());
  ::kill(child, SIGKILL);
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);
  EXPECT_TRUE(process_stat(child)->dead());
  ::waitpid(child, nullptr, 0);
}

TEST(Process, reads_names_with_parentheses) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NAME, "a) R 1 (b");
    ::pause();
  }
  EXPECT_TRUE(eventually([child] {
    const auto stat = process_stat(child);
    return stat && stat->name == "a) R 1 (b";
  }));
  EXPECT_EQ(process_stat(child)->parent, ::getpid());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(Process, has_another_layout_after_an_exec_and_only_then) {
  int go[2];
  ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char letter = 0;
    if (::read(go[0], &letter, 1) == 1) ::execl("/bin/sleep", "sleep", "1000", nullptr);
    ::_exit(1);
  }
  const auto before = process_stat(child);
  ASSERT_TRUE(before);
  EXPECT_TRUE(before->shows_layout());
  EXPECT_EQ(before->layout, process_stat(::getpid())->layout) << "a fork keeps it";
  EXPECT_EQ(before->layout, process_stat(child)->layout);
  ASSERT_EQ(::write(go[1], "x", 1), 1);
  EXPECT_TRUE(eventually([child] {
    const auto stat = process_stat(child);
    return stat && stat->name == "sleep" && stat->shows_layout();
  }));
  EXPECT_NE(before->layout, process_stat(child)->layout);
  ::kill(child, SIGKILL);
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);
  EXPECT_FALSE(process_stat(child)->shows_layout()) << "a zombie has no memory";
  ::waitpid(child, nullptr, 0);
  for (const int fd : go) ::close(fd);
}

TEST(Process, learns_of_a_death_through_a_pidfd) {
  const pid_t child = ::fork();
  if (child == 0) ::pause();
  const auto pidfd = open_pidfd(child);
  ASSERT_TRUE(pidfd) << pidfd.error().message;
  ASSERT_TRUE(signal_process(pidfd->get(), SIGKILL));
  pollfd item{pidfd->get(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 5000), 1);
  EXPECT_FALSE(is_alive(child, *start_ticks(child))) << "a zombie is dead";
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(open_pidfd(child));
}

TEST(Process, is_named_as_it_names_itself_without_a_look_into_its_memory) {
  char before[16] = {};
  ASSERT_EQ(::prctl(PR_GET_NAME, before), 0);
  ASSERT_EQ(::prctl(PR_SET_NAME, "a\nb \x1b[31m"), 0);
  EXPECT_EQ(process_name(::getpid()), "a b  [31m");
  ::prctl(PR_SET_NAME, before);
  EXPECT_EQ(process_name(0x3ffffff), "");
  EXPECT_FALSE(process_stat(::getpid())->of_kernel);
}

}  // namespace
}  // namespace tensor_fusion::system
