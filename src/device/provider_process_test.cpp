#include "device/provider_process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "system/clock.h"
#include "system/eventually.h"
#include "system/process.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::device {
namespace {

class ProviderProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("FAKE_ACCELERATOR", scratch_.path("world").c_str(), 1);
    world("");
    loop_ = system::Loop::make().value();
  }
  void world(const std::string& more) {
    ASSERT_TRUE(system::replace_file(scratch_.path("world"),
                                     "device GPU-aa 1000000000 100\ndevice GPU-bb 2000000000 100\n" + more));
  }
  void start(const std::string& library = FAKE_ACCELERATOR_LIBRARY) {
    ProviderDeadlines deadlines;
    deadlines.call_ns = call_ns_;
    deadlines.first_pause_ns = 5'000'000;
    provider_ = std::make_unique<ProviderProcess>(
        *loop_, library, deadlines,
        ProviderProcess::Events{
            .ready = [this] { ++readies_; },
            .unhealthy = [this](const std::string& why) { troubles_.push_back(why); },
            .log = [this](const std::string& level, const std::string& m) { log_ = level + ": " + m; }});
    provider_->start();
  }
  template <typename Condition>
  bool until(Condition condition) {
    const std::uint64_t end = system::monotonic_ns() + 30'000'000'000;
    while (!condition() && system::monotonic_ns() < end) loop_->run_once(10'000'000);
    return condition();
  }
  base::Result<ProviderProcess::Body> call(ProviderCall what) {
    std::optional<base::Result<ProviderProcess::Body>> answer;
    provider_->call(what, {}, [&](base::Result<ProviderProcess::Body> result) { answer = std::move(result); });
    EXPECT_TRUE(until([&] { return answer.has_value(); }));
    return answer.value_or(base::fail(base::ErrorCode::kInternal, "no answer"));
  }

  system::ScratchDirectory scratch_;
  std::unique_ptr<system::Loop> loop_;
  std::unique_ptr<ProviderProcess> provider_;
  std::uint64_t call_ns_ = 20'000'000'000;  // a busy machine is no hanging driver
  int readies_ = 0;
  std::vector<std::string> troubles_;
  std::string log_;
};

TEST_F(ProviderProcessTest, lists_devices_from_another_process) {
  start();
  ASSERT_TRUE(until([&] { return provider_->ready(); }));
  EXPECT_NE(provider_->pid(), ::getpid());
  const auto devices = ProviderProcess::items<ExtendedDeviceInfo>(call(ProviderCall::kDevices).value());
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_STREQ(devices[1].basic.uuid, "GPU-bb");
}

TEST_F(ProviderProcessTest, turns_a_crash_into_a_sentence_and_starts_again) {
  start();
  ASSERT_TRUE(until([&] { return provider_->ready(); }));
  world("crash AccelGetProcessInformation\n");
  std::string said;
  int crashes = 0;
  for (; crashes < 20 && said.find("signal 11") == std::string::npos; ++crashes) {  // a busy kernel may not know yet
    ASSERT_TRUE(until([&] { return readies_ == crashes + 1; }));
    const auto answer = call(ProviderCall::kProcesses);
    ASSERT_FALSE(answer);
    said = answer.error().message;
    EXPECT_NE(said.find("AccelGetProcessInformation"), std::string::npos) << said;
  }
  EXPECT_NE(said.find("signal 11"), std::string::npos) << said;
  world("process 5 GPU-aa 77 3\n");
  ASSERT_TRUE(until([&] { return readies_ == crashes + 1; }));
  EXPECT_EQ(ProviderProcess::items<ProcessInformation>(call(ProviderCall::kProcesses).value()).at(0).memoryUsedBytes,
            77u);
  EXPECT_EQ(troubles_.size(), static_cast<std::size_t>(crashes));
}

TEST_F(ProviderProcessTest, kills_a_provider_that_hangs) {
  call_ns_ = 300'000'000;
  start();
  ASSERT_TRUE(until([&] { return provider_->ready(); }));
  const pid_t first = provider_->pid();
  const auto ticks = system::start_ticks(first).value();
  const int before = readies_;
  world("hang AccelGetProcessInformation\n");
  const auto answer = call(ProviderCall::kProcesses);
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().message.find("hangs in AccelGetProcessInformation"), std::string::npos)
      << answer.error().message;
  EXPECT_TRUE(system::eventually([&] { return !system::is_alive(first, ticks); }));
  world("");
  EXPECT_TRUE(until([&] { return readies_ > before; }));
}

TEST_F(ProviderProcessTest, names_what_a_library_lacks) {
  start("libm.so.6");
  ASSERT_TRUE(until([&] { return !troubles_.empty(); }));
  EXPECT_NE(troubles_[0].find("no function AccelInit"), std::string::npos) << troubles_[0];
}

TEST_F(ProviderProcessTest, says_when_a_library_is_missing) {
  start("/nowhere/libaccelerator_none.so");
  ASSERT_TRUE(until([&] { return !troubles_.empty(); }));
  EXPECT_NE(troubles_[0].find("/nowhere/libaccelerator_none.so"), std::string::npos) << troubles_[0];
}

TEST_F(ProviderProcessTest, passes_messages_on_and_survives_the_level_fatal) {
  world("log FATAL\n");
  start();
  ASSERT_TRUE(until([&] { return provider_->ready() && !log_.empty(); }));
  EXPECT_EQ(log_, "FATAL: a message of the library");
}

TEST_F(ProviderProcessTest, ends_its_process_with_itself) {
  start();
  ASSERT_TRUE(until([&] { return provider_->ready(); }));
  const pid_t pid = provider_->pid();
  const auto ticks = system::start_ticks(pid).value();
  provider_.reset();
  EXPECT_TRUE(system::eventually([&] { return !system::is_alive(pid, ticks); })) << "nobody waits long for its end";
}

}  // namespace
}  // namespace tensor_fusion::device
