// What a request gets, how tenants end, what stops a daemon from starting.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>

#include "base/id.h"
#include "node/hypervisor/tenant_record.h"
#include "node/hypervisor/test_slice.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using base::Bytes;
using base::ErrorCode;
using base::Percent;
using contract::GrantPage;

TEST(Hypervisor, gives_a_slice_with_the_limits_that_were_asked) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", 2 * kTestGi, 3000));
  ASSERT_EQ(slice.reply.devices.size(), 1u);
  EXPECT_EQ(slice.reply.devices[0].uuid, "GPU-0000");
  const GrantPage& grant = slice.granted();
  EXPECT_EQ(grant.magic, contract::kGrantMagic);
  EXPECT_EQ(grant.device_count.load(), 1u);
  EXPECT_STREQ(grant.tenant, "a");
  EXPECT_EQ(grant.devices[0].memory_limit_bytes.load(), 2 * kTestGi);
  EXPECT_EQ(grant.devices[0].limit_share.load(), 3000u);
  EXPECT_EQ(grant.devices[0].request_share.load(), 3000u);
  EXPECT_STREQ(grant.devices[0].uuid, "GPU-0000");
  EXPECT_EQ(slice.claimed().magic, contract::kClaimMagic);
  bool named = false;
  for (const auto& [key, value] : slice.reply.envs)
    named = named || (key == "TENSOR_FUSION_SLICE" && value == slice.reply.slice_directory);
  EXPECT_TRUE(named);
  EXPECT_EQ(daemon.tenant("a")["devices"].at(0)["memory_limit_bytes"].as_uint(), 2 * kTestGi);
}

// Ids are numbers, stirred: whoever has one finds those that come next.
std::string id_after(const std::string& id, std::uint64_t later) {
  constexpr std::string_view kLetters = "abcdefghijkmnpqrstuvwxyz23456789";
  std::uint64_t stirred = 0, inverse = 1;
  for (std::size_t i = id.size(); i > 0; --i) stirred = stirred << 5 | kLetters.find(id[i - 1]);
  for (int i = 0; i < 6; ++i) inverse *= 2 - 0x2545f491u * inverse;
  return base::short_id((stirred * inverse & 0x3fffffffu) + later);
}

TEST(Hypervisor, gives_no_slice_an_id_that_is_anothers_name) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice first(daemon, request("first"));
  ASSERT_EQ(id_after(first.reply.id, 0), first.reply.id);
  const std::string after_next = id_after(first.reply.id, 2);
  Slice trick(daemon, request(after_next));
  ASSERT_EQ(trick.reply.id, id_after(first.reply.id, 1));
  Slice victim(daemon, request("victim"));
  EXPECT_NE(victim.reply.id, after_next);
}

