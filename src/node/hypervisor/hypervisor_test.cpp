#include "node/hypervisor/hypervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>

#include "node/hypervisor/test_daemon.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using base::Bytes;
using base::ErrorCode;
using base::Percent;
using contract::ClaimPage;
using contract::GrantPage;

RunRequest request(const std::string& name, std::uint64_t vram = kTestGi, std::uint32_t compute = 1000) {
  RunRequest r;
  r.name = name;
  r.command = "python train.py";
  r.vram = Bytes{vram};
  r.compute = Percent{compute};
  return r;
}

// A tenant as `run` makes one: asked for, started, with its pages mapped.
struct Slice {
  Slice(const TestDaemon& daemon, const RunRequest& r) : client(daemon.client()) {
    auto answer = client.run(r);
    if (!answer) {
      ADD_FAILURE() << answer.error().message;
      return;
    }
    reply = *answer;
    grant = *system::MappedPage::attach(reply.slice_directory + "/grant", sizeof(GrantPage), false);
    claim = *system::MappedPage::attach(reply.slice_directory + "/claim", sizeof(ClaimPage), true);
  }
  bool start(pid_t pid) { return client.started(reply.id, pid).has_value(); }
  const GrantPage& granted() const { return *grant.as<GrantPage>(); }
  ClaimPage& claimed() const { return *claim.as<ClaimPage>(); }
  void ring() const {
    const system::Fd bell(::open((reply.slice_directory + "/bell").c_str(), O_WRONLY | O_NONBLOCK));
    EXPECT_EQ(::write(bell.get(), "r", 1), 1);
  }

  Client client;
  RunReply reply;
  system::MappedPage grant, claim;
};

// Stands for the child of `run`.
struct Child {
  Child() : pid(::fork()) {
    if (pid == 0)
      for (;;) ::pause();
  }
  ~Child() { end(); }
  void end() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = -1;
  }
  pid_t pid;
};

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

TEST(Hypervisor, tells_why_a_request_finds_no_room) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice a(daemon, request("a", kTestGi, 8000)), b(daemon, request("b", kTestGi, 8000));
  auto client = daemon.client();
  const auto refused = client.run(request("c", kTestGi, 4000));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNoCapacity);
  EXPECT_NE(refused.error().message.find("40% of compute asked, 20% free; held by a"), std::string::npos)
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

TEST(Hypervisor, frees_a_lock_whose_holder_was_killed) {  // endless "Fail to lock shrreg"
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  TestProcess holder(slice.reply.slice_directory, 300, [](ClaimPage& page, std::uint32_t slot) {
    page.devices[0].lock.store((slot + 1) | contract::kLockWaiters);
    page.processes[slot].devices[0].ledger_bytes.store(500);  // killed between the two halves of a change
  });
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  holder.kill();
  ASSERT_TRUE(eventually([&] { return slice.claimed().devices[0].lock.load() == 0; }, 1000))
      << slice.claimed().devices[0].lock.load();
  EXPECT_TRUE(eventually([&] { return slice.claimed().devices[0].used_bytes.load() == 0; }));
  EXPECT_GE(slice.claimed().devices[0].repairs.load(), 1u);
}

TEST(Hypervisor, is_not_blocked_by_a_tenant_that_keeps_its_lock) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  TestProcess holder(slice.reply.slice_directory, 300,
                     [](ClaimPage& page, std::uint32_t slot) { page.devices[0].lock.store(slot + 1); });
  TestProcess dies(slice.reply.slice_directory, 200);
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 2; }));
  dies.kill();
  Slice neighbour(daemon, request("b"));
  EXPECT_FALSE(daemon.tenant("b").is_null());
  EXPECT_EQ(slice.claimed().devices[0].lock.load(), holder.slot() + 1) << "a living holder keeps its lock";
  slice.claimed().devices[0].lock.store(0);
  EXPECT_TRUE(eventually([&] { return slice.claimed().devices[0].used_bytes.load() == 300; }));
}

