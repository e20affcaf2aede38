// Tenants and clients that lie, flood, cut and keep.
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <filesystem>
#include <thread>

#include "node/hypervisor/server.h"
#include "node/hypervisor/test_slice.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using contract::ClaimPage;
using contract::GrantPage;

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

// A process that has no slot yet returns dead neighbours' slots under a name that many share, and was killed doing it.
TEST(Hypervisor, returns_what_a_sweeper_was_killed_over) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  TestProcess keeper(slice.reply.slice_directory, 1 << 20), dead(slice.reply.slice_directory, 100 << 20);
  ASSERT_TRUE(slice.start(keeper.pid()));
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 2; }));
  slice.claimed().processes[dead.slot()].state.store(contract::kSlotReaping);
  slice.claimed().devices[0].lock.store(contract::kSweeperHolder);
  dead.kill();
  EXPECT_TRUE(eventually([&] { return slice.claimed().processes[dead.slot()].state.load() == contract::kSlotFree; }));
  EXPECT_EQ(slice.claimed().devices[0].used_bytes.load(), 1u << 20);
  EXPECT_EQ(slice.claimed().devices[0].lock.load(), 0u);
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

TEST(Hypervisor, does_not_lose_sight_of_slots_that_a_page_denies) {  // process_high = 0 made the sum of all slots 0
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  TestProcess process(slice.reply.slice_directory, 100 << 20);
  ASSERT_TRUE(slice.start(process.pid()));
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  slice.claimed().process_high.store(0);
  slice.claimed().devices[0].used_bytes.store(5);  // so that the hypervisor sums up anew
  EXPECT_TRUE(eventually([&] { return slice.claimed().devices[0].used_bytes.load() == 100u << 20; }));
  EXPECT_EQ(daemon.tenant("a")["processes"].size(), 1u);
  process.kill();
  EXPECT_TRUE(eventually([&] { return slice.claimed().devices[0].used_bytes.load() == 0; })) << "and reclaims it";
}

TEST(Hypervisor, signals_no_process_that_a_slice_only_claims) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const Child bystander;  // before the slice is there, so that it cannot have its page
  Slice liar(daemon, request("liar"));
  Child child;
  ASSERT_TRUE(liar.start(child.pid));
  contract::ClaimProcess& forged = liar.claimed().processes[0];
  forged.pid.store(static_cast<std::uint32_t>(bystander.pid));
  forged.start_ticks.store(*system::start_ticks(bystander.pid));
  liar.claimed().process_high.store(1);
  forged.state.store(contract::kSlotLive);
  EXPECT_TRUE(eventually([&] { return daemon.has_event("tampered", "not one of its own"); }));
  EXPECT_EQ(daemon.tenant("liar")["processes"].size(), 0u);
  daemon.world("process " + std::to_string(bystander.pid) + " GPU-0000 5000 0\n");
  EXPECT_TRUE(eventually([&] { return daemon.has_event("unlimited", "process " + std::to_string(bystander.pid)); }))
      << "a claim does not make it limited";
  forged.pid.store(static_cast<std::uint32_t>(daemon.pid()));  // the daemon has every page in its memory
  forged.start_ticks.store(*system::start_ticks(daemon.pid()));
  EXPECT_TRUE(eventually([&] { return daemon.has_event("tampered", "which is the hypervisor"); }));
  ASSERT_TRUE(daemon.client().kill("liar", SIGKILL));
  EXPECT_TRUE(daemon.client().list()) << "signalled itself";
  EXPECT_TRUE(system::process_stat(bystander.pid) && !system::process_stat(bystander.pid)->dead());
  EXPECT_TRUE(eventually([&] { return !system::process_stat(child.pid) || system::process_stat(child.pid)->dead(); }));
}

TEST(Hypervisor, overwrites_a_grant_back_within_a_moment) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  TestProcess process(slice.reply.slice_directory, 100);
  ASSERT_TRUE(slice.start(process.pid()));
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  auto writable = system::MappedPage::attach(slice.reply.slice_directory + "/grant", sizeof(GrantPage), true).value();
  for (int i = 0; i < 5; ++i) {
    writable.as<GrantPage>()->devices[0].memory_limit_bytes.store(80 * kTestGi);
    EXPECT_TRUE(eventually([&] { return slice.granted().devices[0].memory_limit_bytes.load() == kTestGi; }, 600)) << i;
  }
}

