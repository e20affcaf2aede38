#include "node/hypervisor/slot_search.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "system/clock.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using system::Life;

SlotView slot_of(pid_t pid, std::uint64_t start_ticks, std::uint64_t pid_namespace) {
  SlotView slot;
  slot.pid = static_cast<std::uint32_t>(pid);
  slot.start_ticks = start_ticks;
  slot.pid_namespace = pid_namespace;
  return slot;
}

TenantRecord slice_of(uid_t user) {
  TenantRecord record;
  record.user = user;
  return record;
}

// The first process of a pid namespace, which calls itself 1.
struct First {
  First() {
    int pipe[2];
    if (::pipe(pipe) != 0) return;
    const pid_t maker = ::fork();
    if (maker == 0) {
      pid_t first = ::unshare(CLONE_NEWPID) == 0 ? ::fork() : -1;
      if (first == 0)
        for (;;) ::pause();
      ::_exit(::write(pipe[1], &first, sizeof first) == sizeof first ? 0 : 1);
    }
    if (::read(pipe[0], &pid, sizeof pid) != sizeof pid) pid = -1;
    ::close(pipe[0]);
    ::close(pipe[1]);
    ::waitpid(maker, nullptr, 0);
  }
  ~First() {
    if (pid > 0) ::kill(pid, SIGKILL);
  }
  First(const First&) = delete;
  First& operator=(const First&) = delete;
  SlotView slot() const {
    return slot_of(1, system::start_ticks(pid).value_or(0), system::namespace_inode(pid, "pid"));
  }
  pid_t pid = -1;
};

TEST(SlotSearch, finds_who_has_another_name_in_its_own_pid_namespace) {
  const First first;
  if (first.pid < 0) GTEST_SKIP() << "no pid namespace can be made here";
  SlotSearch search;
  const TenantRecord record = slice_of(::geteuid());
  const auto found = search.find(first.slot(), system::monotonic_ns(), record, nullptr);
  EXPECT_EQ(found.life, Life::lives);
  EXPECT_EQ(found.pid, first.pid);
}

TEST(SlotSearch, finds_who_came_after_its_last_list) {
  SlotSearch search;
  const TenantRecord record = slice_of(::geteuid());
  EXPECT_EQ(search.find(slot_of(1, 1, 1), system::monotonic_ns(), record, nullptr).life, Life::gone);
  const First first;
  if (first.pid < 0) GTEST_SKIP() << "no pid namespace can be made here";
  EXPECT_EQ(search.find(first.slot(), system::monotonic_ns(), record, nullptr).pid, first.pid);
  EXPECT_EQ(search.lists(), 2u);
}

TEST(SlotSearch, takes_one_list_for_all_slots_that_were_read_before_it) {
  SlotSearch search;
  const TenantRecord record;
  const std::uint64_t read_ns = system::monotonic_ns();
  for (pid_t pid = 1; pid <= 512; ++pid)
    EXPECT_EQ(search.find(slot_of(pid, 1, 1), read_ns, record, nullptr).life, Life::gone);
  EXPECT_EQ(search.lists(), 1u);
}

TEST(SlotSearch, looks_for_nobody_while_the_slices_allowance_is_spent) {
  const TenantRecord record;
  SlotSearch search;
  Allowance mine, anothers;
  const std::uint64_t now = system::monotonic_ns();
  mine.spend(now, now + Allowance::kNsAPeriod);
  EXPECT_EQ(search.find(slot_of(1, 1, 1), system::monotonic_ns(), record, &mine).life, Life::unknown);
  EXPECT_EQ(search.lists(), 0u);
  EXPECT_EQ(search.find(slot_of(1, 1, 1), system::monotonic_ns(), record, &anothers).life, Life::gone);
}

TEST(SlotSearch, believes_no_slot_that_names_another_users_process) {
  SlotSearch search;
  const SlotView slot = slot_of(::getpid(), system::start_ticks(::getpid()).value_or(0), 0);
  EXPECT_EQ(search.find(slot, system::monotonic_ns(), slice_of(::geteuid()), nullptr).pid, ::getpid());
  EXPECT_EQ(search.find(slot, system::monotonic_ns(), slice_of(::geteuid() + 1), nullptr).life, Life::gone);
}

// It ends never, and would keep the slice.
TEST(SlotSearch, a_thread_of_the_kernel_is_nobodys_even_if_root_claims_it) {
  for (const pid_t pid : system::all_processes().value_or(std::vector<pid_t>())) {
    const auto stat = system::process_stat(pid);
    if (!stat || !stat->of_kernel) continue;
    const SlotView slot = slot_of(pid, stat->start_ticks, 0);
    EXPECT_EQ(SlotSearch().find(slot, system::monotonic_ns(), TenantRecord{}, nullptr).life, Life::gone) << stat->name;
    return;
  }
  GTEST_SKIP() << "no thread of the kernel is to be seen here";
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