TEST(Hypervisor, survives_a_storm_of_kills) {  // a kill between clearing the owner and the wake-up wedged all others
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<TestProcess>> storm;
    for (int i = 0; i < 8; ++i)
      storm.push_back(std::make_unique<TestProcess>(slice.reply.slice_directory, 10 + static_cast<std::uint64_t>(i),
                                                    [&](ClaimPage& page, std::uint32_t slot) {
                                                      std::uint32_t free = 0;
                                                      if (i % 2)
                                                        page.devices[0].lock.compare_exchange_strong(free, slot + 1);
                                                    }));
    storm.clear();
  }
  EXPECT_TRUE(eventually(
      [&] { return slice.claimed().devices[0].used_bytes.load() == 0 && slice.claimed().devices[0].lock.load() == 0; },
      2000));
  for (std::uint32_t slot = 0; slot < slice.claimed().process_high.load(); ++slot)
    EXPECT_TRUE(eventually([&] { return slice.claimed().processes[slot].state.load() == contract::kSlotFree; }));
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
  change.compute = Percent{6000};
  const auto refused = client.limit(change);
  ASSERT_FALSE(refused) << "the other holds 50 %";
  EXPECT_EQ(slice.granted().devices[0].limit_share.load(), 3000u);
  change.compute = Percent{5000};
  ASSERT_TRUE(client.limit(change));
  EXPECT_EQ(slice.granted().devices[0].limit_share.load(), 5000u);
  EXPECT_EQ(slice.granted().devices[0].memory_limit_bytes.load(), 4 * kTestGi);
  change.tenant = "aa";
  EXPECT_NE(client.limit(change).error().message.find("did you mean 'a'"), std::string::npos);
}

TEST(Hypervisor, goes_on_with_its_tenants_after_kill_9) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", 2 * kTestGi, 3000));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  TestProcess process(slice.reply.slice_directory, 12345);
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  LimitRequest change;
  change.tenant = "a";
  change.vram = Bytes{3 * kTestGi};
  ASSERT_TRUE(slice.client.limit(change));
  const auto identity = system::identity_of(slice.reply.slice_directory + "/grant");
  daemon.kill();
  const std::uint64_t heartbeat = slice.granted().heartbeat_ns.load();
  ASSERT_TRUE(daemon.start());
  EXPECT_EQ(system::identity_of(slice.reply.slice_directory + "/grant"), identity)
      << "the same file, so the same mapping";
  EXPECT_TRUE(eventually([&] { return slice.granted().heartbeat_ns.load() > heartbeat; }))
      << "mapped by tenants from before";
  EXPECT_EQ(slice.granted().devices[0].memory_limit_bytes.load(), 3 * kTestGi);
  EXPECT_EQ(slice.claimed().devices[0].used_bytes.load(), 12345u);
  const auto tenant = daemon.tenant("a");
  EXPECT_EQ(tenant["state"].as_string(), "running");
  EXPECT_EQ(tenant["processes"].size(), 1u);
  EXPECT_EQ(daemon.client().run(request("big", kTestGi, 9999)).value().devices[0].uuid, "GPU-0001")
      << "its share is still taken";
  process.kill();
  EXPECT_TRUE(eventually([&] { return slice.claimed().devices[0].used_bytes.load() == 0; }));
  child.end();
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a").is_null(); }));
}

TEST(Hypervisor, reclaims_who_died_while_it_was_away) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice gone(daemon, request("gone")), kept(daemon, request("kept"));
  Child first, second;
  ASSERT_TRUE(gone.start(first.pid));
  ASSERT_TRUE(kept.start(second.pid));
  TestProcess process(kept.reply.slice_directory, 777);
  daemon.kill();
  process.kill();
  first.end();
  ASSERT_TRUE(daemon.start());
  EXPECT_TRUE(eventually([&] { return daemon.tenant("gone").is_null(); }));
  EXPECT_TRUE(eventually([&] { return kept.claimed().devices[0].used_bytes.load() == 0; }));
  EXPECT_FALSE(daemon.tenant("kept").is_null());
}

