// The provider's word: memory, processes, health.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>

#include "node/hypervisor/test_slice.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using base::ErrorCode;

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

TEST(Hypervisor, measures_at_once_again_when_somebody_comes_after_an_idle_while) {
  TestDaemon daemon;
  daemon.options.measure_ms = 50;
  daemon.options.measure_idle_ms = 3'600'000;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  TestProcess process(slice.reply.slice_directory, 0);
  ASSERT_TRUE(slice.start(process.pid()));
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  daemon.world("process " + std::to_string(process.pid()) + " GPU-0000 " + std::to_string(256 << 20) + " 0\n");
  EXPECT_TRUE(eventually([&] { return slice.granted().devices[0].unledgered_bytes.load() == 256u << 20; }))
      << "nobody asked: the period did";
}

TEST(Hypervisor, reads_the_driver_again_before_it_refuses_for_memory_that_others_held) {
  TestDaemon daemon(1);
  daemon.options.measure_ms = daemon.options.measure_idle_ms = 3'600'000;
  ASSERT_TRUE(daemon.start());
  Program stranger("stranger");
  daemon.world("process " + std::to_string(stranger.pid) + " GPU-0000 " + std::to_string(70 * kTestGi) + " 0\n");
  ASSERT_TRUE(daemon.client().list());  // which reads
  const auto refused = daemon.client().run(request("a", 40 * kTestGi));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNoCapacity);
  daemon.world("");
  EXPECT_TRUE(daemon.client().run(request("b", 40 * kTestGi))) << "nobody has read since";
}

TEST(Hypervisor, shows_by_the_drivers_word_what_a_slice_uses_while_it_measures_nothing) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  TestProcess process(slice.reply.slice_directory, 0);
  ASSERT_TRUE(slice.start(process.pid()));
  daemon.world("process " + std::to_string(process.pid()) + " GPU-0000 " + std::to_string(256 << 20) + " 30\n");
  const auto used = [&] { return daemon.tenant("a")["devices"].at(0)["used_share"].as_int(); };
  auto& claim = slice.claimed().processes[process.slot()].devices[0];
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  EXPECT_TRUE(eventually([&] {
    claim.unmeasured.fetch_add(1);
    return used() == 3000;
  }));
  EXPECT_TRUE(eventually([&] { return used() == 0; })) << "with no more launches its own account counts again";
}

TEST(Hypervisor, shows_by_the_drivers_word_what_a_slice_uses_that_has_the_card_to_itself_without_a_limit) {
  TestDaemon daemon(1);
  ASSERT_TRUE(daemon.start());
  RunRequest alone = request("a");
  alone.compute.reset();
  Slice slice(daemon, alone);
  TestProcess process(slice.reply.slice_directory, 0);
  ASSERT_TRUE(slice.start(process.pid()));
  daemon.world("process " + std::to_string(process.pid()) + " GPU-0000 " + std::to_string(256 << 20) + " 70\n");
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a")["devices"].at(0)["used_share"].as_int() == 7000; }));
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
    EXPECT_LT(system::monotonic_ns() - begin, 2'000'000'000u) << "who asks waits for it for no longer than seconds";
    EXPECT_EQ(slice.granted().devices[0].unledgered_bytes.load(), 256u << 20);
  }
}

// Its readings are everybody's time. That it is answered all the same stands above.
TEST(Hypervisor, reads_for_a_tenant_that_asks_without_end_a_few_times_at_once_and_then_seldom) {
  TestDaemon daemon;
  daemon.options.measure_ms = daemon.options.measure_idle_ms = 3'600'000;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  TestProcess process(slice.reply.slice_directory, 0);
  ASSERT_TRUE(slice.start(process.pid()));
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  const contract::GrantDevice& row = slice.granted().devices[0];
  const std::uint32_t before = row.reading_begun.load();
  const std::uint64_t begin = system::monotonic_ns();
  while (system::monotonic_ns() - begin < 600'000'000) {
    const std::uint32_t settled = row.settled.load();
    slice.claimed().processes[process.slot()].devices[0].settle_request.fetch_add(1);
    slice.ring();
    ASSERT_TRUE(eventually([&] { return row.settled.load() != settled; }));
  }
  const std::uint64_t took_ms = (system::monotonic_ns() - begin) / 1'000'000;
  EXPECT_LE(row.reading_begun.load() - before, 20 + took_ms / 20);
}

// A program that launches without waiting and then does something else leaves such a claim behind, too.
TEST(Hypervisor, shows_no_use_of_a_slice_that_says_for_ever_that_its_work_is_not_yet_told) {
  TestDaemon daemon(1);
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  TestProcess process(slice.reply.slice_directory, 0);
  ASSERT_TRUE(slice.start(process.pid()));
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  auto& claim = slice.claimed().processes[process.slot()].devices[0];
  const auto used = [&] { return daemon.tenant("a")["devices"].at(0)["used_share"].as_int(); };
  ASSERT_TRUE(eventually([&] {
    constexpr std::uint64_t kWorkNs = 2'000'000;
    const std::uint64_t now = system::monotonic_ns(), count = claim.marker_count.load();
    contract::Marker& marker = claim.markers[count % contract::kMarkers];
    marker.start_ns = now - kWorkNs;
    marker.end_ns = now;
    marker.estimated_ns = kWorkNs;
    claim.launched_ns.fetch_add(kWorkNs);
    claim.completed_ns.fetch_add(kWorkNs);
    claim.progress_ns = now;
    claim.marker_count = count + 1;
    slice.ring();
    return used() > 0;
  }));
  claim.open_since_ns = system::monotonic_ns();
  slice.ring();
  EXPECT_TRUE(eventually([&] { return used() == 0; })) << used();
}