TEST(Hypervisor, tells_why_a_request_finds_no_room) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice a(daemon, request("a", kTestGi, 8000)), b(daemon, request("b", kTestGi, 8000));
  auto client = daemon.client();
  const auto refused = client.run(request("c", kTestGi, 4000));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNoCapacity);
  EXPECT_NE(refused.error().message.find("40% of compute asked, 20% free; held by a (80%)"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(client.run(request("d", 81 * kTestGi, 100)).error().code, ErrorCode::kImpossible);
  RunRequest unknown = request("e");
  unknown.gpu = "7";
  EXPECT_EQ(client.run(unknown).error().code, ErrorCode::kUsage);
  EXPECT_EQ(client.run(request("a")).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(client.run(request("../x")).error().code, ErrorCode::kUsage);
  RunRequest typo = request("f");
  typo.qos = "hihg";
  EXPECT_NE(client.run(typo).error().message.find("did you mean 'high'"), std::string::npos);
}

TEST(Hypervisor, lets_a_request_wait_until_there_is_room) {
  TestDaemon daemon(1);
  ASSERT_TRUE(daemon.start());
  Slice first(daemon, request("a", kTestGi, 8000));
  Child child;
  ASSERT_TRUE(first.start(child.pid));
  RunRequest waiting = request("b", kTestGi, 8000);
  waiting.wait_ms = 30'000;
  const pid_t other = ::fork();
  if (other == 0) {
    auto client = daemon.client();
    std::_Exit(client.run(waiting) ? 0 : 1);
  }
  ASSERT_TRUE(eventually([&] { return daemon.client().version()->is_object(); }));
  child.end();
  int status = 1;
  ::waitpid(other, &status, 0);
  EXPECT_EQ(status, 0);
  waiting.name = "c";
  waiting.wait_ms = 30;
  Slice again(daemon, request("d", kTestGi, 8000));
  EXPECT_EQ(daemon.client().run(waiting).error().code, ErrorCode::kNoCapacity) << "it waits no longer than it was told";
}

TEST(Hypervisor, gives_a_placement_back_when_a_run_ends_before_it_started) {
  TestDaemon daemon(1);
  ASSERT_TRUE(daemon.start());
  {
    Slice slice(daemon, request("a", kTestGi, 8000));
  }
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a").is_null(); }));
}

TEST(Hypervisor, ends_a_tenant_with_its_first_process) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  EXPECT_EQ(daemon.tenant("a")["state"].as_string(), "running");
  child.end();
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a").is_null(); }));
  EXPECT_EQ(slice.granted().closed.load(), 1u);
  EXPECT_FALSE(system::exists(slice.reply.slice_directory));
  EXPECT_TRUE(daemon.has_event("ended", ""));
}

TEST(Hypervisor, keeps_a_tenant_while_a_child_of_it_holds_a_claim) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  TestProcess orphan(slice.reply.slice_directory, kTestGi / 2);
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  child.end();
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a")["state"].as_string() == "detached"; }));
  orphan.kill();
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a").is_null(); }));
}

TEST(Hypervisor, returns_at_once_what_a_killed_process_held) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  TestProcess stays(slice.reply.slice_directory, 100);
  TestProcess dies(slice.reply.slice_directory, 300);
  slice.ring();
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 2; }));
  const std::uint64_t begin = system::monotonic_ns();
  dies.kill();
  ASSERT_TRUE(eventually([&] { return slice.claimed().devices[0].used_bytes.load() == 100; }));
  EXPECT_LT(system::monotonic_ns() - begin, 1'000'000'000u);
  EXPECT_EQ(slice.claimed().processes[dies.slot()].state.load(), contract::kSlotFree);
  EXPECT_TRUE(eventually([&] { return slice.granted().process_count.load() == 1; }));
}

TEST(Hypervisor, changes_limits_of_a_running_tenant) {
  TestDaemon daemon(1);
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", 2 * kTestGi, 3000)), other(daemon, request("b", 10 * kTestGi, 5000));
  const std::uint32_t generation = slice.granted().generation.load();
  LimitRequest change;
  change.tenant = "a";
  change.vram = Bytes{4 * kTestGi};
  auto client = daemon.client();
  ASSERT_TRUE(client.limit(change));
  EXPECT_EQ(slice.granted().devices[0].memory_limit_bytes.load(), 4 * kTestGi);
  EXPECT_EQ(slice.granted().devices[0].limit_share.load(), 3000u) << "what was not named stays";
  EXPECT_NE(slice.granted().generation.load(), generation);
  change.vram.reset();
  change.compute = change.compute_request = Percent{6000};
  const auto refused = client.limit(change);
  ASSERT_FALSE(refused) << "the other holds 50 %";
  EXPECT_EQ(slice.granted().devices[0].limit_share.load(), 3000u);
  change.compute_request.reset();
  ASSERT_TRUE(client.limit(change));
  EXPECT_EQ(slice.granted().devices[0].limit_share.load(), 6000u);
  EXPECT_EQ(slice.granted().devices[0].request_share.load(), 3000u) << "what is certain stays";
  change.compute = Percent{2000};
  const auto lowered = client.limit(change);
  ASSERT_TRUE(lowered);
  EXPECT_EQ(slice.granted().devices[0].request_share.load(), 2000u);
  EXPECT_EQ((*lowered)["notices"].items().size(), 1u);
  EXPECT_EQ(slice.granted().devices[0].memory_limit_bytes.load(), 4 * kTestGi);
  change.tenant = "aa";
  EXPECT_NE(client.limit(change).error().message.find("did you mean 'a'"), std::string::npos);
}

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