// Programs of root can undo their view; the kernel tells the daemon of the change itself. It may be long after the
// first process has ended, and before or after another daemon has taken over.
void notices_when_a_view_is_opened(bool by_a_child, bool by_a_daemon_that_came_later) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  int ready[2], go[2];
  ASSERT_TRUE(::pipe(ready) == 0 && ::pipe(go) == 0);
  const std::string folder = contract::kSlicePath, grant = slice.reply.slice_directory + "/grant";
  const pid_t program = ::fork();
  if (program == 0) {
    const std::string view = "mount --make-rprivate / && mount -t tmpfs none /run && mkdir -p " + folder + " && : > " +
                             folder + "/grant && mount --bind " + grant + " " + folder +
                             "/grant && mount -o remount,bind,ro " + folder + "/grant";
    if (::unshare(CLONE_NEWNS) != 0 || std::system(view.c_str()) != 0) ::_exit(1);
    const pid_t opener = by_a_child ? ::fork() : 0;
    if (opener != 0) {
      if (::write(ready[1], &opener, sizeof opener) != sizeof opener) ::_exit(1);
      for (;;) ::pause();
    }
    const pid_t self = ::getpid();
    char next = 0;
    if (!by_a_child && ::write(ready[1], &self, sizeof self) != sizeof self) ::_exit(1);
    if (::read(go[0], &next, 1) != 1) ::_exit(1);
    if (std::system(("mount -o remount,bind,rw " + folder + "/grant").c_str()) != 0) ::_exit(1);
    for (;;) ::pause();
  }
  ::close(ready[1]);
  pid_t opener = 0;
  if (::read(ready[0], &opener, sizeof opener) != sizeof opener) {
    ::waitpid(program, nullptr, 0);
    GTEST_SKIP() << "no view can be made here";
  }
  ASSERT_TRUE(slice.start(program));
  if (by_a_child) {
    ::kill(program, SIGKILL);
    ::waitpid(program, nullptr, 0);
    ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["state"].as_string() == "detached"; }));
  }
  if (by_a_daemon_that_came_later) {
    daemon.kill();
    ASSERT_TRUE(daemon.start());
    ASSERT_FALSE(daemon.tenant("a").is_null());
  }
  EXPECT_FALSE(daemon.has_event("tampered", "its view"));
  ASSERT_EQ(::write(go[1], "x", 1), 1);
  EXPECT_TRUE(eventually([&] { return daemon.has_event("tampered", "the grant in its view was made writable"); }));
  ::kill(opener, SIGKILL);
  if (!by_a_child) ::waitpid(program, nullptr, 0);
  for (const int fd : {ready[0], go[0], go[1]}) ::close(fd);
}

TEST(Hypervisor, notices_at_once_when_a_view_is_opened) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make and open a view here";
  notices_when_a_view_is_opened(false, false);
}

TEST(Hypervisor, watches_a_view_whose_first_process_has_ended) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make and open a view here";
  notices_when_a_view_is_opened(true, false);
}

TEST(Hypervisor, watches_a_view_that_a_daemon_before_it_has_made) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make and open a view here";
  notices_when_a_view_is_opened(true, true);
}

