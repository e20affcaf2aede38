#include "node/hypervisor/process_table.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>

#include "node/hypervisor/membership.h"
#include "node/hypervisor/test_left_behind.h"

namespace tensor_fusion::node::hypervisor {
namespace {

// Only so many descriptors can be opened as long as it lives.
class Wanting {
 public:
  explicit Wanting(rlim_t free) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::dup(0);
    ::close(next);
    rlimit few = before_;
    few.rlim_cur = free == 0 ? 0 : static_cast<rlim_t>(next) + free;
    if (next < 0 || ::setrlimit(RLIMIT_NOFILE, &few) != 0) std::abort();
  }
  ~Wanting() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  Wanting(const Wanting&) = delete;
  Wanting& operator=(const Wanting&) = delete;

 private:
  rlimit before_{};
};

TEST(ProcessTable, takes_nobody_for_gone_whom_it_could_not_look_at) {
  TenantRecord record;
  record.mount_namespace = 1;  // nobody's
  const pid_t self = ::getpid();
  const auto ticks = *system::start_ticks(self);
  EXPECT_TRUE(eventually([&] { return is_empty(record); }));
  {
    const Wanting none(0);
    const auto table = ProcessTable::look({&record}, 20'000'000);
    EXPECT_FALSE(table.is_empty(record));
    EXPECT_FALSE(table.shows_nobody_of(record));
    EXPECT_EQ(system::life_of(self, ticks), system::Life::unknown);
    EXPECT_FALSE(system::is_gone(self));
  }
  EXPECT_EQ(system::life_of(self, ticks), system::Life::lives);
  EXPECT_EQ(system::life_of(self, ticks + 1), system::Life::gone);
  EXPECT_TRUE(eventually([&] { return is_empty(record); }));
}

TEST(ProcessTable, takes_no_namespace_for_strange_while_one_descriptor_is_too_few_to_ask_for_its_maker) {
  const LeftBehind left([](int out) {
    change_root();
    stay(out);
  });
  if (!left.can_be) GTEST_SKIP() << "no mount and user namespaces can be made here";
  const Wanting all_but_one(1);
  EXPECT_FALSE(is_empty(left.record));
}

TEST(ProcessTable, finds_who_shows_the_grant_beside_one_whose_root_shows_other_mounts) {
  const LeftBehind left([](int out) {
    int hidden[2];
    char letter = 0;
    if (::pipe(hidden) != 0 || ::mount("none", "/usr", "tmpfs", 0, nullptr) != 0) std::_Exit(77);
    const pid_t child = ::fork();  // with the higher number, as a rule: looked at first
    if (child == 0) {
      change_root("/usr");
      if (::write(hidden[1], "x", 1) != 1) std::_Exit(77);
      stay(out);
    }
    if (::read(hidden[0], &letter, 1) != 1) std::_Exit(77);
    ::signal(SIGCHLD, SIG_DFL);
    ::waitpid(child, nullptr, 0);
    std::_Exit(0);
  });
  if (!left.can_be) GTEST_SKIP() << "no mount and user namespaces can be made here";
  EXPECT_TRUE(eventually([&] {
    return ProcessTable::look({&left.record}, 20'000'000).members_of(left.record).size() == 2;
  })) << "a list that is not empty need not be the whole one";
  EXPECT_FALSE(is_empty(left.record));
}

// How long that takes is up to who has made the mounts.
TEST(ProcessTable, reads_the_mounts_of_a_namespace_that_hides_them_once_and_not_for_each_of_its_processes) {
  const LeftBehind left([](int out) {
    change_root();
    for (int i = 0; i < 30; ++i)
      if (::fork() == 0) stay(out);
    stay(out);
  });
  if (!left.can_be) GTEST_SKIP() << "no mount and user namespaces can be made here";
  EXPECT_TRUE(eventually([&] {
    const auto table = ProcessTable::look({&left.record}, 20'000'000);
    EXPECT_LT(table.reads_of(left.record.user), 10u);
    return std::ranges::count_if(table.all(), [&](const auto& entry) {
             return table.in_view(left.record, entry.second.mount_namespace) == InView::kUnknown;
           }) > 20;
  })) << "all of them are there";
}

// As a user's own daemon sees a program of theirs that runs with root's rights, or lets nobody look into itself.
TEST(ProcessTable, knows_by_its_mounts_who_does_not_let_itself_be_asked_for_its_namespace) {
  constexpr uid_t kUser = 65534;
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  const system::ScratchDirectory scratch;
  ASSERT_TRUE(system::replace_file(scratch.path("grant"), ""));
  TenantRecord record;
  record.user = kUser;
  record.mount_namespace = 1;  // nobody's
  record.grant_mount = mount_name(scratch.path("grant"));
  const auto looker = [&](std::uint64_t patience_ms) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (::setuid(kUser) != 0) std::_Exit(77);
      std::_Exit(eventually([&] { return is_empty(record); }, patience_ms) ? 0 : 1);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
  };
  int there[2];
  ASSERT_EQ(::pipe(there), 0);
  const pid_t hidden = ::fork();
  if (hidden == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(scratch.path("grant").c_str(), scratch.path("grant").c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::setuid(kUser) != 0 || ::prctl(PR_SET_DUMPABLE, 0) != 0 || ::write(there[1], "x", 1) != 1)
      std::_Exit(77);
    for (;;) ::pause();
  }
  ::close(there[1]);
  char letter = 0;
  const bool can_be = ::read(there[0], &letter, 1) == 1;
  ::close(there[0]);
  const int with_it = can_be ? looker(300) : 77;
  ::kill(hidden, SIGKILL);
  ::waitpid(hidden, nullptr, 0);
  if (!can_be) GTEST_SKIP() << "no mount namespace can be made here";
  EXPECT_EQ(with_it, 1);
  EXPECT_EQ(looker(20'000), 0);
}

TEST(Membership, says_of_one_that_has_gone_that_it_has_and_not_that_it_is_another_users) {
  const pid_t pid = ::fork();
  if (pid == 0) std::_Exit(0);
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(may_reach(65534, pid), Signalled::kGone);
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
