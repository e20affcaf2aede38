// The limiter as programs meet it: preloaded, against the stub driver, by each front door.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "guest/limiter/core/os.h"
#include "guest/limiter/core/process.h"
#include "guest/limiter/testing/slice.h"

namespace tensor_fusion::guest::limiter::testing {
namespace {

const std::string kBuild = TF_BUILD_FOLDER;
const std::string kLibrary = kBuild + "/lib/libtensor_fusion_limiter.so";
const std::string kProbe = kBuild + "/limiter_test/probe";
constexpr std::uint64_t kMiB = 1 << 20;

GrantedDevice device(int number, std::uint64_t limit, std::uint64_t overhead = 0) {
  return {"GPU-00000000-0000-0000-0000-00000000000" + std::to_string(number), limit, overhead, true, 10000};
}

Job probe(const TestSlice& slice, std::vector<std::string> arguments) {
  Job asked;
  asked.command = {kProbe};
  asked.command.insert(asked.command.end(), arguments.begin(), arguments.end());
  asked.environment = {"LD_PRELOAD=" + kLibrary, "LD_LIBRARY_PATH=" + kBuild + "/limiter_test",
                       "TENSOR_FUSION_SLICE=" + slice.directory(), "TENSOR_FUSION_LIMITER_LOG=1"};
  return asked;
}

// While no process holds a slot a hypervisor sleeps: it must not learn of the first one by looking.
TEST(Arrival, rings_when_a_process_takes_a_slot_and_goes_on_when_no_hypervisor_hears) {
  TestSlice slice({device(0, 64 * kMiB)});
  const int bell = open((slice.directory() + "/bell").c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_EQ(run(probe(slice, {"link", "info"})).status, 0);
  char rung[64] = {};
  EXPECT_GT(read(bell, rung, sizeof rung), 0);
  close(bell);
}

class EveryDoor : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Doors, EveryDoor, ::testing::Values("link", "dlsym", "proc"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(EveryDoor, refuses_what_would_pass_the_limit_and_gives_all_back) {
  TestSlice slice({device(0, 64 * kMiB)});
  slice.start_hypervisor();
  const Outcome outcome = run(probe(slice, {GetParam(), "fill", std::to_string(kMiB)}));
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(outcome.number("count"), 64u);
  EXPECT_EQ(outcome.number("refused"), 2u);  // CUDA_ERROR_OUT_OF_MEMORY, nothing else
  EXPECT_EQ(outcome.number("again"), 0u);
  EXPECT_EQ(outcome.number("real_peak"), 64 * kMiB);
  EXPECT_EQ(outcome.number("real_used"), 0u);
  EXPECT_EQ(slice.claim().devices[0].used_bytes.load(), 0u);
  EXPECT_EQ(slice.claim().devices[0].peak_bytes.load(), 64 * kMiB);
}

TEST_P(EveryDoor, shows_the_slice_as_the_whole_card) {
  TestSlice slice({device(0, 64 * kMiB, 8 * kMiB)});
  slice.start_hypervisor();
  Job asked = probe(slice, {GetParam(), "info"});
  asked.environment.push_back("STUB_OVERHEAD=" + std::to_string(8 * kMiB));
  const Outcome outcome = run(asked);
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(outcome.number("total"), 64 * kMiB);
  EXPECT_EQ(outcome.number("device_total"), 64 * kMiB);
  EXPECT_EQ(outcome.number("free"), 56 * kMiB);
}

TEST_P(EveryDoor, launches_by_the_entry_point_that_was_asked_for) {
  TestSlice slice({device(0, 64 * kMiB)});
  slice.start_hypervisor();
  const Outcome outcome = run(probe(slice, {GetParam(), "launch", "10"}));
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(outcome.number("plain"), 10u);
  EXPECT_EQ(outcome.number("own"), 0u);
}

TEST_P(EveryDoor, holds_although_calls_came_before_the_driver_was_initialised) {
  TestSlice slice({device(0, 64 * kMiB)});
  slice.start_hypervisor();
  const Outcome outcome = run(probe(slice, {GetParam(), "early", std::to_string(kMiB)}));
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(outcome.number("early_alloc"), 201u);  // the stub's own answer
  EXPECT_EQ(outcome.number("count"), 64u);
}

TEST(Doors, all_lead_to_the_limiter_and_nothing_else_does) {
  TestSlice slice({device(0, 64 * kMiB)});
  const Outcome outcome = run(probe(slice, {"dlsym", "homes"}));
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  for (const char* door : {"link", "dlsym", "proc", "own", "lookup", "default"})
    EXPECT_EQ(outcome.value(door), "limiter") << door;
  EXPECT_EQ(outcome.value("curl"), "none");
}

TEST(Doors, pass_the_self_test) {
  TestSlice slice({device(0, 64 * kMiB)});
  slice.start_hypervisor();
  ASSERT_EQ(run(probe(slice, {"proc", "info"})).status, 0);
  EXPECT_EQ(slice.claim().processes[0].self_test.load(), 7u);
  EXPECT_EQ(slice.claim().processes[0].limiter_version.load(), 1u);
}

TEST(Doors, are_the_drivers_own_where_there_is_no_slice) {
  TestSlice slice({device(0, 64 * kMiB)});
  Job asked = probe(slice, {"dlsym", "homes"});
  asked.environment = {"LD_PRELOAD=" + kLibrary, "LD_LIBRARY_PATH=" + kBuild + "/limiter_test"};
  const Outcome outcome = run(asked);
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(outcome.value("dlsym"), "driver");
  EXPECT_EQ(outcome.value("proc"), "driver");
}

TEST(Doors, stay_shut_when_the_slice_is_damaged) {
  TestSlice slice({device(0, 64 * kMiB)});
  slice.grant().magic = 1;
  const Outcome outcome = run(probe(slice, {"dlsym", "fill"}));
  EXPECT_EQ(outcome.number("init"), 802u);  // CUDA_ERROR_SYSTEM_NOT_READY: never unlimited
  EXPECT_EQ(outcome.number("count"), 0u);
}

// Both streams of a program that nobody asked to be told anything.
std::string said_unasked(const TestSlice& slice, const std::string& command = "fill") {
  Job asked = probe(slice, {});
  asked.command = {"/bin/sh", "-c", "exec " + kProbe + " dlsym " + command + " 2>&1"};
  asked.environment.push_back("PROBE_DEEPBIND=1");
  std::erase(asked.environment, "TENSOR_FUSION_LIMITER_LOG=1");
  return run(asked).out;
}

TEST(Doors, say_once_why_they_stay_shut) {
  TestSlice slice({device(0, 64 * kMiB)});
  slice.start_hypervisor();
  EXPECT_EQ(said_unasked(slice).find("tensor-fusion"), std::string::npos);
  slice.grant().closed = 1;
  EXPECT_NE(said_unasked(slice).find("this slice has ended"), std::string::npos);
  slice.grant().closed = 0;
  slice.grant().magic = 1;
  const std::string damaged = said_unasked(slice);
  EXPECT_NE(damaged.find("the grant page is of another version"), std::string::npos) << damaged;
  EXPECT_EQ(damaged.find("tensor-fusion limiter"), damaged.rfind("tensor-fusion limiter")) << damaged;
  const std::string plain = said_unasked(slice, "homes");
  EXPECT_NE(plain.find("link="), std::string::npos) << plain;
  EXPECT_EQ(plain.find("tensor-fusion limiter"), std::string::npos) << "it only loads a library: " << plain;
}

TEST(Doors, stay_shut_for_one_process_more_than_the_slice_keeps_account_of) {
  TestSlice slice({device(0, 64 * kMiB)});
  const ProcessStatus self = process_status(os::process_id());
  for (auto& process : slice.claim().processes) {  // this process lives, so nobody takes what is its
    process.pid = os::process_id();
    process.start_ticks = self.start_ticks;
    process.pid_namespace = os::pid_namespace();
    process.state = contract::kSlotLive;
  }
  const std::string said = said_unasked(slice);
  EXPECT_NE(said.find("init=802"), std::string::npos) << said;
  EXPECT_NE(said.find("as many programs on its GPUs as it can keep account of"), std::string::npos) << said;
}

// It waited for 15 s for its part of what is left, and was told that memory is out.
TEST(Doors, shut_soon_before_a_process_that_the_hypervisor_does_not_count_as_the_slices) {
  TestSlice slice({device(0, 64 * kMiB)});
  slice.start_hypervisor([](std::uint32_t) { return kMiB; }, true, false);
  const std::uint64_t begin = os::monotonic_ns();
  const std::string said = said_unasked(slice);
  EXPECT_LT(os::monotonic_ns() - begin, 10'000'000'000u);
  EXPECT_NE(said.find("802"), std::string::npos) << said;
  EXPECT_NE(said.find("does not count this process among its slice's"), std::string::npos) << said;
}

TEST(Doors, hold_with_deep_binding) {
  for (const std::string& by_dlmopen : {std::string("IS_BY=dlopen"), "PROBE_NAMESPACE=" + std::to_string(LM_ID_BASE)}) {
    TestSlice slice({device(0, 64 * kMiB)});
    slice.start_hypervisor();
    Job asked = probe(slice, {"dlsym", "fill", std::to_string(kMiB)});
    asked.environment.insert(asked.environment.end(), {"PROBE_DEEPBIND=1", by_dlmopen});
    const Outcome outcome = run(asked);
    EXPECT_EQ(outcome.number("count"), 64u) << by_dlmopen;
    EXPECT_NE(slice.claim().processes[0].flags.load() & contract::kFlagDeepBind, 0u) << by_dlmopen;
  }
}

// The driver there would be another one, which nothing limits.
TEST(Doors, hold_for_who_opens_the_driver_in_a_namespace_of_its_own) {
  TestSlice slice({device(0, 64 * kMiB)});
  slice.start_hypervisor();
  for (const char* door : {"dlsym", "proc"}) {
    Job asked = probe(slice, {door, "fill", std::to_string(kMiB)});
    asked.environment.push_back("PROBE_NAMESPACE=" + std::to_string(LM_ID_NEWLM));
    EXPECT_EQ(run(asked).number("count"), 64u) << door;
  }
}

TEST(Fork, gives_the_child_an_account_of_its_own) {
  TestSlice slice({device(0, 2048 * kMiB)});  // room for contexts whose cost nobody has told in time
  slice.start_hypervisor({}, false);          // what the child had is looked at after its end
  const Outcome outcome = run(probe(slice, {"dlsym", "fork", std::to_string(kMiB)}));
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(outcome.number("child_alloc"), 0u);
  EXPECT_NE(slice.claim().processes[1].pid.load(), 0u);
  EXPECT_NE(slice.claim().processes[1].pid.load(), slice.claim().processes[0].pid.load());
}

TEST(Visible, only_the_granted_devices_in_the_order_of_the_grant) {
  TestSlice slice({device(1, 64 * kMiB)});
  slice.start_hypervisor();
  Job asked = probe(slice, {"dlsym", "fill", std::to_string(kMiB), "0"});
  asked.environment.push_back("STUB_DEVICES=2");  // this driver does not read CUDA_VISIBLE_DEVICES: device 0 is foreign
  const Outcome outcome = run(asked);
  EXPECT_EQ(outcome.number("retain"), 101u);  // CUDA_ERROR_INVALID_DEVICE
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter::testing
