#include "sim/device/memory.h"

#include <gtest/gtest.h>

#include "sim/device/test_machine.h"

namespace tensor_fusion::sim::device {
namespace {

TEST(Memory, never_exceeds_the_capacity_however_many_processes_race) {
  const TestDirectory directory;
  auto machine = directory.attach("tiny");
  ASSERT_TRUE(machine);
  std::vector<pid_t> children;
  for (unsigned i = 0; i < 8; ++i) {
    children.push_back(start_child([&, i] {
      auto m = directory.attach("");
      if (!m) return 1;
      std::uint64_t held = 0;
      std::uint64_t random = 88172645463325252ull + i;
      for (int n = 0; n < 20'000; ++n) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        const std::uint64_t bytes = (random % 300) << 20;
        if (reserve_memory(**m, 0, bytes)) held += bytes;
        if (random % 3 == 0 && held != 0) {
          if (!release_memory(**m, 0, held)) return 2;
          held = 0;
        }
      }
      return held == 0 || release_memory(**m, 0, held) ? 0 : 3;
    }));
  }
  for (const pid_t pid : children) EXPECT_EQ(join_child(pid), 0);
  const MemoryInfo info = memory_info(**machine, 0);
  EXPECT_EQ(info.used_bytes, 0u);
  EXPECT_LE(info.peak_bytes, info.capacity_bytes);
  EXPECT_GT(info.refused, 0u);
}

TEST(Memory, refuses_to_take_back_more_than_was_given) {
  const TestDirectory directory;
  auto machine = directory.attach("tiny");
  ASSERT_TRUE(machine);
  ASSERT_TRUE(reserve_memory(**machine, 0, 4096));
  EXPECT_FALSE(release_memory(**machine, 0, 4097));
  EXPECT_FALSE(reserve_memory(**machine, 0, ~std::uint64_t{0}));
  EXPECT_TRUE(release_memory(**machine, 0, 4096));
  EXPECT_EQ(memory_info(**machine, 0).peak_bytes, 4096u);
}

}  // namespace
}  // namespace tensor_fusion::sim::device