TEST(Hypervisor, never_ends_tenants_with_itself) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  daemon.kill(SIGTERM);
  EXPECT_EQ(::kill(child.pid, 0), 0);
  EXPECT_EQ(slice.granted().closed.load(), 0u);
  ASSERT_TRUE(daemon.start());
  EXPECT_EQ(daemon.tenant("a")["state"].as_string(), "running");
}

TEST(Hypervisor, takes_limits_from_the_grant_page_when_a_record_is_torn) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", 2 * kTestGi, 3000));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  TestProcess process(slice.reply.slice_directory, 1);
  daemon.kill();
  const std::string record = daemon.state() + "/records/" + slice.reply.id + ".json";
  const std::string whole = system::read_file(record).value();
  for (const std::string& torn : {whole.substr(0, whole.size() / 2), std::string(), std::string("\0\0\0", 3),
                                  std::string("{\"format\":1}"), std::string("[]")}) {
    ASSERT_TRUE(system::replace_file(record, torn));
    ASSERT_TRUE(daemon.start());
    const auto tenant = daemon.tenant("a");
    EXPECT_EQ(tenant["devices"].at(0)["memory_limit_bytes"].as_uint(), 2 * kTestGi) << torn;
    EXPECT_EQ(tenant["devices"].at(0)["limit_share"].as_uint(), 3000u);
    EXPECT_TRUE(daemon.has_event("recovered", "grant page"));
    daemon.kill();
  }
}

TEST(Hypervisor, ignores_what_is_not_its_own_in_the_state_directory) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  daemon.kill();
  ASSERT_TRUE(system::replace_file(daemon.state() + "/records/x.json",
                                   "{\"format\":1,\"id\":\"x\",\"name\":\"x\",\"devices\":[{}]}"));
  ASSERT_TRUE(system::replace_file(daemon.state() + "/records/half.json.new.1.2", "{"));
  ASSERT_TRUE(system::make_directories(daemon.state() + "/tenants/stray"));
  ASSERT_TRUE(daemon.start());
  EXPECT_EQ(daemon.client().list().value()["tenants"].size(), 0u);
  EXPECT_FALSE(system::exists(daemon.state() + "/tenants/stray"));
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

TEST(Hypervisor, counts_what_the_driver_shows_beyond_the_ledger) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  TestProcess process(slice.reply.slice_directory, 100 << 20);
  ASSERT_TRUE(slice.start(process.pid()));
  daemon.world("process " + std::to_string(process.pid()) + " GPU-0000 " + std::to_string(400ull << 20) + " 30\n");
  EXPECT_TRUE(eventually([&] { return slice.granted().devices[0].unledgered_bytes.load() == 300u << 20; }));
  EXPECT_TRUE(eventually([&] { return slice.granted().devices[0].context_overhead_bytes.load() == 300u << 20; }))
      << "one context and nothing else: that is what it costs";
  EXPECT_TRUE(eventually(
      [&] { return slice.granted().processes[0].host_pid.load() == static_cast<std::uint32_t>(process.pid()); }));
  // A ledger that is wiped hides nothing.
  slice.claimed().processes[process.slot()].devices[0].ledger_bytes.store(0);
  slice.claimed().devices[0].used_bytes.store(0);
  EXPECT_TRUE(eventually([&] { return slice.granted().devices[0].unledgered_bytes.load() == 400u << 20; }));
}

