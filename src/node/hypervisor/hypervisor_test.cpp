// What a request gets, and how tenants end.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/id.h"
#include "node/hypervisor/tenant_record.h"
#include "node/hypervisor/test_slice.h"
#include "system/clock.h"

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
  ASSERT_TRUE(eventually([&] { return daemon.tenant("b").is_null(); })) << "its run has ended before it started";
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
  // Its bytes are back a step before its slot is.
  ASSERT_TRUE(eventually([&] { return slice.claimed().devices[0].used_bytes.load() == 100; }));
  EXPECT_LT(system::monotonic_ns() - begin, 1'000'000'000u);
  EXPECT_TRUE(eventually([&] { return slice.claimed().processes[dies.slot()].state.load() == contract::kSlotFree; }));
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

// `run` says twice that it has started, and somebody may have let it go on meanwhile.
TEST(Hypervisor, sends_a_signal_that_came_before_the_first_process_once) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Child root;
  ASSERT_TRUE(daemon.client().kill("a", SIGSTOP));
  ASSERT_TRUE(slice.start(root.pid));
  int status = 0;
  ASSERT_EQ(::waitpid(root.pid, &status, WUNTRACED), root.pid);
  ASSERT_TRUE(WIFSTOPPED(status));
  ASSERT_EQ(::kill(root.pid, SIGCONT), 0);
  ASSERT_EQ(::waitpid(root.pid, &status, WCONTINUED), root.pid);
  ASSERT_TRUE(slice.start(root.pid));
  ASSERT_EQ(::kill(root.pid, SIGVTALRM), 0) << "taken after a stop, if there is one";
  ASSERT_EQ(::waitpid(root.pid, &status, WUNTRACED), root.pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  if (WIFSIGNALED(status)) root.pid = -1;
}

// Ended within the second in which it printed, it is among those that run at no look.
TEST(Hypervisor, cuts_what_a_program_printed_soon_after_it_has_ended) {
  constexpr std::uint64_t kPrinted = 24u << 20, kMost = 9u << 20;
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  for (const char* name : {"a", "b", "c"}) {  // the first look at all logs is a second after the start
    RunRequest job = request(name);
    job.detach = true;
    Slice slice(daemon, job);
    Child root;
    ASSERT_TRUE(slice.start(root.pid));
    const std::string log = daemon.state() + "/logs/" + slice.reply.id + ".log";
    std::ofstream(log, std::ios::app) << std::string(kPrinted, 'x');
    root.end();
    const auto kept = [&] {
      struct stat info{};
      return ::stat(log.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_blocks) * 512 : kPrinted;
    };
    EXPECT_TRUE(eventually([&] { return kept() <= kMost; })) << name << ": " << kept();
  }
}

TEST(Hypervisor, makes_no_name_that_another_slice_has_taken) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  RunRequest made = request("");
  made.command = "sleep 60";
  const Slice first(daemon, made);
  // Its number is of the time at which the hypervisor was started, and of its process.
  std::uint64_t time = system::wall_ms();
  const auto number = [&] { return time ^ static_cast<std::uint64_t>(daemon.pid()) << 12; };
  for (int back = 0; back < 60'000 && base::short_id(number()) != first.reply.id; ++back) --time;
  ASSERT_EQ(base::short_id(number()), first.reply.id);
  const Slice taken(daemon, request("sleep-" + base::short_id(number() + 2)));
  ASSERT_EQ(taken.reply.id, base::short_id(number() + 1));
  const Slice second(daemon, made);
  EXPECT_TRUE(second.reply.name.starts_with("sleep-")) << second.reply.name;
  EXPECT_NE(second.reply.name, taken.reply.name);
}

TEST(Hypervisor, hands_programs_the_variables_that_it_was_given_for_them) {
  TestDaemon daemon;
  daemon.options.variables = {{"WHERE", "/there"}};
  ASSERT_TRUE(daemon.start());
  const Slice slice(daemon, request("a"));
  EXPECT_NE(std::ranges::find(slice.reply.envs, std::pair<std::string, std::string>("WHERE", "/there")),
            slice.reply.envs.end());
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
