#include "node/hypervisor/limiter_proof.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "node/hypervisor/test_slice.h"

namespace tensor_fusion::node::hypervisor {
namespace {

// In the memory of another that goes on, also in what a sanitizer and the C library keep there for its thread: it asks
// nobody but the kernel.
struct Beside {
  volatile pid_t parent = 0;
  volatile bool begun = false;
};
__attribute__((no_sanitize("thread"))) int stay_beside(void* given) {
  auto& beside = *static_cast<Beside*>(given);
  beside.begun = true;
  ::syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  if (::syscall(SYS_getppid) != beside.parent) ::syscall(SYS_exit_group, 0);  // it was ended before that
  for (;;) ::syscall(SYS_ppoll, nullptr, 0, nullptr, nullptr, 0);
}
// Whoever is wrapped around `clone` hands on what to run from its own frame: nothing is called before that has begun.
__attribute__((no_sanitize("thread"), noinline)) bool begin_beside(char* end_of_stack, Beside& beside) {
  if (::clone(stay_beside, end_of_stack, CLONE_VM | SIGCHLD, &beside) < 0) return false;
  while (!beside.begun) continue;
  return true;
}

class LimiterProofTest : public ::testing::Test {
 protected:
  LimiterProofTest() {
    for (const char* name : {"claim", "libtensor_fusion_limiter.so"})
      static_cast<void>(system::replace_file(scratch_.path(name), std::string(4096, '\0')));
    files_ = {*system::identity_of(scratch_.path("claim")),
              system::identity_of(scratch_.path("libtensor_fusion_limiter.so"))};
  }
  // A child with these in its memory, which executes something else when it gets a letter.
  void start(const std::vector<std::string>& mapped, bool shares_memory = false, int other_maps = 0) {
    int ready[2];
    if (::pipe(ready) != 0 || ::pipe2(go_, O_CLOEXEC) != 0) std::abort();
    child_ = ::fork();
    if (child_ == 0) {
      std::vector<system::MappedPage> pages;
      for (const std::string& name : mapped)
        pages.push_back(*system::MappedPage::attach(scratch_.path(name), 4096, true));
      constexpr std::size_t kPage = 4096;
      for (int i = 0; i < other_maps; ++i) {  // two lines each, below those
        void* two = ::mmap(nullptr, 2 * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (two == MAP_FAILED || ::mprotect(two, kPage, PROT_READ | PROT_WRITE) != 0) std::_Exit(1);
      }
      static char stack[16384];
      static Beside beside;
      beside.parent = ::getpid();
      if (shares_memory && !begin_beside(stack + sizeof stack, beside)) std::_Exit(1);
      char letter = 'x';
      if (::write(ready[1], &letter, 1) != 1 || ::read(go_[0], &letter, 1) != 1) std::_Exit(1);
      ::execl("/bin/sleep", "sleep", "1000", nullptr);
      std::_Exit(1);
    }
    char letter = 0;
    ::close(ready[1]);
    EXPECT_EQ(::read(ready[0], &letter, 1), 1);
    ::close(ready[0]);
    ticks_ = *system::start_ticks(child_);
  }
  ~LimiterProofTest() override {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    for (const int fd : go_) ::close(fd);
  }
  bool holds() { return proof_.holds(child_, ticks_, reader_, files_, now_ns_ += 2'000'000'000); }

  system::ScratchDirectory scratch_;
  SliceFiles files_;
  MapReader reader_;
  LimiterProof proof_;
  int go_[2] = {-1, -1};
  pid_t child_ = -1;
  std::uint64_t ticks_ = 0, now_ns_ = 1;
};

TEST_F(LimiterProofTest, is_the_claim_and_the_limiter_in_its_memory) {
  start({"claim", "libtensor_fusion_limiter.so"});
  EXPECT_TRUE(holds());
  EXPECT_TRUE(holds());
}

TEST_F(LimiterProofTest, is_not_the_claim_alone_where_the_limiters_file_is_known) {
  start({"claim"});
  EXPECT_FALSE(holds());
  files_.limiter = std::nullopt;
  EXPECT_TRUE(holds());
}

TEST_F(LimiterProofTest, is_not_the_limiter_alone) {
  start({"libtensor_fusion_limiter.so"});
  EXPECT_FALSE(holds());
}

TEST_F(LimiterProofTest, is_not_what_is_not_to_be_seen) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  start({"claim", "libtensor_fusion_limiter.so"});
  ASSERT_EQ(::seteuid(65534), 0);
  const bool hidden = holds();
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_FALSE(hidden);
  EXPECT_TRUE(holds());
}

// Of many that start at once each has its turn, which takes longer than to read one of them.
TEST_F(LimiterProofTest, may_wait_for_its_turn_but_not_for_ever) {
  start({"claim", "libtensor_fusion_limiter.so"});
  const auto while_others_are_read = [&](std::uint64_t now_ns) {
    for (std::uint64_t ticks = 1; ticks <= 512; ++ticks)
      static_cast<void>(reader_.has_mapped(::getpid(), ticks, files_.claim, "claim", now_ns));
    return proof_.holds(child_, ticks_, reader_, files_, now_ns);
  };
  EXPECT_TRUE(while_others_are_read(1));
  EXPECT_TRUE(while_others_are_read(2 * LimiterProof::kSeenInNs));
  EXPECT_TRUE(while_others_are_read(LimiterProof::kWaitsForNs));
  EXPECT_FALSE(while_others_are_read(LimiterProof::kWaitsForNs + 1 + MapReader::kPeriodNs));
  EXPECT_TRUE(proof_.holds(child_, ticks_, reader_, files_, 2 * LimiterProof::kWaitsForNs)) << "when it was seen";
}

TEST_F(LimiterProofTest, may_be_looked_for_so_long_once_its_list_is_read) {
  constexpr int kMaps = 10'000;  // a megabyte of lines before those that count
  start({"claim", "libtensor_fusion_limiter.so"}, false, kMaps);
  const auto holds_at = [&](std::uint64_t now_ns) { return proof_.holds(child_, ticks_, reader_, files_, now_ns); };
  EXPECT_TRUE(holds_at(1));
  EXPECT_TRUE(holds_at(LimiterProof::kSeenInNs));
  std::uint64_t now_ns = LimiterProof::kSeenInNs + 1 + MapReader::kPeriodNs;
  EXPECT_FALSE(holds_at(now_ns));
  int periods = 0;
  while (periods < 100 && !holds_at(now_ns += MapReader::kPeriodNs)) ++periods;
  EXPECT_LT(periods, 100) << "it is read on, and seen";
}

TEST_F(LimiterProofTest, ends_with_the_program_that_it_is_of) {
  start({"claim", "libtensor_fusion_limiter.so"});
  EXPECT_TRUE(holds());
  ASSERT_EQ(::write(go_[1], "x", 1), 1);
  EXPECT_TRUE(eventually([&] { return !holds(); })) << "the same process, and it executes something else";
}

TEST_F(LimiterProofTest, ends_with_the_program_although_its_memory_lives_on_in_a_child) {
  start({"claim", "libtensor_fusion_limiter.so"}, true);
  EXPECT_TRUE(holds());
  ASSERT_EQ(::write(go_[1], "x", 1), 1);
  EXPECT_TRUE(eventually([&] { return !holds(); }));
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