TEST(Hypervisor, answers_a_settle_request_by_reading_the_driver) {
  TestDaemon daemon;
  daemon.options.measure_ms = daemon.options.measure_idle_ms = 3'600'000;  // only on request
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  TestProcess process(slice.reply.slice_directory, 0);
  ASSERT_TRUE(slice.start(process.pid()));
  daemon.world("process " + std::to_string(process.pid()) + " GPU-0000 " + std::to_string(256 << 20) + " 0\n");
  for (int i = 0; i < 5; ++i) {
    const std::uint32_t before = slice.granted().devices[0].settled.load();
    slice.claimed().processes[process.slot()].devices[0].settle_request.fetch_add(1);
    const std::uint64_t begin = system::monotonic_ns();
    slice.ring();
    ASSERT_TRUE(eventually([&] { return slice.granted().devices[0].settled.load() != before; }));
    EXPECT_LT(system::monotonic_ns() - begin, 500'000'000u);
    EXPECT_EQ(slice.granted().devices[0].unledgered_bytes.load(), 256u << 20);
  }
}

TEST(Hypervisor, finds_processes_that_use_a_gpu_without_a_limiter) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Child stranger;
  daemon.world("process " + std::to_string(stranger.pid) + " GPU-0001 " + std::to_string(70 * kTestGi) + " 0\n");
  EXPECT_TRUE(eventually([&] { return daemon.has_event("unlimited", "process " + std::to_string(stranger.pid)); }));
  EXPECT_EQ(daemon.client().list().value()["unlimited"].at(0)["pid"].as_int(), stranger.pid);
  RunRequest big = request("big", 20 * kTestGi, 100);
  big.gpu = "1";
  EXPECT_EQ(daemon.client().run(big).error().code, ErrorCode::kNoCapacity) << "a stranger's memory is taken";
}

TEST(Hypervisor, counts_by_claims_when_the_drivers_pid_is_not_to_be_seen) {  // hostPID false, user namespaces
  TestDaemon daemon(1);
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  TestProcess process(slice.reply.slice_directory, 500 << 20);
  ASSERT_TRUE(slice.start(process.pid()));
  daemon.world("process 4194305 GPU-0000 " + std::to_string(500 << 20) + " 0\n");  // above pid_max: nobody's
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  const auto tenant = daemon.tenant("a");
  EXPECT_EQ(tenant["devices"].at(0)["memory_used_bytes"].as_uint(), 500u << 20);
  EXPECT_EQ(tenant["devices"].at(0)["unledgered_bytes"].as_uint(), 0u) << "one account for all is nobody's debt";
  EXPECT_EQ(daemon.client().list().value()["unlimited"].size(), 0u);
  EXPECT_EQ(slice.granted().devices[0].memory_limit_bytes.load(), kTestGi) << "and limits hold all the same";
}

// Descendants that leave their parents behind stay in the tenant's mount namespace; others never come into it.
TEST(Hypervisor, knows_its_processes_by_their_mount_namespace) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a")), plain(daemon, request("b"));
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t root = ::fork();
  if (root == 0) {
    if (::unshare(CLONE_NEWNS) != 0) std::_Exit(77);
    const pid_t orphan = ::fork();
    if (orphan == 0)
      for (;;) ::pause();
    if (::write(ready[1], &orphan, sizeof orphan) < 0) std::_Exit(1);
    for (;;) ::pause();
  }
  pid_t orphan = 0;
  ::close(ready[1]);
  if (::read(ready[0], &orphan, sizeof orphan) != sizeof orphan) {
    ::waitpid(root, nullptr, 0);
    GTEST_SKIP() << "no mount namespace can be made here";
  }
  ::close(ready[0]);
  ASSERT_TRUE(slice.start(root));
  Child child;
  ASSERT_TRUE(plain.start(child.pid));
  ::kill(root, SIGKILL);
  ::waitpid(root, nullptr, 0);
  daemon.world("process " + std::to_string(orphan) + " GPU-0000 4096 0\nprocess " + std::to_string(child.pid) +
               " GPU-0000 8192 0\n");
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a")["devices"].at(0)["observed_bytes"].as_uint() == 4096; }));
  EXPECT_TRUE(eventually([&] { return daemon.tenant("b")["devices"].at(0)["observed_bytes"].as_uint() == 8192; }));
  EXPECT_EQ(daemon.tenant("a")["state"].as_string(), "detached");
  ASSERT_TRUE(daemon.client().kill("a", SIGKILL));
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a").is_null(); }));
  EXPECT_FALSE(daemon.tenant("b").is_null());
}

