// Processes that use a GPU without a limiter, and none of them for long.
#include "node/hypervisor/unlimited_watch.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>

#include "node/hypervisor/test_slice.h"

namespace tensor_fusion::node::hypervisor {
namespace {

// One after the other, each until it was seen, when nobody is told of yet, in a mount namespace of their own or not.
class Chain {
 public:
  explicit Chain(bool has_view, const std::function<void()>& body = {}) {
    int out[2], begin[2];
    if (::pipe(out) != 0 || ::pipe(begin) != 0) std::abort();
    pid = ::fork();
    if (pid == 0) {
      char go = has_view && ::unshare(CLONE_NEWNS) != 0 ? 'n' : 'y';
      if (::write(out[1], &go, 1) != 1 || ::read(begin[0], &go, 1) != 1) std::_Exit(1);
      for (const pid_t parent = ::getpid();;) {
        const pid_t link = ::fork();
        if (link == 0) {
          ::prctl(PR_SET_PDEATHSIG, SIGKILL);
          if (::getppid() != parent) std::_Exit(1);  // it was ended before
          if (body) body();
          const pid_t self = ::getpid();
          if (::write(out[1], &self, sizeof self) != sizeof self) std::_Exit(1);
          for (;;) ::pause();
        }
        ::waitpid(link, nullptr, 0);
      }
    }
    ::close(out[1]);
    ::close(begin[0]);
    out_ = out[0];
    begin_ = begin[1];
    char answer = 'n';
    can_be = ::read(out_, &answer, 1) == 1 && answer == 'y';
  }
  ~Chain() {
    if (last_ > 0) ::kill(last_, SIGKILL);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    ::close(out_);
    ::close(begin_);
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;
  // Each is on the GPU till it was seen there, until `done` or after so many.
  int run(TestDaemon& daemon, int most, const std::function<bool()>& done) {
    if (::write(begin_, "g", 1) != 1) return -1;
    int links = 0;
    while (links < most && !done() && ::read(out_, &last_, sizeof last_) == sizeof last_) {
      daemon.world("process " + std::to_string(last_) + " GPU-0000 4096 0\n");
      ++links;
      EXPECT_TRUE(eventually([&] { return is_seen(daemon) || done() || !system::is_alive(last_, ticks_of(last_)); }));
      ::kill(last_, SIGKILL);
    }
    daemon.world("");
    return links;
  }
  // The next, which stays on the GPU till somebody ends it.
  pid_t next(TestDaemon& daemon) {
    if (last_ == 0 && ::write(begin_, "g", 1) != 1) return -1;
    if (::read(out_, &last_, sizeof last_) != sizeof last_) return -1;
    daemon.world("process " + std::to_string(last_) + " GPU-0000 4096 0\n");
    return last_;
  }
  pid_t pid = -1;
  bool can_be = false;

  bool is_seen(const TestDaemon& daemon) const {
    const auto list = daemon.client().list();
    return list && std::ranges::any_of((*list)["unlimited"].items(),
                                       [this](const base::Json& one) { return one["pid"].as_int() == last_; });
  }

 private:
  static std::uint64_t ticks_of(pid_t process) { return system::start_ticks(process).value_or(0); }
  int out_ = -1, begin_ = -1;
  pid_t last_ = 0;
};

TEST(UnlimitedWatch, counts_together_what_processes_of_a_slice_do_that_follow_each_other) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Chain chain(true);
  Slice slice(daemon, request("a"));
  if (!chain.can_be) GTEST_SKIP() << "no mount namespace can be made here";
  ASSERT_TRUE(slice.start(chain.pid));
  const auto ended = [&] { return daemon.has_event("unlimited", "was ended"); };
  EXPECT_LE(chain.run(daemon, 30, ended), 12);
  EXPECT_TRUE(ended());
  const base::Json events = daemon.client().events().value();
  EXPECT_EQ(std::ranges::count_if(events["events"].items(),
                                  [](const base::Json& event) {
                                    return event["kind"].as_string() == "unlimited" &&
                                           event["message"].as_string().find("was ended") != std::string::npos;
                                  }),
            1)
      << "and says so once in a while";
}

// More in its memory than is read twice at once: it may have gone when it is decided what it is, and no more is told of
// it than that it was there. Those that follow are ended.
TEST(UnlimitedWatch, tells_that_it_ends_processes_although_it_has_told_of_one_that_had_gone) {
  TestDaemon daemon;
  daemon.options.measure_ms = 150;  // it is decided before the driver is read again
  ASSERT_TRUE(daemon.start());
  Chain chain(true, [] {
    for (int i = 0; i < 3600; ++i)
      if (::mmap(nullptr, 4096, i % 2 ? PROT_READ : PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
        std::_Exit(1);
  });
  Slice slice(daemon, request("a"));
  if (!chain.can_be) GTEST_SKIP() << "no mount namespace can be made here";
  ASSERT_TRUE(slice.start(chain.pid));
  const auto told = [&] { return daemon.has_event("unlimited", ""); };
  for (const std::uint64_t end = system::monotonic_ns() + 10'000'000'000; !told() && system::monotonic_ns() < end;) {
    const pid_t link = chain.next(daemon);
    ASSERT_GT(link, 0);
    ASSERT_TRUE(eventually([&] { return chain.is_seen(daemon) || told(); }));
    ::kill(link, SIGKILL);
  }
  if (!told()) GTEST_SKIP() << "none had gone between being seen and being judged";
  if (daemon.has_event("unlimited", "was ended")) GTEST_SKIP() << "the test itself was kept from coming in time";
  ASSERT_GT(chain.next(daemon), 0);
  EXPECT_TRUE(eventually([&] { return daemon.has_event("unlimited", "was ended"); }));
}

TEST(UnlimitedWatch, counts_against_no_slice_what_another_of_its_name_did) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const auto ended = [&] { return daemon.has_event("unlimited", "was ended"); };
  {
    Chain chain(true);
    Slice slice(daemon, request("a"));
    if (!chain.can_be) GTEST_SKIP() << "no mount namespace can be made here";
    ASSERT_TRUE(slice.start(chain.pid));
    chain.run(daemon, 30, ended);
    ASSERT_TRUE(ended());
  }
  ASSERT_TRUE(eventually([&] { return daemon.client().list().value()["tenants"].items().empty(); }));
  const auto endings = [&] {
    const base::Json events = daemon.client().events().value();
    return std::ranges::count_if(events["events"].items(), [](const base::Json& event) {
      return event["kind"].as_string() == "unlimited" &&
             event["message"].as_string().find("was ended") != std::string::npos;
    });
  };
  const auto before = endings();
  Chain chain(true);
  Slice slice(daemon, request("a"));
  ASSERT_TRUE(slice.start(chain.pid));
  // One: what the other had used up would end it, and a second may stay for long on a busy machine.
  EXPECT_EQ(chain.run(daemon, 1, [] { return false; }), 1);
  EXPECT_EQ(endings(), before);
}

TEST(UnlimitedWatch, counts_together_what_processes_of_a_user_do_outside_of_slices) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Chain chain(false);
  const auto told = [&] { return daemon.has_event("unlimited", "uses the GPU without a live limiter"); };
  EXPECT_LE(chain.run(daemon, 30, told), 12);
  EXPECT_TRUE(told());
}

TEST(UnlimitedWatch, tells_of_one_that_stays_also_shortly_after_those_that_did_not) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Chain chain(false);
  const auto told = [&] { return daemon.has_event("unlimited", "uses the GPU without a live limiter"); };
  chain.run(daemon, 12, told);
  ASSERT_TRUE(told());
  const Child lasting;
  daemon.world("process " + std::to_string(lasting.pid) + " GPU-0000 4096 0\n");
  EXPECT_TRUE(
      eventually([&] { return daemon.has_event("unlimited", "process " + std::to_string(lasting.pid) + " "); }));
}

TEST(UnlimitedWatch, counts_nobody_who_is_about_to_be_seen_to_have_its_limiter) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Chain chain(true);  // has the slice's claim in its memory, as a limiter would
  if (!chain.can_be) GTEST_SKIP() << "no mount namespace can be made here";
  ASSERT_TRUE(slice.start(chain.pid));
  EXPECT_EQ(chain.run(daemon, 12, [&] { return daemon.has_event("unlimited", ""); }), 12);
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
