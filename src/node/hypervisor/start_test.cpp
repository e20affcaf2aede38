// How a daemon starts, stays and leaves, and what stops it.
#include <gtest/gtest.h>

#include "node/hypervisor/test_slice.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using base::ErrorCode;

TEST(Hypervisor, refuses_a_second_one_with_a_sentence) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const auto second = Hypervisor::make(daemon.options);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyRunning);
  EXPECT_NE(second.error().message.find("process " + std::to_string(daemon.pid()) + ")"), std::string::npos)
      << second.error().message;
  EXPECT_NE(second.error().message.find("--state"), std::string::npos);
}

TEST(Hypervisor, names_what_is_wrong_with_a_state_directory) {
  TestDaemon daemon;
  daemon.options.state = daemon.scratch("world");  // a file
  EXPECT_NE(Hypervisor::make(daemon.options).error().message.find("not a directory"), std::string::npos);
  daemon.options.state = daemon.scratch(std::string(200, 'x'));
  const auto too_long = Hypervisor::make(daemon.options);
  ASSERT_FALSE(too_long);
  EXPECT_NE(too_long.error().message.find("shorter --state"), std::string::npos) << too_long.error().message;
  daemon.options.state = "/proc/tensor-fusion";
  ASSERT_FALSE(Hypervisor::make(daemon.options));
  if (::access("/dev/full", W_OK) == 0 && ::geteuid() == 0) {
    const std::string mount = daemon.scratch("full");
    ASSERT_TRUE(system::make_directories(mount));
    if (std::system(("mount -t tmpfs -o size=16k,nr_inodes=64 none " + mount + " 2>/dev/null").c_str()) != 0)
      GTEST_SKIP() << "no tmpfs can be mounted here, so the full directory is not tried";
    static_cast<void>(system::replace_file(mount + "/ballast", std::string(16384, 'x')));
    daemon.options.state = mount + "/s";
    const auto full = Hypervisor::make(daemon.options);
    ASSERT_FALSE(full);
    EXPECT_EQ(full.error().code, ErrorCode::kNoSpace) << full.error().message;
    EXPECT_EQ(std::system(("mount -o remount,ro " + mount).c_str()), 0);
    const auto read_only = Hypervisor::make(daemon.options);
    ASSERT_FALSE(read_only);
    EXPECT_EQ(read_only.error().code, ErrorCode::kReadOnly) << read_only.error().message;
    EXPECT_EQ(std::system(("umount " + mount).c_str()), 0);
  }
}

TEST(Hypervisor, says_so_when_there_is_no_gpu) {
  TestDaemon daemon(0);
  ASSERT_TRUE(daemon.start());
  EXPECT_EQ(daemon.client().run(request("a")).error().code, ErrorCode::kNoDevice);
  TestDaemon broken;
  broken.options.accelerator_library = "/nowhere/lib.so";
  ASSERT_TRUE(broken.start());
  const auto refused = broken.client().run(request("a"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNoDevice);
  EXPECT_NE(refused.error().message.find("/nowhere/lib.so"), std::string::npos) << refused.error().message;
}

TEST(Hypervisor,
     keeps_limits_when_the_provider_crashes_or_hangs) {  // a failed start-up lookup switched limits off for life
  TestDaemon daemon;
  daemon.options.deadlines.call_ns = 300'000'000;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", 2 * kTestGi, 3000));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  for (const char* how : {"crash", "hang"}) {
    daemon.world(std::string(how) + " AccelGetProcessInformation\n");
    EXPECT_TRUE(eventually([&] { return daemon.has_event("provider", how[0] == 'c' ? "died of signal 11" : "hangs"); }))
        << how;
    EXPECT_EQ(slice.granted().devices[0].memory_limit_bytes.load(), 2 * kTestGi);
    const std::uint64_t heartbeat = slice.granted().heartbeat_ns.load();
    EXPECT_TRUE(eventually([&] { return slice.granted().heartbeat_ns.load() > heartbeat; }))
        << "the daemon itself goes on";
    daemon.world("");
    EXPECT_TRUE(eventually([&] { return daemon.client().devices().value()["provider"]["ready"].as_bool(); }));
  }
  // Enforcement does not hang on the provider at a restart either.
  daemon.kill();
  daemon.world("crash AccelInit\n");
  ASSERT_TRUE(daemon.start());
  EXPECT_EQ(slice.granted().devices[0].memory_limit_bytes.load(), 2 * kTestGi);
  const std::uint64_t heartbeat = slice.granted().heartbeat_ns.load();
  EXPECT_TRUE(eventually([&] { return slice.granted().heartbeat_ns.load() > heartbeat; }));
}