TEST(Hypervisor, leaves_the_socket_of_another_that_took_its_place) {
  TestDaemon old;
  ASSERT_TRUE(old.start());
  for (const char* name : {"/hypervisor.lock", "/hypervisor.sock"})
    ASSERT_EQ(::unlink((old.state() + name).c_str()), 0);
  TestDaemon fresh;
  fresh.options.state = old.state();
  ASSERT_TRUE(fresh.start());
  old.kill(SIGTERM);
  EXPECT_TRUE(Client::connect(fresh.state())) << "the old one took the new one's socket away with it";
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

// NVML's word once a second, held against whole seconds, took nine of them.
TEST(Hypervisor, notices_soon_that_the_driver_contradicts_a_tenants_counters) {
  TestDaemon daemon;
  daemon.options.measure_ms = HypervisorOptions{}.measure_ms;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", kTestGi, 2000)), neighbour(daemon, request("b", kTestGi, 2000));
  TestProcess process(slice.reply.slice_directory, 100 << 20), honest(neighbour.reply.slice_directory, 100 << 20);
  ASSERT_TRUE(slice.start(process.pid()) && neighbour.start(honest.pid()));
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  daemon.world("process " + std::to_string(process.pid()) + " GPU-0000 " + std::to_string(256 << 20) + " 100\n" +
               "process " + std::to_string(honest.pid()) + " GPU-0000 " + std::to_string(256 << 20) + " 0\n");
  EXPECT_TRUE(eventually([&] { return daemon.has_event("tampered", "does not agree with the driver's"); }, 4000));
  EXPECT_TRUE(daemon.tenant("b")["tampered"].is_null() || !daemon.tenant("b")["tampered"].as_bool());
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

constexpr uid_t kNobody = 65534;

// Runs `talk` as a user without rights, connected to the daemon; its answer is the exit code.
int as_a_stranger(const TestDaemon& daemon, uid_t user, const std::function<int(const std::string& socket)>& talk) {
  const std::filesystem::path state = daemon.state();
  std::filesystem::permissions(state.parent_path(), std::filesystem::perms::others_exec,
                               std::filesystem::perm_options::add);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0) ::_exit(99);
    ::_exit(talk(state / "hypervisor.sock"));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST(Hypervisor, lets_no_stranger_start_a_slice_with_a_process_that_is_not_the_callers) {  // and then kill it by name
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const Child of_root;
  const pid_t victim = of_root.pid;
  EXPECT_EQ(as_a_stranger(daemon, kNobody,
                          [&](const std::string& socket) {
                            system::LineConnection connection(*system::connect_unix(socket));
                            const auto ask = [&](const std::string& line) {
                              static_cast<void>(connection.send(line, 1000));
                              return base::Json::parse(connection.receive(5000).value()).value();
                            };
                            const auto reply = ask(R"({"op":"run","vram":"1Gi","name":"evil"})");
                            if (!reply["ok"].as_bool()) return 1;
                            const std::string id = reply["id"].as_string();
                            const auto started = [&](pid_t pid) {
                              return ask(R"({"op":"started","id":")" + id + R"(","pid":)" + std::to_string(pid) + "}");
                            };
                            if (started(victim)["ok"].as_bool()) return 2;
                            ask(R"({"op":"kill","tenant":"evil","signal":9})");
                            started(::getpid());
                            return 3;
                          }),
            128)
      << "the kill it asked for reaches itself";
  EXPECT_TRUE(system::process_stat(victim) && !system::process_stat(victim)->dead());
}

// The view of a slice hides the socket; root may uncover it, and a slice without a view sees it.
TEST(Hypervisor, changes_no_limit_for_a_process_of_a_slice) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  const pid_t program = ::fork();
  if (program == 0) {
    char begin = 0;
    if (::read(go[0], &begin, 1) != 1) ::_exit(99);
    const pid_t below = ::fork();
    if (below == 0) {
      const auto changed = daemon.client().limit({"a", base::Bytes{8 * kTestGi}, {}, {}});
      ::_exit(changed ? 0 : static_cast<int>(changed.error().code));
    }
    int status = 0;
    ::waitpid(below, &status, 0);
    ::_exit(WEXITSTATUS(status));
  }
  ASSERT_TRUE(slice.start(program));
  ASSERT_EQ(::write(go[1], "x", 1), 1);
  int status = 0;
  ::waitpid(program, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(base::ErrorCode::kPermission));
  for (const int fd : go) ::close(fd);
}

TEST(Hypervisor, shows_the_pages_of_a_slice_to_its_user_only) {  // any other could cut and falsify the account
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const auto ask_for_one = [](const std::string& socket) {
    auto client = Client::connect(std::filesystem::path(socket).parent_path());
    const auto reply = client->run(request("b"));
    if (!reply) return 1;
    return system::MappedPage::attach(reply->slice_directory + "/claim", sizeof(ClaimPage), true) ? 0 : 2;
  };
  EXPECT_EQ(as_a_stranger(daemon, kNobody, ask_for_one), 0) << "its own";
  const Slice slice(daemon, request("a"));
  const std::string claim = slice.reply.slice_directory + "/claim";
  EXPECT_NE(
      as_a_stranger(daemon, kNobody, [&](const std::string&) { return ::truncate(claim.c_str(), 0) == 0 ? 0 : 1; }), 0);
}

TEST(Hypervisor, gives_a_stranger_one_slice_for_each_process) {  // 4,000 from one connection: 25 s to clear away
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  EXPECT_EQ(as_a_stranger(daemon, kNobody,
                          [&](const std::string& socket) {
                            const auto ask = [](system::LineConnection& connection, const std::string& line) {
                              static_cast<void>(connection.send(line, 1000));
                              return base::Json::parse(connection.receive(5000).value()).value();
                            };
                            const std::string run = R"({"op":"run","vram":"1Gi"})";
                            const auto start = [&](system::LineConnection& connection, const base::Json& slice) {
                              return ask(connection, R"({"op":"started","id":")" + slice["id"].as_string() +
                                                         R"(","pid":)" + std::to_string(::getpid()) + "}")["ok"]
                                  .as_bool();
                            };
                            system::LineConnection first(*system::connect_unix(socket));
                            const auto slice = ask(first, run);
                            if (!slice["ok"].as_bool()) return 1;
                            if (ask(first, run)["ok"].as_bool()) return 2;
                            if (!start(first, slice)) return 3;
                            system::LineConnection second(*system::connect_unix(socket));
                            const auto other = ask(second, run);
                            return !other["ok"].as_bool() ? 4 : start(second, other) ? 5 : 0;
                          }),
            0);
}

