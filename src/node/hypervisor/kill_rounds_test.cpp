#include "node/hypervisor/kill_rounds.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "node/hypervisor/test_daemon.h"
#include "node/hypervisor/test_left_behind.h"
#include "node/hypervisor/test_relay.h"
#include "system/loop.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr pid_t kNobodysPid = 1 << 30;

class KillRoundsTest : public ::testing::Test {
 protected:
  Tenant& add(const std::string& id, std::uint64_t mount_namespace) {
    tenants_.push_back(std::make_unique<Tenant>());
    Tenant& tenant = *tenants_.back();
    tenant.record.id = id;
    tenant.record.root_pid = kNobodysPid;  // has ended
    tenant.root_dead = true;
    tenant.record.mount_namespace = mount_namespace;
    return tenant;
  }
  bool emptied(const std::string& id) { return std::ranges::find(emptied_, id) != emptied_.end(); }
  bool soon(const std::function<bool()>& condition) {
    return eventually([&] {
      loop_->run_once(5'000'000);
      return condition();
    });
  }
  std::unique_ptr<system::Loop> loop_ = system::Loop::make().value();
  std::vector<std::unique_ptr<Tenant>> tenants_;
  std::vector<std::string> emptied_;
  unsigned looks_ = 0;
  KillRounds kills_{*loop_,
                    {.all =
                         [this] {
                           ++looks_;
                           std::vector<Tenant*> all;
                           for (const auto& tenant : tenants_) all.push_back(tenant.get());
                           return all;
                         },
                     .find = [this](const std::string& id) -> Tenant* {
                       for (const auto& tenant : tenants_)
                         if (tenant->record.id == id) return tenant.get();
                       return nullptr;
                     },
                     .emptied = [this](Tenant& tenant) { emptied_.push_back(tenant.record.id); }}};
};

// In a mount namespace of its own.
struct Member {
  Member() {
    pid = ::fork();
    if (pid == 0) {
      if (::unshare(CLONE_NEWNS) != 0) std::_Exit(77);
      place_.wait();
      for (;;) ::pause();
    }
    can_be = place_.keep();
  }
  ~Member() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  bool lives() const { return !system::process_stat(pid)->dead(); }
  std::uint64_t where() const { return place_.number; }
  pid_t pid = -1;
  bool can_be = false;

 private:
  KeptNamespace place_;
};

TEST_F(KillRoundsTest, end_a_chain_in_which_each_forks_the_next_and_exits) {
  const Relay relay;
  if (!relay.can_be) GTEST_SKIP() << "no mount namespace can be made here";
  Tenant& tenant = add("a", relay.record.mount_namespace);
  EXPECT_TRUE(soon([&] {
    if (!emptied("a") && looks_ % 20 == 0) kills_.signal(tenant, SIGKILL, std::nullopt);
    return emptied("a");
  }));
  while (relay.goes_on()) continue;  // what it wrote before; no end means that it lives
}

TEST_F(KillRoundsTest, look_once_for_all_who_are_killed_at_the_same_time) {
  if (!Member().can_be) GTEST_SKIP() << "no mount namespace can be made here";
  // One look serves the others and one round is for all. A busy machine may keep this test from coming in time, and
  // more rounds are needed where strangers come and go: never is it one for each.
  unsigned least = ~0u;
  for (int tries = 0; tries < 10 && least > 2; ++tries) {
    const Member first, second, third;
    tenants_.clear();
    emptied_.clear();
    kills_.forget_look();
    const unsigned before = looks_;
    const Tenant &a = add("a", first.where()), &b = add("b", second.where()), &c = add("c", third.where());
    for (const Tenant* one : {&a, &b, &c}) EXPECT_EQ(kills_.signal(*one, SIGKILL, std::nullopt).reached.size(), 1u);
    ASSERT_TRUE(soon([&] { return emptied("a") && emptied("b") && emptied("c"); }));
    least = std::min(least, looks_ - before);
  }
  EXPECT_EQ(least, 2u);
}

