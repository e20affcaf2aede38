#include "node/hypervisor/membership.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "node/hypervisor/test_daemon.h"
#include "node/hypervisor/view_mount.h"
#include "system/file.h"
#include "system/process.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {
namespace {

// Each forks the next and exits, for ever: somebody is alive at any time, and nobody for long.
[[noreturn]] void relay(int out) {
  for (;;) {
    const pid_t next = ::fork();
    if (next < 0) std::_Exit(1);
    if (next != 0) std::_Exit(0);
    const char letter = 'x';
    if (::write(out, &letter, 1) != 1) std::_Exit(1);  // ends with whoever listens
  }
}

// Its letters tell that it goes on.
struct Relay {
  Relay() {
    int letters[2], name[2];
    if (::pipe(letters) != 0 || ::pipe(name) != 0) std::abort();
    const pid_t first = ::fork();
    if (first == 0) {
      ::close(letters[0]);
      if (::unshare(CLONE_NEWNS) != 0) std::_Exit(77);
      ::signal(SIGCHLD, SIG_IGN);
      record.mount_namespace = system::namespace_inode(::getpid(), "mnt");
      if (::write(name[1], &record.mount_namespace, sizeof record.mount_namespace) < 0) std::_Exit(1);
      relay(letters[1]);
    }
    ::close(letters[1]);
    ::close(name[1]);
    can_be = ::read(name[0], &record.mount_namespace, sizeof record.mount_namespace) > 0;
    ::close(name[0]);
    ::waitpid(first, nullptr, 0);
    out = letters[0];
  }
  ~Relay() { ::close(out); }
  bool goes_on() const {
    char letter = 0;
    return ::read(out, &letter, 1) == 1;
  }
  TenantRecord record;
  bool can_be = false;
  int out = -1;
};

TEST(Membership, is_not_over_where_each_process_forks_the_next_and_exits) {
  const Relay relay;
  if (!relay.can_be) GTEST_SKIP() << "no mount namespace can be made here";
  for (int look = 0; look < 30; ++look) {
    EXPECT_FALSE(is_empty(relay.record)) << look;
    ASSERT_TRUE(relay.goes_on());
  }
}

TEST(Membership, is_over_once_such_a_chain_was_ended) {
  const Relay relay;
  if (!relay.can_be) GTEST_SKIP() << "no mount namespace can be made here";
  EXPECT_TRUE(eventually([&] { return end_members(relay.record, 10'000'000); }));
  EXPECT_TRUE(is_empty(relay.record));
  while (relay.goes_on()) continue;  // what it wrote before; no end means that it lives
}

// A view whose first process has ended and left one behind in a namespace that it made within.
struct LeftBehind {
  // What that does is told by `act`; it says itself that it is there, by a letter to `out`.
  explicit LeftBehind(void (*act)(int out)) {
    if (!system::replace_file(scratch.path("grant"), "") || !system::replace_file(scratch.path("here"), ""))
      std::abort();
    record.user = ::geteuid();
    record.grant_mount = mount_name(scratch.path("grant"));
    int letters[2], name[2];
    if (::pipe(letters) != 0 || ::pipe(name) != 0) std::abort();
    const pid_t first = ::fork();
    if (first == 0) {
      ::close(letters[0]);
      if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount(scratch.path("grant").c_str(), scratch.path("here").c_str(), nullptr, MS_BIND, nullptr) != 0)
        std::_Exit(77);
      const std::uint64_t view = system::namespace_inode(::getpid(), "mnt");
      if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || ::write(name[1], &view, sizeof view) < 0) std::_Exit(77);
      if (::fork() != 0) std::_Exit(0);
      ::close(name[1]);
      act(letters[1]);
    }
    ::close(letters[1]);
    ::close(name[1]);
    char letter = 0;
    can_be = ::read(name[0], &record.mount_namespace, sizeof record.mount_namespace) > 0 &&
             ::read(letters[0], &letter, 1) == 1;
    ::close(name[0]);
    ::waitpid(first, nullptr, 0);
    out = letters[0];
  }
  ~LeftBehind() {
    ::close(out);  // they end with whoever listens
    if (!can_be) return;
    EXPECT_TRUE(eventually([&] { return is_empty(record); }));
  }
  system::ScratchDirectory scratch;
  TenantRecord record;
  bool can_be = false;
  int out = -1;
};

// Until nobody listens any more.
[[noreturn]] void stay(int out) {
  ::signal(SIGPIPE, SIG_IGN);
  while (::write(out, "x", 1) == 1) continue;
  std::_Exit(0);
}

void change_root() {
  if (::chroot("/usr") != 0 || ::chdir("/") != 0) std::_Exit(77);
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
  EXPECT_TRUE(is_empty(strangers)) << "what another user has made keeps nobody's slice";
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
  EXPECT_EQ(members_of(left.record).size(), 1u);
}

TEST(Membership, is_not_over_where_each_forks_the_next_in_a_namespace_made_within_its_view) {
  const LeftBehind left([](int out) {
    ::signal(SIGCHLD, SIG_IGN);
    relay(out);
  });
  if (!left.can_be) GTEST_SKIP() << "no mount and user namespaces can be made here";
  for (int look = 0; look < 30; ++look) {
    EXPECT_FALSE(is_empty(left.record)) << look;
    char letter = 0;
    ASSERT_EQ(::read(left.out, &letter, 1), 1);
  }
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
