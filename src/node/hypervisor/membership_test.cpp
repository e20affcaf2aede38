#include "node/hypervisor/membership.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "node/hypervisor/test_daemon.h"
#include "system/process.h"

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

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