TEST_F(KillRoundsTest, reach_for_a_stranger_only_whom_the_kernel_would_let_him_signal) {
  constexpr uid_t kStranger = 65534;
  const Member member;
  if (::geteuid() != 0 || !member.can_be) GTEST_SKIP() << "only root can do this, where it can make a mount namespace";
  const Tenant& tenant = add("a", member.where());
  const KillAnswer by_stranger = kills_.signal(tenant, SIGKILL, kStranger);
  EXPECT_TRUE(by_stranger.reached.empty());
  EXPECT_EQ(by_stranger.spared, std::vector<pid_t>{member.pid});
  EXPECT_TRUE(soon([&] { return looks_ >= 2; })) << "the round that follows";
  EXPECT_TRUE(member.lives());
  EXPECT_EQ(kills_.signal(tenant, SIGKILL, std::nullopt).reached, std::vector<pid_t>{member.pid});
  EXPECT_TRUE(soon([&] { return !member.lives(); }));
}

// Both are found in one round, and by themselves neither would be in the next: who shows whose they are has gone by
// then.
TEST_F(KillRoundsTest, end_in_one_round_also_who_was_looked_at_before_it_was_known_whose_it_is) {
  Tenant& tenant = add("a", 1);
  kills_.signal(tenant, SIGKILL, std::nullopt);
  {
    const LeftBehind left([](int out) {
      int hidden[2];
      char letter = 0;
      if (::pipe(hidden) != 0) std::_Exit(77);
      if (::fork() == 0) {  // with the higher number, as a rule: looked at first
        change_root();
        if (::write(hidden[1], "x", 1) != 1) std::_Exit(77);
        stay(out);
      }
      if (::read(hidden[0], &letter, 1) != 1) std::_Exit(77);
      for (;;) ::pause();
    });
    if (!left.can_be) GTEST_SKIP() << "no mount and user namespaces can be made here";
    tenant.record.mount_namespace = left.record.mount_namespace;
    tenant.record.grant_mount = left.record.grant_mount;
    tenant.record.user = left.record.user;
    const unsigned before = looks_;
    EXPECT_TRUE(soon([&] { return looks_ > before; }));
    EXPECT_TRUE(eventually([&] { return is_empty(left.record); })) << "after the first round";
  }
}

TEST_F(KillRoundsTest, reach_who_was_forked_since_the_look_that_serves_all_who_ask_at_the_same_time) {
  int fork_now[2], forked[2];
  ASSERT_EQ(::pipe(fork_now), 0);
  ASSERT_EQ(::pipe(forked), 0);
  const pid_t root = ::fork();
  if (root == 0) {
    char letter = 0;
    if (::read(fork_now[0], &letter, 1) != 1) std::_Exit(77);
    const pid_t self = ::getpid(), child = ::fork();
    if (child != 0 && ::write(forked[1], &child, sizeof child) < 0) std::_Exit(77);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (child == 0 && ::getppid() != self) std::_Exit(0);  // it was ended before that
    for (;;) ::pause();
  }
  Tenant& tenant = add("a", 0);
  tenant.record.root_pid = root;
  tenant.record.root_ticks = *system::start_ticks(root);
  tenant.root_dead = false;
  EXPECT_EQ(kills_.signal(tenant, SIGCONT, std::nullopt).reached, std::vector<pid_t>{root});
  EXPECT_EQ(::write(fork_now[1], "x", 1), 1);
  pid_t child = 0;
  EXPECT_EQ(::read(forked[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  const auto reached = kills_.signal(tenant, SIGCONT, std::nullopt).reached;
  EXPECT_EQ(std::ranges::count(reached, child), 1);
  EXPECT_EQ(reached.size(), 2u);
  ::kill(root, SIGKILL);
  ::waitpid(root, nullptr, 0);
  for (const int fd : {fork_now[0], fork_now[1], forked[0], forked[1]}) ::close(fd);
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