TEST(Hypervisor, ends_every_process_of_a_tenant_on_kill) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  TestProcess process(slice.reply.slice_directory, 5);
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  EXPECT_EQ(daemon.client().kill("a", SIGTERM).value()["processes"].as_int(), 2);
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a").is_null(); }));
}

TEST(Hypervisor, ends_a_tenant_that_was_killed_before_it_had_a_process) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  ASSERT_TRUE(daemon.client().kill("a", SIGKILL));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a").is_null(); }));
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
      Client::ensure_running({.state = daemon.state(), .hypervisor_command = {"/bin/false"}, .timeout_ms = 1000});
  ASSERT_TRUE(client);
  EXPECT_EQ(client->version().value()["pid"].as_int(), daemon.pid());
}

TEST(Client, says_that_the_state_directory_is_full_or_none_instead_of_pointing_at_a_log_nobody_could_write) {
  system::ScratchDirectory scratch;
  EnsureOptions options{.state = scratch.path("full"), .hypervisor_command = {"/bin/false"}, .timeout_ms = 1000};
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

// One that has just been started places nothing before it has seen its devices: "there is no device" would be wrong.
TEST(Hypervisor, holds_a_new_limit_until_it_knows_its_devices) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const Child child;
  {
    Slice slice(daemon, request("a"));
    ASSERT_TRUE(slice.start(child.pid));
  }
  daemon.kill();
  daemon.world("hang AccelGetAllDevices\n");
  daemon.options.deadlines.call_ns = 30'000'000'000;
  ASSERT_TRUE(daemon.start());
  ASSERT_TRUE(eventually([&] { return daemon.client().version().value()["provider"]["ready"].as_bool(); }));
  auto fd = system::connect_unix(daemon.state() + "/" + kSocketName);
  ASSERT_TRUE(fd);
  pollfd answer{fd->get(), POLLIN, 0};
  system::LineConnection connection(*std::move(fd));
  LimitRequest wanted;
  wanted.tenant = "a";
  wanted.compute = base::Percent{2000};
  ASSERT_TRUE(connection.send(to_json(wanted).dump(), 1000));
  EXPECT_EQ(::poll(&answer, 1, 200), 0) << "answered before it could know";
  EXPECT_TRUE(daemon.client().kill("a", SIGCONT)) << "for which no device is needed";
  daemon.world("");
  ::kill(static_cast<pid_t>(daemon.client().version().value()["provider"]["pid"].as_int()), SIGKILL);
  const auto line = connection.receive(10'000);
  ASSERT_TRUE(line);
  EXPECT_TRUE((*base::Json::parse(*line))["ok"].as_bool()) << *line;
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

// `run` says that it has started before it enters its view, and again when it is there.
TEST(Hypervisor, looks_again_where_a_program_is_when_that_says_so) {
  TestDaemon daemon;
  daemon.options.measure_ms = 60'000;
  ASSERT_TRUE(daemon.start());
  int moved[2], go[2];
  ASSERT_EQ(::pipe(moved) | ::pipe(go), 0);
  std::fflush(nullptr);
  const pid_t program = ::fork();
  if (program == 0) {
    char letter = 0;
    letter = ::read(go[0], &letter, 1) == 1 && ::unshare(CLONE_NEWNS) == 0 ? 'y' : 'n';
    if (::write(moved[1], &letter, 1) != 1) std::_Exit(1);
    for (;;) ::pause();
  }
  Slice slice(daemon, request("a"));
  EXPECT_TRUE(slice.start(program));
  char letter = 0;
  ASSERT_EQ(::write(go[1], "g", 1) + ::read(moved[0], &letter, 1), 2);
  EXPECT_TRUE(slice.start(program));
  if (letter == 'y') {
    const auto record = load_record(daemon.state() + "/records/" + slice.reply.id + ".json");
    EXPECT_EQ(record.value().mount_namespace, system::namespace_inode(program, "mnt"));
  }
  EXPECT_FALSE(slice.start(::getpid())) << "it is another's already";
  ::kill(program, SIGKILL);
  ::waitpid(program, nullptr, 0);
  if (letter != 'y') GTEST_SKIP() << "a mount namespace cannot be made here";
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