TEST(Hypervisor, ignores_a_claim_on_another_tenants_process) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice victim(daemon, request("victim")), liar(daemon, request("liar"));
  TestProcess process(victim.reply.slice_directory, 100);
  ASSERT_TRUE(victim.start(process.pid()));
  Child child;
  ASSERT_TRUE(liar.start(child.pid));
  ASSERT_TRUE(eventually([&] { return daemon.tenant("victim")["processes"].size() == 1; }));
  contract::ClaimProcess& forged = liar.claimed().processes[0];
  forged.pid.store(static_cast<std::uint32_t>(process.pid()));
  forged.start_ticks.store(*system::start_ticks(process.pid()));
  liar.claimed().process_high.store(1);
  forged.state.store(contract::kSlotLive);
  EXPECT_TRUE(eventually([&] { return daemon.has_event("tampered", "of tenant victim"); }));
  EXPECT_EQ(daemon.tenant("liar")["processes"].size(), 0u);
  daemon.world("process " + std::to_string(process.pid()) + " GPU-0000 5000 0\n");
  EXPECT_TRUE(eventually([&] { return daemon.tenant("victim")["devices"].at(0)["observed_bytes"].as_uint() == 5000; }));
  ASSERT_TRUE(daemon.client().kill("liar", SIGKILL));
  EXPECT_EQ(::kill(process.pid(), 0), 0) << "`kill liar` must not reach the victim";
}

TEST(Hypervisor, keeps_limits_and_puts_pages_back_that_a_tenant_removes_replaces_or_cuts) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", 2 * kTestGi, 3000)), neighbour(daemon, request("b"));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  const std::string grant = slice.reply.slice_directory + "/grant", claim = slice.reply.slice_directory + "/claim";
  const auto grant_inode = system::identity_of(grant)->inode, claim_inode = system::identity_of(claim)->inode;

  ASSERT_EQ(::unlink(grant.c_str()), 0);
  EXPECT_TRUE(eventually([&] {
    return system::identity_of(grant) && system::identity_of(grant)->inode == grant_inode;
  })) << "unlink";
  ASSERT_TRUE(system::replace_file(claim, std::string(1000, 'x')));
  EXPECT_TRUE(eventually([&] {
    return system::identity_of(claim) && system::identity_of(claim)->inode == claim_inode;
  })) << "replace";
  ASSERT_EQ(::truncate(claim.c_str(), 0), 0);
  EXPECT_TRUE(eventually([&] { return system::identity_of(claim)->size == sizeof(ClaimPage); })) << "truncate claim";
  ASSERT_EQ(::truncate(grant.c_str(), 100), 0);
  EXPECT_TRUE(eventually([&] {
    return system::identity_of(grant)->size == sizeof(GrantPage) &&
           slice.granted().devices[0].memory_limit_bytes.load() == 2 * kTestGi;
  })) << "truncate grant";
  {
    auto writable = system::MappedPage::attach(grant, sizeof(GrantPage), true).value();
    writable.as<GrantPage>()->devices[0].memory_limit_bytes.store(80 * kTestGi);
    writable.as<GrantPage>()->devices[0].flags.fetch_or(contract::kMemoryUnlimited);
    EXPECT_TRUE(eventually([&] {
      return slice.granted().devices[0].memory_limit_bytes.load() == 2 * kTestGi &&
             (slice.granted().devices[0].flags.load() & contract::kMemoryUnlimited) == 0;
    })) << "overwrite";
  }
  ASSERT_TRUE(system::remove_tree(slice.reply.slice_directory));
  EXPECT_TRUE(eventually([&] {
    return system::identity_of(grant) && system::identity_of(grant)->inode == grant_inode;
  })) << "rm -r";
  EXPECT_TRUE(daemon.alive());
  EXPECT_TRUE(daemon.tenant("a")["tampered"].as_bool());
  EXPECT_FALSE(daemon.tenant("b")["tampered"].as_bool()) << "the neighbour is untouched";
  EXPECT_EQ(neighbour.granted().devices[0].memory_limit_bytes.load(), kTestGi);
  EXPECT_TRUE(daemon.has_event("tampered", "cut short"));
}