// A tenant may run what it likes; it is held to what that holds all the same.
TEST(Hypervisor, counts_a_shared_server_in_a_slice_as_the_slices) {
  TestDaemon daemon(1);
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Program server("nvidia-cuda-mps-server");
  ASSERT_TRUE(slice.start(server.pid));
  daemon.world("process " + std::to_string(server.pid) + " GPU-0000 " + std::to_string(600 << 20) + " 90\n");
  EXPECT_TRUE(eventually([&] { return slice.granted().devices[0].observed_bytes.load() == 600u << 20; }));
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

TEST(Hypervisor, takes_nobody_for_a_shared_server_who_only_calls_itself_one) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Child forger("nvidia-cuda-mps-server");
  daemon.world("process " + std::to_string(forger.pid) + " GPU-0001 4096 0\n");
  EXPECT_TRUE(eventually([&] { return daemon.has_event("unlimited", "process " + std::to_string(forger.pid)); }));
}

TEST(Hypervisor, names_a_stranger_without_waiting_for_the_next_period) {
  TestDaemon daemon;
  daemon.options.measure_ms = daemon.options.measure_idle_ms = 3'600'000;
  Child stranger;
  daemon.world("process " + std::to_string(stranger.pid) + " GPU-0001 4096 0\n");  // seen by the first reading
  ASSERT_TRUE(daemon.start());
  EXPECT_TRUE(eventually([&] { return daemon.has_event("unlimited", "process " + std::to_string(stranger.pid)); }));
  const HypervisorOptions usual;
  EXPECT_LE(usual.measure_ms + std::max(usual.measure_ms, usual.measure_idle_ms), 2000u)
      << "a period till it is seen, and not more than another till it is named";
}

// One process that works for many: nobody is charged with it beyond their ledgers, nobody is called unlimited.
TEST(Hypervisor, holds_a_shared_servers_memory_against_no_single_tenant) {
  TestDaemon daemon(1);
  ASSERT_TRUE(daemon.start());
  Slice a(daemon, request("a")), b(daemon, request("b"));
  TestProcess of_a(a.reply.slice_directory, 100 << 20), of_b(b.reply.slice_directory, 200 << 20);
  ASSERT_TRUE(a.start(of_a.pid()));
  ASSERT_TRUE(b.start(of_b.pid()));
  Program server("nvidia-cuda-mps-server");
  daemon.world("process " + std::to_string(server.pid) + " GPU-0000 " + std::to_string(600 << 20) + " 90\n");
  ASSERT_TRUE(eventually(
      [&] { return daemon.tenant("a")["processes"].size() == 1 && daemon.tenant("b")["processes"].size() == 1; }));
  EXPECT_EQ(daemon.tenant("a")["devices"].at(0)["memory_used_bytes"].as_uint(), 100u << 20);
  EXPECT_EQ(daemon.tenant("b")["devices"].at(0)["memory_used_bytes"].as_uint(), 200u << 20);
  EXPECT_EQ(a.granted().devices[0].unledgered_bytes.load(), 0u);
  EXPECT_EQ(daemon.client().list().value()["unlimited"].size(), 0u);
}

TEST(Hypervisor, takes_for_a_strangers_what_a_shared_server_holds_beyond_its_clients_limits) {
  TestDaemon daemon(1);
  ASSERT_TRUE(daemon.start());
  Slice a(daemon, request("a", 10 * kTestGi)), b(daemon, request("b", 10 * kTestGi));
  TestProcess of_a(a.reply.slice_directory, 4 * kTestGi), of_b(b.reply.slice_directory, 5 * kTestGi);
  ASSERT_TRUE(a.start(of_a.pid()));
  ASSERT_TRUE(b.start(of_b.pid()));
  ASSERT_TRUE(eventually(
      [&] { return daemon.tenant("a")["processes"].size() == 1 && daemon.tenant("b")["processes"].size() == 1; }));
  Program server("nvidia-cuda-mps-server");
  const auto holds = [&](std::uint64_t bytes) {
    daemon.world("process " + std::to_string(server.pid) + " GPU-0000 " + std::to_string(bytes) + " 90\n");
  };
  // 80 of the card, 20 granted to those who may be behind it: 50 of the server's 70 are nobody's.
  holds(70 * kTestGi);
  ASSERT_TRUE(eventually([&] {
    auto refused = daemon.client().run(request("c", 11 * kTestGi));
    return !refused && refused.error().code == ErrorCode::kNoCapacity;
  }));
  EXPECT_TRUE(daemon.client().run(request("c", 10 * kTestGi))) << "what is granted already is not taken twice";
  holds(20 * kTestGi);
  EXPECT_TRUE(eventually([&] { return daemon.client().run(request("c", 60 * kTestGi)).has_value(); }));
  // The server's word tells nothing of one of them: each holds itself to its ledger, and to no figure of the driver.
  for (const Slice* slice : {&a, &b}) {
    EXPECT_EQ(slice->granted().devices[0].observed_bytes.load(), 0u);
    EXPECT_EQ(slice->granted().devices[0].unledgered_bytes.load(), 0u);
  }
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
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a")["state"].as_string() == "detached"; }));
  ASSERT_TRUE(daemon.client().kill("a", SIGKILL));
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a").is_null(); }));
  EXPECT_FALSE(daemon.tenant("b").is_null());
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
  EXPECT_EQ(refused.error().message.find("--wait"), std::string::npos) << "it would wait for ever";
  EXPECT_NE(refused.error().message.find("doctor"), std::string::npos) << refused.error().message;
  RunRequest patient = request("d");
  patient.wait_ms = 3'600'000;
  const auto at_once = daemon.client().run(patient);
  ASSERT_FALSE(at_once);
  EXPECT_EQ(at_once.error().code, base::ErrorCode::kNoDevice);
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

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
