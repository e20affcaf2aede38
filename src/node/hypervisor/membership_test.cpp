#include "node/hypervisor/membership.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "node/hypervisor/test_daemon.h"
#include "node/hypervisor/test_left_behind.h"
#include "node/hypervisor/test_relay.h"
#include "node/hypervisor/view_mount.h"
#include "system/file.h"
#include "system/process.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {
namespace {

TEST(Membership, is_not_over_where_each_process_forks_the_next_and_exits) {
  const Relay relay;
  if (!relay.can_be) GTEST_SKIP() << "no mount namespace can be made here";
  for (int look = 0; look < 30; ++look) {
    EXPECT_FALSE(is_empty(relay.record)) << look;
    ASSERT_TRUE(relay.goes_on());
  }
}

TEST(Membership, is_not_over_where_one_that_left_its_view_hides_its_mounts_by_another_root) {
  const LeftBehind left([](int out) {
    change_root();
    stay(out);
  });
  if (!left.can_be) GTEST_SKIP() << "no mount and user namespaces can be made here";
  EXPECT_FALSE(is_empty(left.record));
  TenantRecord strangers = left.record;
  strangers.user = left.record.user + 1;
  EXPECT_TRUE(eventually([&] { return is_empty(strangers); })) << "what another user has made keeps nobody's slice";
}

TEST(Membership, finds_who_shows_its_mounts_beside_one_of_its_namespace_that_hides_them) {
  const LeftBehind left([](int out) {
    int hidden[2];
    char letter = 0;
    if (::pipe(hidden) != 0) std::_Exit(77);
    const pid_t child = ::fork();  // with the higher number, as a rule: looked at later
    if (child == 0) {
      if (::read(hidden[0], &letter, 1) != 1) std::_Exit(77);
      stay(out);
    }
    change_root();
    if (::write(hidden[1], "x", 1) != 1) std::_Exit(77);
    ::waitpid(child, nullptr, 0);
    std::_Exit(0);
  });
  if (!left.can_be) GTEST_SKIP() << "no mount and user namespaces can be made here";
  EXPECT_TRUE(eventually([&] {  // who forked them may be seen, too, while it ends
    return ProcessTable::look({&left.record}, 20'000'000).members_of(left.record).size() == 2;
  })) << "and of the other it is known then";
}

TEST(Membership, is_not_over_where_each_forks_the_next_in_a_namespace_made_within_its_view) {
  const LeftBehind left([](int out) { relay(out); });
  if (!left.can_be) GTEST_SKIP() << "no mount and user namespaces can be made here";
  for (int look = 0; look < 30; ++look) {
    EXPECT_FALSE(is_empty(left.record)) << look;
    char letter = 0;
    ASSERT_EQ(::read(left.out, &letter, 1), 1);
  }
}

// A child in a mount namespace of its own, where a file is bound or not; its first thread ends or not.
struct Moved {
  Moved(const std::string& file, bool first_thread_ends) {
    int there[2];
    if (::pipe(there) != 0) std::abort();
    pid = ::fork();
    if (pid == 0) {
      if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          (!file.empty() && ::mount(file.c_str(), file.c_str(), nullptr, MS_BIND, nullptr) != 0))
        std::_Exit(77);
      const auto tell = [out = there[1]] { return ::write(out, "x", 1) == 1; };
      if (!first_thread_ends) {
        if (!tell()) std::_Exit(77);
        for (;;) ::pause();
      }
      const pid_t self = ::getpid();
      std::thread([&, self] {
        const bool ended = eventually([self] { return system::process_stat(self)->state == 'Z'; });
        if (!ended || !tell()) std::_Exit(77);
        for (;;) ::pause();
      }).detach();
      ::syscall(SYS_exit, 0);
    }
    ::close(there[1]);
    char letter = 0;
    can_be = ::read(there[0], &letter, 1) == 1;
    ::close(there[0]);
  }
  ~Moved() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  pid_t pid = -1;
  bool can_be = false;
};

