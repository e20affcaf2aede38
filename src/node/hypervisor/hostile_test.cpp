// Tenants that lie, flood, cut and keep.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

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
  ASSERT_TRUE(eventually([&] { return slice.claimed().devices[0].lock.load() == 0; }))
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
  EXPECT_TRUE(eventually([&] {
    return slice.claimed().devices[0].used_bytes.load() == 0 && slice.claimed().devices[0].lock.load() == 0;
  }));
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
  // Each begins when the one before was seen, so that none is short by chance; a busy machine makes some of them long.
  std::uint64_t shortest = ~0ull;
  for (int i = 0; i < 6; ++i) {
    const std::uint64_t begin = system::monotonic_ns();
    writable.as<GrantPage>()->devices[0].memory_limit_bytes.store(80 * kTestGi);
    ASSERT_TRUE(eventually([&] { return slice.granted().devices[0].memory_limit_bytes.load() == kTestGi; })) << i;
    if (i > 0) shortest = std::min(shortest, system::monotonic_ns() - begin);
  }
  EXPECT_LT(shortest, 600'000'000u);
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
  EXPECT_TRUE(eventually([&] {
    const auto now = system::identity_of(claim);
    return now && now->size == sizeof(ClaimPage);
  })) << "truncate claim";
  ASSERT_EQ(::truncate(grant.c_str(), 100), 0);
  EXPECT_TRUE(eventually([&] {
    const auto now = system::identity_of(grant);
    return now && now->size == sizeof(GrantPage) && slice.granted().devices[0].memory_limit_bytes.load() == 2 * kTestGi;
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

// How soon: pool/share_liar_test.cpp.
TEST(Hypervisor, notices_that_the_driver_contradicts_a_tenants_counters) {
  TestDaemon daemon;
  daemon.options.measure_ms = HypervisorOptions{}.measure_ms;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", kTestGi, 2000)), neighbour(daemon, request("b", kTestGi, 2000));
  TestProcess process(slice.reply.slice_directory, 100 << 20), honest(neighbour.reply.slice_directory, 100 << 20);
  ASSERT_TRUE(slice.start(process.pid()) && neighbour.start(honest.pid()));
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  daemon.world("process " + std::to_string(process.pid()) + " GPU-0000 " + std::to_string(256 << 20) + " 100\n" +
               "process " + std::to_string(honest.pid()) + " GPU-0000 " + std::to_string(256 << 20) + " 0\n");
  EXPECT_TRUE(eventually([&] { return daemon.has_event("bypass suspected", "does not agree with the driver's"); }));
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
  std::vector<std::uint64_t> took;
  for (int i = 0; i < 51; ++i) {
    const std::uint64_t begin = system::monotonic_ns();
    EXPECT_TRUE(daemon.client().version());
    took.push_back(system::monotonic_ns() - begin);
  }
  ::kill(flooder, SIGKILL);
  ::waitpid(flooder, nullptr, 0);
  std::ranges::nth_element(took, took.begin() + 25);
  EXPECT_LT(took[25], 500'000'000u) << "a flood slows all of them down, a busy machine some";
}

// Where all slices' pages lie nobody else would find room.
TEST(Hypervisor, cuts_a_claim_that_was_given_room_behind_its_end) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", kTestGi));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  const system::Fd file(::open((slice.reply.slice_directory + "/claim").c_str(), O_WRONLY));
  const auto on_disk = [&] {
    struct stat info{};
    EXPECT_EQ(::fstat(file.get(), &info), 0);
    return info.st_blocks * 512;
  };
  constexpr off_t kRoom = 32 << 20;
  int status = 0;  // it does not look before we have
  ASSERT_EQ(::kill(daemon.pid(), SIGSTOP), 0);
  ASSERT_EQ(::waitpid(daemon.pid(), &status, WUNTRACED), daemon.pid());
  if (::fallocate(file.get(), FALLOC_FL_KEEP_SIZE, 0, kRoom) != 0) GTEST_SKIP() << "no such room is given here";
  EXPECT_GE(on_disk(), kRoom);
  ASSERT_EQ(::kill(daemon.pid(), SIGCONT), 0);
  EXPECT_TRUE(eventually([&] { return on_disk() < kRoom / 2; }));
  EXPECT_TRUE(eventually([&] { return daemon.has_event("tampered", "room behind its end"); }));
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