TEST(Hypervisor, is_not_flooded_by_a_bell) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  const pid_t flooder = ::fork();
  if (flooder == 0) {
    const int bell = ::open((slice.reply.slice_directory + "/bell").c_str(), O_WRONLY | O_NONBLOCK);
    const std::string rings(65536, 'x');
    for (;;) [[maybe_unused]]
      const ssize_t sent = ::write(bell, rings.data(), rings.size());
  }
  std::uint64_t slowest = 0;
  for (int i = 0; i < 50; ++i) {
    const std::uint64_t begin = system::monotonic_ns();
    ASSERT_TRUE(daemon.client().version());
    slowest = std::max(slowest, system::monotonic_ns() - begin);
  }
  ::kill(flooder, SIGKILL);
  ::waitpid(flooder, nullptr, 0);
  EXPECT_LT(slowest, 500'000'000u);
}

TEST(Hypervisor, reports_xids_and_places_nothing_on_a_broken_card) {
  TestDaemon daemon(1);
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  daemon.world("event 1 GPU-0000 13\n");
  EXPECT_TRUE(eventually([&] { return daemon.has_event("device", "Xid 13"); }));
  Slice still(daemon, request("b"));
  daemon.world("event 1 GPU-0000 79\n");
  EXPECT_TRUE(eventually([&] { return daemon.has_event("device", "Xid 79"); }));
  const auto refused = daemon.client().run(request("c"));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("Xid 79"), std::string::npos) << refused.error().message;
  EXPECT_FALSE(daemon.client().devices().value()["devices"].at(0)["healthy"].as_bool());
}

TEST(Hypervisor, streams_what_top_shows_and_stops_with_the_client) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  int seen = 0;
  auto client = daemon.client();
  ASSERT_TRUE(client.stream(base::Json::object({{"op", "top"}, {"interval_ms", 100}}), [&](const base::Json& frame) {
    EXPECT_EQ(frame["tenants"].size(), 1u);
    EXPECT_EQ(frame["devices"].size(), 2u);
    return ++seen < 3;
  }));
  EXPECT_EQ(seen, 3);
}

TEST(Hypervisor, answers_nonsense_with_a_sentence_and_goes_on) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  for (const char* line :
       {"", "x", "[]", "{}", "{\"op\":5}", "{\"op\":\"lst\"}", "{\"op\":\"run\",\"vram\":5}",
        "{\"op\":\"run\",\"vram\":\"-1\"}", "{\"op\":\"run\",\"compute\":\"nan%\"}", "{\"op\":\"run\",\"gpus\":-3}",
        "{\"op\":\"kill\",\"tenant\":\"a\"}", "{\"op\":\"limit\"}", "{\"op\":\"started\",\"id\":\"a\",\"pid\":-1}"}) {
    system::LineConnection connection(*system::connect_unix(daemon.state() + "/hypervisor.sock"));
    ASSERT_TRUE(connection.send(line, 1000));
    const auto reply = base::Json::parse(connection.receive(5000).value()).value();
    EXPECT_FALSE(reply["ok"].as_bool()) << line;
    EXPECT_FALSE(reply["error"]["message"].as_string().empty()) << line;
  }
  system::LineConnection endless(*system::connect_unix(daemon.state() + "/hypervisor.sock"));
  static_cast<void>(endless.send(std::string(3u << 20, 'x'), 2000));
  EXPECT_FALSE(endless.receive(2000)) << "a line without end closes its connection";
  EXPECT_TRUE(daemon.client().version());
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

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
