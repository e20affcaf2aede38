#include "system/file.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "system/process.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::system {
namespace {

TEST(File, replaces_whole_files_only) {
  const ScratchDirectory scratch;
  ASSERT_TRUE(replace_file(scratch.path("f"), "first"));
  ASSERT_TRUE(replace_file(scratch.path("f"), "second"));
  EXPECT_EQ(read_file(scratch.path("f")).value(), "second");
  EXPECT_EQ(list_directory(scratch.root()).size(), 1u) << "nothing is left beside it";
}

// A reader must see one whole content or the other whatever instant the writer is killed at.
TEST(File, is_never_torn_by_a_killed_writer) {
  const ScratchDirectory scratch;
  const std::string a(100'000, 'a'), b(100'000, 'b');
  ASSERT_TRUE(replace_file(scratch.path("f"), a));
  for (int round = 0; round < 10; ++round) {
    const pid_t child = ::fork();
    if (child == 0)
      for (;;)
        static_cast<void>(replace_file(scratch.path("f"), b)), static_cast<void>(replace_file(scratch.path("f"), a));
    for (int reads = 0; reads < 20 + round; ++reads) {
      const std::string seen = read_file(scratch.path("f")).value();
      ASSERT_TRUE(seen == a || seen == b);
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::string seen = read_file(scratch.path("f")).value();
    ASSERT_TRUE(seen == a || seen == b);
  }
}

TEST(File, says_what_to_do_when_a_directory_cannot_be_made) {
  const ScratchDirectory scratch;
  ASSERT_TRUE(replace_file(scratch.path("f"), "x"));
  const auto made = make_directories(scratch.path("f") + "/below");
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find(scratch.path("f")), std::string::npos);
}

TEST(File, removes_trees_without_following_links) {
  const ScratchDirectory scratch;
  ASSERT_TRUE(make_directories(scratch.path("tree/deep")));
  ASSERT_TRUE(make_directories(scratch.path("outside")));
  ASSERT_TRUE(replace_file(scratch.path("outside/kept"), "x"));
  ASSERT_EQ(::symlink(scratch.path("outside").c_str(), scratch.path("tree/deep/link").c_str()), 0);
  ASSERT_TRUE(remove_tree(scratch.path("tree")));
  EXPECT_FALSE(exists(scratch.path("tree")));
  EXPECT_TRUE(exists(scratch.path("outside/kept")));
  EXPECT_TRUE(remove_tree(scratch.path("tree"))) << "a missing tree is no error";
}

TEST(FileLock, names_the_process_that_holds_it) {
  const ScratchDirectory scratch;
  const auto first = FileLock::acquire(scratch.path("lock"));
  ASSERT_TRUE(first);
  const auto second = FileLock::acquire(scratch.path("lock"));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, base::ErrorCode::kAlreadyRunning);
  EXPECT_NE(second.error().message.find(std::to_string(::getpid())), std::string::npos);
}

TEST(FileLock, shows_to_others_that_it_is_held) {
  ScratchDirectory scratch;
  EXPECT_FALSE(is_locked(scratch.path("lock")));
  {
    const auto lock = FileLock::acquire(scratch.path("lock"));
    EXPECT_TRUE(is_locked(scratch.path("lock")));
  }
  EXPECT_FALSE(is_locked(scratch.path("lock")));
}

bool is_open_here(const std::string& path) {
  std::error_code gone;
  for (const std::string& fd : list_directory("/proc/self/fd")) {
    if (std::filesystem::read_symlink("/proc/self/fd/" + fd, gone) == path) return true;
  }
  return false;
}

// A provider process that has just been forked holds its parent's lock until it lets go of all it was born with.
TEST(FileLock, is_had_soon_after_its_holder_was_killed_although_a_child_still_has_it_open) {
  ScratchDirectory scratch;
  const std::string path = scratch.path("lock");
  int ready[2], end[2];
  ASSERT_TRUE(::pipe(ready) == 0 && ::pipe(end) == 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const auto lock = FileLock::acquire(path);
    if (!lock || ::fork() < 0) ::_exit(1);
    ::close(end[1]);
    char go = 'x';
    if (::write(ready[1], &go, 1) != 1) ::_exit(1);
    ::_exit(::read(end[0], &go, 1) == 1 ? 0 : 1);  // parent and child
  }
  ::close(end[0]);
  char go[2];
  for (int got = 0; got < 2; ++got) ASSERT_EQ(::read(ready[0], go, 1), 1);
  EXPECT_EQ(FileLock::acquire(path).error().code, base::ErrorCode::kAlreadyRunning) << "the holder lives";
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  std::atomic<pid_t> waiter = 0;
  std::atomic<bool> answered = false;
  bool acquired = false;
  std::thread acquires([&] {
    waiter = ::gettid();
    acquired = FileLock::acquire(path).has_value();
    answered = true;
  });
  // It has the file open and sleeps: it found the lock taken and tries again.
  const auto waits = [&] { return is_open_here(path) && process_stat(waiter).value_or(ProcessStat{}).state == 'S'; };
  while (!answered && !waits()) ::sched_yield();
  EXPECT_FALSE(answered) << "the child still has the lock";
  ::close(end[1]);
  acquires.join();
  EXPECT_TRUE(acquired);
  for (const int fd : ready) ::close(fd);
}

}  // namespace
}  // namespace tensor_fusion::system
