// What tools see through the management library in a slice, by every variant of each call: the slice's card and the
// slice's processes, and nothing of anybody else.
#include <gtest/gtest.h>

#include "tests/limiter/machine.h"

namespace tensor_fusion::tests {
namespace {

using guest::limiter::testing::Job;
using guest::limiter::testing::Outcome;
using guest::limiter::testing::run;

constexpr std::uint64_t kGiB = 1 << 30;

Outcome manage(const LimitedMachine& machine, bool limited) {
  Job job = machine.tenant({machine.uuid(0), machine.uuid(1), machine.bus(1)}, limited);
  job.command[0] = std::string(TF_BUILD_FOLDER) + "/programs/limiter_management";
  return run(job);
}

class Management : public ::testing::Test {
 protected:
  Management() : stranger_(stranger()) {
    stranger_.line();
    EXPECT_EQ(stranger_.line(), "take=0");
  }
  ~Management() override { stranger_.go(); }
  Job stranger() {
    Job job = machine_.tenant({"take", "1000000"}, false);
    job.command[0] = std::string(TF_BUILD_FOLDER) + "/programs/limiter_symptoms";
    return job;
  }
  LimitedMachine machine_{2 * kGiB, "2xh100"};
  Talk stranger_;
};

TEST_F(Management, shows_the_card_of_the_slice_by_every_variant) {
  const Outcome direct = manage(machine_, false);
  EXPECT_EQ(direct.value("count"), "2") << direct.out;
  const Outcome outcome = manage(machine_, true);
  ASSERT_EQ(outcome.status, 0);
  for (const std::string suffix : {"", "_v2"}) {
    EXPECT_EQ(outcome.value("count" + suffix), "1");
    EXPECT_EQ(outcome.value("nvmlDeviceGetHandleByIndex" + suffix + ":0"), "0");
    EXPECT_EQ(outcome.value("nvmlDeviceGetHandleByIndex" + suffix + ":1"), "2");  // INVALID_ARGUMENT
    EXPECT_EQ(direct.value("nvmlDeviceGetHandleByPciBusId" + suffix), "0");
    EXPECT_EQ(outcome.value("nvmlDeviceGetHandleByPciBusId" + suffix), "6");  // NOT_FOUND
  }
  for (const std::string call : {"by_uuid", "by_uuid_v"}) {
    EXPECT_EQ(direct.value(call + ":foreign"), "0");
    EXPECT_EQ(outcome.value(call + ":own"), "0");
    EXPECT_EQ(outcome.value(call + ":foreign"), "6");
  }
  EXPECT_EQ(outcome.value("index"), "0");
  EXPECT_EQ(outcome.value("mig"), direct.value("mig"));
}

TEST_F(Management, knows_no_neighbour_of_the_card) {
  const Outcome direct = manage(machine_, false);
  const Outcome outcome = manage(machine_, true);
  unsigned neighbours = 0;
  for (const std::string level : {"0", "10", "20", "30", "40", "50"}) {
    neighbours += direct.value("near:" + level) == "0,1,1" ? 1 : 0;
    EXPECT_EQ(outcome.value("near:" + level), "0,0,0") << level;
  }
  EXPECT_EQ(neighbours, 1u) << direct.out;
  EXPECT_EQ(outcome.value("of_cpu"), "0,1");
}

TEST_F(Management, lists_the_processes_of_the_slice_by_every_variant) {
  const Outcome direct = manage(machine_, false);
  const std::string both = std::to_string(stranger_.pid()) + "," + direct.value("own") + ",";
  const Outcome outcome = manage(machine_, true);
  const std::string own = outcome.value("own") + ",";
  for (const std::string suffix : {"", "_v2", "_v3"}) {
    EXPECT_EQ(direct.value("pids:nvmlDeviceGetComputeRunningProcesses" + suffix).size(), both.size());
    EXPECT_EQ(outcome.value("pids:nvmlDeviceGetComputeRunningProcesses" + suffix), own);
    for (const std::string kind : {"Graphics", "MPSCompute"}) {
      const std::string name = "nvmlDeviceGet" + kind + "RunningProcesses" + suffix;
      EXPECT_EQ(outcome.value(name), direct.value(name));
      EXPECT_EQ(outcome.value("pids:" + name), "");
    }
  }
  EXPECT_EQ(direct.value("pids:details").size(), both.size());
  EXPECT_EQ(outcome.value("pids:details"), own);
  EXPECT_EQ(outcome.value("accounting"), direct.value("accounting"));
  for (const std::string list : {"accounting", "samples", "infos"})
    EXPECT_EQ(outcome.value("pids:" + list).find(std::to_string(stranger_.pid())), std::string::npos) << list;
}

TEST_F(Management, shows_the_slice_as_the_whole_memory) {
  const Outcome outcome = manage(machine_, true);
  EXPECT_EQ(outcome.value("memory"), "0");
  EXPECT_EQ(outcome.number("total"), 2 * kGiB);
  EXPECT_EQ(outcome.number("plain_total"), 2 * kGiB);
  EXPECT_EQ(outcome.number("sum"), 2 * kGiB);
  EXPECT_EQ(outcome.value("unversioned"), "25");  // ARGUMENT_VERSION_MISMATCH: the library's own answer
  EXPECT_EQ(outcome.value("gpu"), "0") << "the stranger's use of the card is none of this slice";
}

}  // namespace
}  // namespace tensor_fusion::tests