TEST(Hypervisor, leaves_when_idle_but_not_while_a_tenant_runs) {
  TestDaemon daemon;
  daemon.options.idle_exit_ms = 200;
  ASSERT_TRUE(daemon.start());
  {
    Slice slice(daemon, request("a"));
    Child child;
    ASSERT_TRUE(slice.start(child.pid));
    EXPECT_FALSE(eventually([&] { return !daemon.alive(); }, 700));
  }
  EXPECT_TRUE(eventually([&] { return !daemon.alive(); }));
}

TEST(Client, says_why_a_hypervisor_does_not_start) {
  const system::ScratchDirectory scratch;
  EnsureOptions options{.state = scratch.path("s"),
                        .hypervisor_command = {"/bin/sh", "-c", "echo the reason >&2; exit 3"},
                        .timeout_ms = 10'000};
  const auto failed = Client::ensure_running(options);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(failed.error().message.find("the reason"), std::string::npos) << failed.error().message;
  options.hypervisor_command = {"/bin/sh", "-c", "exec sleep 2"};
  options.timeout_ms = 50;
  EXPECT_NE(Client::ensure_running(options).error().message.find("hypervisor.log"), std::string::npos);
}

TEST(Client, finds_the_one_that_runs) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  auto client =
      Client::ensure_running({.state = daemon.state(), .hypervisor_command = {"/bin/false"}, .timeout_ms = 10'000});
  ASSERT_TRUE(client);
  EXPECT_EQ(client->version().value()["pid"].as_int(), daemon.pid());
}

TEST(Client, says_that_the_state_directory_is_full_or_none_instead_of_pointing_at_a_log_nobody_could_write) {
  system::ScratchDirectory scratch;
  EnsureOptions options{.state = scratch.path("full"), .hypervisor_command = {"/bin/false"}, .timeout_ms = 10'000};
  ASSERT_TRUE(system::make_directories(options.state, 0755));
  ASSERT_EQ(::symlink("/dev/full", (options.state + "/hypervisor.log").c_str()), 0);
  EXPECT_EQ(Client::ensure_running(options).error().code, base::ErrorCode::kNoSpace);
  ASSERT_TRUE(system::replace_file(scratch.path("file"), "x"));
  for (const char* state : {"file", "file/below"}) {
    options.state = scratch.path(state);
    const base::Error error = Client::ensure_running(options).error();
    EXPECT_EQ(error.code, base::ErrorCode::kUsage) << error.message;
    EXPECT_NE(error.message.find("--state"), std::string::npos) << error.message;
  }
}

// When that is over: idleness_test.cpp.
TEST(Hypervisor, does_not_leave_while_somebody_comes_and_goes) {
  TestDaemon daemon;
  daemon.options.idle_exit_ms = 1000;
  ASSERT_TRUE(daemon.start());
  std::uint64_t last = system::monotonic_ns();
  for (const std::uint64_t end = last + 2'500'000'000; last < end;) {
    auto client = Client::connect(daemon.state());
    const bool answers = client && client->version();
    if (system::monotonic_ns() - last > 500'000'000) GTEST_SKIP() << "the test itself was kept from coming so long";
    ASSERT_TRUE(answers) << "it has left";
    last = system::monotonic_ns();
  }
  EXPECT_TRUE(eventually([&] { return !daemon.alive(); })) << "and then it does";
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
