#include "node/hypervisor/overhead_doubt.h"

#include <gtest/gtest.h>

#include "node/hypervisor/test_slice.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kMi = 1ull << 20;

TEST(OverheadDoubt, believes_several_processes_that_are_shown_with_less) {
  OverheadDoubt doubt;
  for (const pid_t pid : {1, 2}) {
    EXPECT_EQ(doubt.saw({pid, 9}, 300 * kMi, 900 * kMi), 0u);
    EXPECT_EQ(doubt.saw({pid, 9}, 300 * kMi, 900 * kMi), 0u);
    EXPECT_EQ(doubt.saw({pid, 9}, 300 * kMi, 900 * kMi), 0u) << "the same one however often";
  }
  EXPECT_EQ(doubt.saw({3, 9}, 310 * kMi, 900 * kMi), 0u) << "once, while its context is made";
  EXPECT_EQ(doubt.saw({3, 9}, 320 * kMi, 900 * kMi), 0u);
  EXPECT_EQ(doubt.saw({3, 9}, 320 * kMi, 900 * kMi), 320 * kMi) << "the most of them";
}

TEST(OverheadDoubt, begins_anew_with_one_that_is_shown_with_as_much) {
  OverheadDoubt doubt;
  for (const pid_t pid : {1, 2, 4, 5}) {
    for (int reading = 0; reading < 2; ++reading) EXPECT_EQ(doubt.saw({pid, 9}, 300 * kMi, 900 * kMi), 0u);
    if (pid == 2) {
      EXPECT_EQ(doubt.saw({3, 9}, 900 * kMi, 900 * kMi), 0u);
    }
  }
}

TEST(OverheadDoubt, keeps_no_more_than_so_many) {
  OverheadDoubt doubt;
  for (pid_t pid = 1; pid < 10'000; ++pid) EXPECT_EQ(doubt.saw({pid, 9}, kMi, 900 * kMi), 0u);
}

TEST(Hypervisor, takes_a_context_for_cheaper_when_several_in_a_row_are) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  const auto& overhead = slice.granted().devices[0].context_overhead_bytes;
  const auto shown = [&](const std::vector<const TestProcess*>& processes, std::uint64_t bytes) {
    std::string lines;
    for (const TestProcess* process : processes)
      lines += "process " + std::to_string(process->pid()) + " GPU-0000 " + std::to_string(bytes) + " 0\n";
    daemon.world(lines);
  };
  const TestProcess dear(slice.reply.slice_directory, 0);
  ASSERT_TRUE(slice.start(dear.pid()));
  shown({&dear}, 900 * kMi);
  ASSERT_TRUE(eventually([&] { return overhead.load() == 900 * kMi; }));
  const TestProcess one(slice.reply.slice_directory, 900 * kMi), two(slice.reply.slice_directory, 900 * kMi),
      three(slice.reply.slice_directory, 900 * kMi);
  shown({&one, &two, &three}, 300 * kMi);
  EXPECT_TRUE(eventually([&] { return overhead.load() == 300 * kMi; }));
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
