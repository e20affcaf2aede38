// The arm64 library, cross-built, under an emulator: the same probe and stub driver built for that machine.
#include <gtest/gtest.h>

#include <filesystem>

#include "guest/limiter/testing/slice.h"

namespace tensor_fusion::guest::limiter::testing {
namespace {

const std::string kBuild = TF_BUILD_FOLDER;
const std::string kLibrary = kBuild + "/lib/arm64/libtensor_fusion_limiter.so";
const std::string kFolder = kBuild + "/limiter_test/arm64";
constexpr std::uint64_t kMiB = 1 << 20;

class Arm64 : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Doors, Arm64, ::testing::Values("link", "dlsym", "proc"),
                         [](const auto& one) { return std::string(one.param); });

bool can_run() { return std::filesystem::exists(kLibrary) && std::filesystem::exists("/usr/bin/qemu-aarch64-static"); }
constexpr const char* kNeeds = "needs aarch64-linux-gnu-g++ and qemu-aarch64-static";

Outcome probe(const TestSlice& slice, std::vector<std::string> arguments) {
  Job asked;
  asked.command = {"/usr/bin/qemu-aarch64-static",
                   "-L",
                   "/usr/aarch64-linux-gnu",
                   "-E",
                   "LD_PRELOAD=" + kLibrary,
                   "-E",
                   "LD_LIBRARY_PATH=" + kFolder,
                   "-E",
                   "TENSOR_FUSION_SLICE=" + slice.directory(),
                   kFolder + "/probe"};
  asked.command.insert(asked.command.end(), arguments.begin(), arguments.end());
  asked.environment = {"PATH=/usr/bin"};
  return run(asked);
}

TEST_P(Arm64, holds_the_limit_by_every_door) {
  if (!can_run()) GTEST_SKIP() << kNeeds;
  TestSlice slice({{"GPU-00000000-0000-0000-0000-000000000000", 64 * kMiB, 0, true, 10000}});
  slice.start_hypervisor({}, false);
  const Outcome outcome = probe(slice, {GetParam(), "fill", std::to_string(kMiB)});
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(outcome.number("count"), 64u);
  EXPECT_EQ(outcome.number("refused"), 2u);
  EXPECT_EQ(outcome.number("again"), 0u);
  EXPECT_EQ(slice.claim().devices[0].used_bytes.load(), 0u);
  EXPECT_EQ(slice.claim().processes[0].self_test.load(), 7u);
}

TEST_P(Arm64, launches_pass_the_gate) {
  if (!can_run()) GTEST_SKIP() << kNeeds;
  TestSlice slice({{"GPU-00000000-0000-0000-0000-000000000000", 64 * kMiB, 0, false, 3000}});
  slice.start_hypervisor({}, false);
  const Outcome outcome = probe(slice, {GetParam(), "launch", "10"});
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(outcome.number("launch"), 0u);
  EXPECT_EQ(outcome.number("plain"), 10u);
  // A thread tells of its launches in turns, and not at all of the last ones if it ends without waiting.
  EXPECT_GE(slice.claim().processes[0].devices[0].launches.load(), 1u);
  EXPECT_LE(slice.claim().processes[0].devices[0].launches.load(), 10u);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter::testing
