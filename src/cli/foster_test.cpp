#include "cli/foster.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "system/file.h"
#include "system/process.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::cli {
namespace {

class FosterTest : public testing::Test {
 protected:
  std::string program(const std::string& script) const {
    const std::string path = scratch_.path("program");
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  // One whose parent has ended, in a session of its own, and that is deaf to what asks it to end; it says its number.
  std::string with_orphan(const std::string& then) const {
    return program(
        "(setsid sh -c \"trap '' TERM INT HUP PIPE; echo \\$\\$; exec >&-; while :; do sleep 60; done\" &)\n" + then);
  }
  static bool lives(const std::string& pid) {
    const auto stat = system::process_stat(std::atoi(pid.c_str()));
    return stat && !stat->dead();
  }

  system::ScratchDirectory scratch_;
};

TEST_F(FosterTest, hands_on_what_a_program_says_and_its_exit_code_and_removes_its_folder) {
  std::string said;
  const auto ended = foster(program("mkdir $TENSOR_FUSION_SCRATCH/deep && echo $TENSOR_FUSION_SCRATCH && exit 7"),
                            [&](std::string_view text) {
                              said += text;
                              return true;
                            });
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->exit_code, 7);
  EXPECT_EQ(ended->told_to_end, 0);
  ASSERT_TRUE(said.starts_with("/"));
  EXPECT_FALSE(system::exists(said.substr(0, said.find('\n'))));
}

TEST_F(FosterTest, ends_those_that_a_program_has_left_behind) {
  std::string said;
  const auto ended = foster(with_orphan(""), [&](std::string_view text) {
    said += text;
    return true;
  });
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->exit_code, 0);
  ASSERT_GT(std::atoi(said.c_str()), 1);
  EXPECT_FALSE(lives(said));
}

TEST_F(FosterTest, ends_everything_when_nobody_wants_to_hear_more) {
  std::string said;
  const auto ended = foster(with_orphan("while :; do sleep 60; done"), [&](std::string_view text) {
    said += text;
    return false;
  });
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->told_to_end, SIGPIPE);
  EXPECT_EQ(ended->exit_code, 128 + SIGKILL);
  ASSERT_GT(std::atoi(said.c_str()), 1);
  EXPECT_FALSE(lives(said));
}

TEST_F(FosterTest, ends_everything_when_its_own_reader_has_gone) {
  ::signal(SIGPIPE, SIG_DFL);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ::close(ends[0]);
  std::string said;
  const auto ended = foster(with_orphan("while :; do sleep 60; done"), [&](std::string_view text) {
    said += text;
    EXPECT_LT(::write(ends[1], text.data(), text.size()), 0) << "and SIGPIPE comes";
    return true;
  });
  ::close(ends[1]);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->told_to_end, SIGPIPE);
  ASSERT_GT(std::atoi(said.c_str()), 1);
  EXPECT_FALSE(lives(said));
}

TEST_F(FosterTest, leaves_the_process_as_it_was) {
  ASSERT_TRUE(foster("/bin/true", [](std::string_view) { return true; }));
  int subreaper = -1;
  ::prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
  EXPECT_EQ(subreaper, 0);
  sigset_t blocked;
  ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) EXPECT_EQ(sigismember(&blocked, number), 0) << number;
}

}  // namespace
}  // namespace tensor_fusion::cli