// Else whoever shares a namespace with many, as in a container, could have all of them killed with a slice of his own.
TEST(Membership, takes_a_namespace_for_a_slices_view_only_where_the_grant_is_mounted_and_the_first_thread_is) {
  const system::ScratchDirectory scratch;
  ASSERT_TRUE(system::replace_file(scratch.path("grant"), ""));
  TenantRecord record;
  record.grant_mount = mount_name(scratch.path("grant"));
  record.outer_namespace = 1;
  const Moved view(scratch.path("grant"), false), shared("", false), left(scratch.path("grant"), true);
  if (!view.can_be) GTEST_SKIP() << "no mount namespace can be made here";
  ASSERT_TRUE(shared.can_be && left.can_be);
  EXPECT_EQ(private_view(record, view.pid).number, system::namespace_inode(view.pid, "mnt"));
  EXPECT_EQ(private_view(record, shared.pid).number, 0u);
  EXPECT_NE(system::namespace_inode(left.pid, "mnt"), 0u);
  EXPECT_EQ(private_view(record, left.pid).number, 0u) << "others of its threads are not asked";
}

// The next namespace gets the lowest number that nobody has: whoever that is would be taken for the slice's.
TEST(Membership, keeps_the_number_of_a_slices_view_from_who_comes_later) {
  const system::ScratchDirectory scratch;
  ASSERT_TRUE(system::replace_file(scratch.path("grant"), ""));
  TenantRecord record;
  record.grant_mount = mount_name(scratch.path("grant"));
  record.outer_namespace = 1;
  View view;
  {
    const Moved first(scratch.path("grant"), false);
    if (!first.can_be) GTEST_SKIP() << "no mount namespace can be made here";
    view = private_view(record, first.pid);
    ASSERT_NE(view.number, 0u);
  }
  for (int i = 0; i < 8; ++i) {
    const Moved later("", false);
    ASSERT_TRUE(later.can_be);
    EXPECT_NE(system::namespace_inode(later.pid, "mnt"), view.number);
  }
}

// On a machine of many processes, where some come and go all the time.
TEST(ProcessTable, has_time_for_who_came_meanwhile_however_long_the_first_list_took) {
  const auto sleeper = [] {
    const pid_t pid = ::fork();
    if (pid == 0)
      for (;;) ::pause();
    return pid;
  };
  const auto end = [](pid_t pid) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  };
  constexpr std::uint64_t kForNs = 100'000'000;
  const pid_t leaves = sleeper(), looked_at_before = sleeper();
  pid_t comes = 0;
  TenantRecord record;
  record.mount_namespace = 1;  // nobody's
  const auto table = ProcessTable::look({&record}, kForNs, [&](const ProcessTable&, const SeenProcess& process) {
    if (process.pid != looked_at_before || comes != 0) return false;
    end(leaves);
    comes = sleeper();
    ::usleep(kForNs / 1000);
    return false;
  });
  EXPECT_TRUE(table.find(comes));
  EXPECT_GE(table.lists(), 2u);
  end(comes);
  end(looked_at_before);
}

TEST(ProcessTable, answers_for_all_slices_by_one_look) {
  const system::ScratchDirectory scratch;
  std::vector<TenantRecord> records(3);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::string file = scratch.path("grant" + std::to_string(i));
    ASSERT_TRUE(system::replace_file(file, ""));
    records[i].grant_mount = mount_name(file);
    records[i].mount_namespace = i + 1;  // nobody's
  }
  const Moved within(scratch.path("grant1"), false);
  if (!within.can_be) GTEST_SKIP() << "no mount namespace can be made here";
  ProcessTable table;
  ASSERT_TRUE(eventually([&] {  // for others come and go
    table = ProcessTable::look({&records[0], &records[1], &records[2]}, 100'000'000);
    return table.is_empty(records[0]);
  }));
  EXPECT_FALSE(table.is_empty(records[1]));
  EXPECT_TRUE(table.is_empty(records[2]));
  ASSERT_EQ(table.members_of(records[1]).size(), 1u);
  EXPECT_EQ(table.members_of(records[1]).front().pid, within.pid);
  TenantRecord later = records[0];
  later.grant_mount += "x";
  EXPECT_FALSE(table.is_empty(later)) << "nobody has looked for it";
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