// Whoever makes /tmp/tensor-fusion-1000 first could tell user 1000's programs what to load.
TEST(Client, does_not_believe_a_hypervisor_of_another_user) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const auto code_of_connecting = [](const std::string& socket) {
    const auto client = Client::connect(std::filesystem::path(socket).parent_path());
    return client ? 0 : static_cast<int>(client.error().code);
  };
  EXPECT_EQ(as_a_stranger(daemon, kNobody, code_of_connecting), 0) << "root's is everybody's";
  const std::string fake = daemon.scratch("fake");
  ASSERT_TRUE(system::make_directories(fake, 0755));
  std::filesystem::permissions(fake, std::filesystem::perms::all);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t impostor = ::fork();
  if (impostor == 0) {
    const bool changed = ::setgid(kNobody - 1) == 0 && ::setuid(kNobody - 1) == 0;
    const auto listener = system::listen_unix(fake + "/hypervisor.sock", 0666);
    if (!changed || !listener || ::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char go = 0;
  ASSERT_EQ(::read(ready[0], &go, 1), 1);
  EXPECT_EQ(as_a_stranger(daemon, kNobody, [&](const std::string&) { return code_of_connecting(fake + "/x"); }),
            static_cast<int>(base::ErrorCode::kPermission));
  ::kill(impostor, SIGKILL);
  ::waitpid(impostor, nullptr, 0);
  for (const int fd : ready) ::close(fd);
}

TEST(Hypervisor, keeps_no_requests_of_a_client_that_does_not_read_the_answers) {  // 1.3 GiB after five million
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const system::Fd flood = *system::connect_unix(daemon.state() + "/hypervisor.sock");
  std::string requests;
  for (int i = 0; i < 1000; ++i) requests += "{\"op\":\"devices\"}\n";
  std::size_t sent = 0;
  constexpr int kQuietMs = 200;
  pollfd room{flood.get(), POLLOUT, 0};
  while (sent < (64u << 20) && ::poll(&room, 1, kQuietMs) == 1) {
    const ssize_t got = ::send(flood.get(), requests.data(), requests.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (got < 0 && errno == EPIPE) break;
    sent += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  EXPECT_LT(sent, 8u << 20) << "the flood is taken in without end";
  const std::uint64_t begin = system::monotonic_ns();
  EXPECT_TRUE(daemon.client().devices());
  EXPECT_LT(system::monotonic_ns() - begin, 2'000'000'000u);
}

TEST(Hypervisor, answers_every_one_of_many_requests_sent_at_once) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  constexpr int kRequests = 500;
  system::LineConnection connection(*system::connect_unix(daemon.state() + "/hypervisor.sock"));
  std::string lines = "{\"op\":\"version\"}";
  for (int i = 1; i < kRequests; ++i) lines += i % 2 ? "\n{\"op\":\"list\"}" : "\n{\"op\":\"version\"}";
  ASSERT_TRUE(connection.send(lines, 1000));
  for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(connection.receive(5000)) << i;
}

TEST(Hypervisor, leaves_connections_for_others_when_one_user_takes_all_it_can) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  int full[2], end[2];
  ASSERT_TRUE(::pipe(full) == 0 && ::pipe(end) == 0);
  std::thread flood([&] {
    as_a_stranger(daemon, kNobody, [&](const std::string& socket) {
      std::vector<system::Fd> held;
      for (std::size_t i = 0; i < Server::kMaxConnections + 50; ++i)
        if (auto one = system::connect_unix(socket)) held.push_back(*std::move(one));
      char go = 'x';
      return ::write(full[1], &go, 1) == 1 && ::read(end[0], &go, 1) == 1 ? 0 : 1;
    });
  });
  char go = 'x';
  EXPECT_EQ(::read(full[0], &go, 1), 1);
  const auto is_answered = [](const std::string& socket) {
    system::LineConnection connection(*system::connect_unix(socket));
    return connection.send(R"({"op":"version"})", 1000) && connection.receive(5000) ? 0 : 1;
  };
  EXPECT_EQ(is_answered(daemon.state() + "/hypervisor.sock"), 0) << "root";
  EXPECT_EQ(as_a_stranger(daemon, kNobody - 1, is_answered), 0) << "another user";
  EXPECT_EQ(as_a_stranger(daemon, kNobody, is_answered), 1) << "the one who has taken all";
  EXPECT_EQ(::write(end[1], &go, 1), 1);
  flood.join();
  for (const int fd : {full[0], full[1], end[0], end[1]}) ::close(fd);
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
