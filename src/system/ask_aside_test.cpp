#include "system/ask_aside.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "system/clock.h"
#include "system/file.h"
#include "system/process.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::system {
namespace {

TEST(AskedAside, gives_all_answers_in_their_order) {
  const auto odd = [](std::size_t i) { return i % 2 == 1; };
  const std::vector<bool> answers = asked_aside(1000, odd, {.each_ms = 10'000, .all_ms = 60'000});
  ASSERT_EQ(answers.size(), 1000u);
  for (std::size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i], odd(i)) << i;
  EXPECT_TRUE(asked_aside(0, odd, {.each_ms = 1, .all_ms = 1}).empty());
}

TEST(AskedAside, passes_over_who_gives_no_answer_or_ends_and_leaves_nobody_waiting) {
  const ScratchDirectory scratch;
  const auto ask = [&](std::size_t i) {
    if (i == 2) std::_Exit(3);
    if (i != 1) return true;
    static_cast<void>(replace_file(scratch.path("who"), std::to_string(::getpid())));
    for (;;) ::pause();
  };
  EXPECT_EQ(asked_aside(5, ask, {.each_ms = 2000, .all_ms = 60'000}),
            (std::vector<bool>{true, false, false, true, true}));
  const auto who = read_file(scratch.path("who"));
  ASSERT_TRUE(who);
  const auto pid = static_cast<pid_t>(std::stol(*who));
  const std::uint64_t end_ns = monotonic_ns() + 20'000'000'000;
  auto stat = process_stat(pid);
  for (; stat && !stat->dead() && monotonic_ns() < end_ns; stat = process_stat(pid)) std::this_thread::yield();
  EXPECT_TRUE(!stat || stat->dead());
}

TEST(AskedAside, asks_for_so_long_at_most) {
  const auto never = [](std::size_t) -> bool {
    for (;;) ::pause();
  };
  EXPECT_EQ(asked_aside(1000, never, {.each_ms = 50, .all_ms = 300}), std::vector<bool>(1000, false));
}

TEST(AskedAside, has_none_of_our_files) {
  const auto has = [](std::size_t fd) { return ::fcntl(static_cast<int>(fd), F_GETFD) >= 0 && fd > 3; };
  const int ours = ::dup(0);
  ASSERT_GE(ours, 0);
  const int far = ::fcntl(ours, F_DUPFD, 40);
  EXPECT_EQ(asked_aside(64, has, {.each_ms = 10'000, .all_ms = 60'000}), std::vector<bool>(64, false));
  ::close(far);
  ::close(ours);
}

}  // namespace
}  // namespace tensor_fusion::system
