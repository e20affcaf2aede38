#include "cli/driver.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace tensor_fusion::cli {
namespace {

TEST(Driver, that_starts_is_no_trouble) {
  EXPECT_TRUE(ask_apart([] { return 0; }, 10'000));
}

TEST(Driver, that_does_not_start_is_quoted) {
  const auto asked = ask_apart(
      [] {
        std::fprintf(stderr, "simulated NVML: there is no card 'x'\nand more\n");
        return 3;
      },
      10'000);
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error(), "there is no card 'x'");
}

TEST(Driver, that_crashes_or_hangs_takes_nobody_with_it) {
  const auto crashed = ask_apart([] { return ::raise(SIGKILL); }, 10'000);
  ASSERT_FALSE(crashed);
  EXPECT_NE(crashed.error().find("crashes"), std::string::npos) << crashed.error();
  const auto hung = ask_apart([] { return ::pause(); }, 50);
  ASSERT_FALSE(hung);
  EXPECT_NE(hung.error().find("does not answer"), std::string::npos) << hung.error();
}

TEST(Driver, that_talks_without_end_is_cut_short) {
  const auto asked = ask_apart(
      [] {
        for (int i = 0; i < 100'000; ++i) std::fputs("talk ", stderr);
        return 1;
      },
      10'000);
  ASSERT_FALSE(asked);
  EXPECT_LE(asked.error().size(), 4096u);
}

}  // namespace
}  // namespace tensor_fusion::cli
