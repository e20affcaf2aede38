#include "node/hypervisor/escape.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "node/hypervisor/test_slice.h"

namespace tensor_fusion::node::hypervisor {
namespace {

Libraries maps(std::initializer_list<const char*> files) {
  Libraries seen;
  seen.note("00400000-00401000 r--p 00000000 00:01 5                  /usr/bin/python");
  seen.note("7ffd0000-7ffd1000 rw-p 00000000 00:00 0     [stack]");
  for (const char* file : files) seen.note(std::string("7f000000-7f001000 r-xp 00000000 00:01 7      ") + file);
  return seen;
}

constexpr const char* kLimiter = "/run/tensor-fusion/libtensor_fusion_limiter.so";
constexpr const char* kDriver = "/usr/lib/libcuda.so.550.54.15";

TEST(Escape, is_a_process_without_the_limiter_or_with_a_driver_that_it_never_met) {
  EXPECT_TRUE(is_past_the_limiter(maps({})));
  EXPECT_TRUE(is_past_the_limiter(maps({kDriver})));
  EXPECT_TRUE(is_past_the_limiter(maps({kLimiter, kDriver}))) << "its look-ups were led elsewhere";
  EXPECT_FALSE(is_past_the_limiter(maps({kLimiter, "/usr/lib/libEGL_nvidia.so.550"}))) << "graphics";
}

class EscapeTest : public ::testing::Test {
 protected:
  EscapeTest() {
    for (const char* folder : {"slice", "other"}) {
      static_cast<void>(system::make_directories(scratch_.path(folder)));
      static_cast<void>(system::replace_file(path(folder), std::string(4096, '\0')));
    }
    claim_ = *system::identity_of(path("slice"));
  }
  std::string path(const char* folder) const { return scratch_.path(folder) + "/claim"; }
  Escape ask() {
    MapReader reader;
    return has_escaped(::getpid(), *system::start_ticks(::getpid()), reader, {claim_, {}}, 1);
  }
  system::ScratchDirectory scratch_;
  system::FileIdentity claim_;
};

TEST_F(EscapeTest, is_seen_in_a_process_that_has_not_its_slices_claim_but_one_of_its_own) {
  const auto other = system::MappedPage::attach(path("other"), 4096, true);
  ASSERT_TRUE(other);
  EXPECT_EQ(ask(), Escape::yes);
  const auto claim = system::MappedPage::attach(path("slice"), 4096, true);
  ASSERT_TRUE(claim);
  EXPECT_EQ(ask(), Escape::no);
  ASSERT_EQ(::unlink(path("slice").c_str()), 0);
  EXPECT_EQ(ask(), Escape::no) << "its name was taken away, and it is at work";
}

TEST_F(EscapeTest, is_none_where_not_all_is_seen) {
  MapReader reader;
  EXPECT_EQ(has_escaped(2'000'000'000, 1, reader, {claim_, {}}, 1), Escape::no) << "there is none";
  Escape answer = Escape::no;
  for (int i = 0; i < 512 && answer != Escape::later; ++i) {
    ++claim_.inode;  // as many questions as there are in a period
    answer = has_escaped(::getpid(), 1, reader, {claim_, {}}, 1);
  }
  EXPECT_EQ(answer, Escape::later);
}

TEST_F(EscapeTest, is_looked_for_within_the_slices_allowance) {
  MapReader reader;
  const auto read_bytes = [] {
    const auto io = system::read_file("/proc/self/io", 4096);
    return io && io->starts_with("rchar: ") ? std::stoull(io->substr(7)) : 0;
  };
  const std::uint64_t before = read_bytes();
  if (before == 0) GTEST_SKIP() << "what a process reads is not counted here";
  std::uint64_t ticks = 1;
  while (ticks <= 512 && has_escaped(::getpid(), ticks, reader, {claim_, {}}, 1) != Escape::later) ++ticks;
  EXPECT_GT(ticks, 1u);
  EXPECT_LE(read_bytes() - before, MapReader::kBytesAPeriod * 5 / 4) << "with a line about each process";
}

TEST_F(EscapeTest, is_none_with_the_limiter_and_without_a_driver) {
  ASSERT_TRUE(system::replace_file(scratch_.path("libtensor_fusion_limiter.so"), std::string(4096, '\0')));
  const auto limiter = system::MappedPage::attach(scratch_.path("libtensor_fusion_limiter.so"), 4096, true);
  ASSERT_TRUE(limiter);
  EXPECT_EQ(ask(), Escape::no);
  ASSERT_TRUE(system::replace_file(scratch_.path("libcuda.so.1"), std::string(4096, '\0')));
  const auto driver = system::MappedPage::attach(scratch_.path("libcuda.so.1"), 4096, true);
  ASSERT_TRUE(driver);
  EXPECT_EQ(ask(), Escape::yes);
}

// A program in a namespace of its own, which the hypervisor takes for a slice's view, as it stands on the GPU.
struct Viewed {
  explicit Viewed(const std::function<void()>& body = {}, bool first_thread_ends = false) {
    int ready[2];
    if (::pipe(ready) != 0) std::abort();
    pid = ::fork();
    if (pid == 0) {
      if (::unshare(CLONE_NEWNS) != 0) std::_Exit(77);
      if (body) body();
      sigset_t told_to_end;
      ::sigemptyset(&told_to_end);
      ::sigaddset(&told_to_end, SIGUSR1);
      if (first_thread_ends) ::pthread_sigmask(SIG_BLOCK, &told_to_end, nullptr);
      if (::write(ready[1], "x", 1) != 1) std::_Exit(1);
      if (first_thread_ends) {
        std::thread([] {
          for (;;) ::pause();
        }).detach();
        int told = 0;
        ::sigwait(&told_to_end, &told);
        ::syscall(SYS_exit, 0);
      }
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char word = 0;
    has_view = ::read(ready[0], &word, 1) == 1;
    ::close(ready[0]);
  }
  ~Viewed() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  std::string on_gpu() const { return "process " + std::to_string(pid) + " GPU-0000 4096 0\n"; }
  bool is_alive() const { return !system::process_stat(pid)->dead(); }
  pid_t pid = -1;
  bool has_view = false;
};

TEST(Hypervisor, ends_in_a_view_who_left_the_limiter_out_however_long_it_takes_to_see) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Viewed program([] {  // more in its memory than is read at once
    for (int i = 0; i < 20'000; ++i)
      if (::mmap(nullptr, 4096, i % 2 ? PROT_READ : PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
        std::_Exit(1);
  });
  Slice slice(daemon, request("a"));  // later than the program, which would have its claim in its memory
  if (!program.has_view) GTEST_SKIP() << "no mount namespace can be made here";
  ASSERT_TRUE(slice.start(program.pid));
  daemon.world(program.on_gpu());
  EXPECT_TRUE(eventually([&] { return daemon.has_event("unlimited", "was ended"); }));
  EXPECT_TRUE(eventually([&] { return !program.is_alive(); }));
}

TEST(Hypervisor, ends_in_a_view_who_left_the_limiter_out_behind_a_path_of_any_length) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const system::ScratchDirectory scratch;
  Viewed program([&] {
    if (!map_long_path(scratch.path(""))) std::_Exit(1);
  });
  Slice slice(daemon, request("a"));
  if (!program.has_view) GTEST_SKIP() << "no mount namespace can be made here";
  ASSERT_TRUE(slice.start(program.pid));
  daemon.world(program.on_gpu());
  EXPECT_TRUE(eventually([&] { return daemon.has_event("unlimited", "was ended"); }));
  EXPECT_TRUE(eventually([&] { return !program.is_alive(); }));
}

TEST(Hypervisor, ends_in_a_view_who_left_the_limiter_out_and_goes_on_without_its_first_thread) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer's own thread lives on, outside of the view";
#endif
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Viewed program({}, true);
  Slice slice(daemon, request("a"));
  if (!program.has_view) GTEST_SKIP() << "no mount namespace can be made here";
  ASSERT_TRUE(slice.start(program.pid));
  ::kill(program.pid, SIGUSR1);
  ASSERT_TRUE(eventually([&] { return system::process_stat(program.pid)->state == 'Z'; }));
  daemon.world(program.on_gpu());
  EXPECT_TRUE(eventually([&] { return daemon.has_event("unlimited", "was ended"); }));
  EXPECT_TRUE(eventually([&] { return !program.is_alive(); }));
}

TEST(Hypervisor, ends_nobody_who_has_a_claim_whose_name_was_taken_away) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  const std::string claim = slice.reply.slice_directory + "/claim";
  static system::MappedPage page;
  Viewed program([&] {
    page = *system::MappedPage::attach(claim, sizeof(contract::ClaimPage), true);
    if (::unlink(claim.c_str()) != 0) std::_Exit(1);
  });
  if (!program.has_view) GTEST_SKIP() << "no mount namespace can be made here";
  ASSERT_TRUE(slice.start(program.pid));
  daemon.world(program.on_gpu());
  EXPECT_TRUE(eventually([&] { return daemon.has_event("unlimited", "uses the GPU without a live limiter"); }));
  EXPECT_TRUE(program.is_alive());
}

TEST(Hypervisor, ends_nobody_who_has_got_its_claim_since_it_was_seen_without) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  int go[2], done[2];
  ASSERT_EQ(::pipe(go), 0);
  ASSERT_EQ(::pipe(done), 0);
  std::string claim(4096, '\0');
  static system::MappedPage page;
  Viewed program([&] {  // before the slice, whose claim it would have in its memory
    std::thread([&] {
      if (::read(go[0], claim.data(), claim.size()) <= 0) std::_Exit(1);
      page = *system::MappedPage::attach(claim, sizeof(contract::ClaimPage), true);
      if (::write(done[1], "x", 1) != 1) std::_Exit(1);
    }).detach();
  });
  Slice slice(daemon, request("a"));
  if (!program.has_view) GTEST_SKIP() << "no mount namespace can be made here";
  ASSERT_TRUE(slice.start(program.pid));
  daemon.world(program.on_gpu());
  ASSERT_TRUE(eventually([&] { return daemon.client().list().value()["unlimited"].items().size() == 1; }));
  // It stands till the claim is there: soon after it has seen somebody without one it ends who has none yet.
  int status = 0;
  ASSERT_EQ(::kill(daemon.pid(), SIGSTOP), 0);
  ASSERT_EQ(::waitpid(daemon.pid(), &status, WUNTRACED), daemon.pid());
  const std::string path = slice.reply.slice_directory + "/claim";
  ASSERT_GT(::write(go[1], path.c_str(), path.size() + 1), 0);
  char letter = 0;
  ASSERT_EQ(::read(done[0], &letter, 1), 1);
  ASSERT_EQ(::kill(daemon.pid(), SIGCONT), 0);
  EXPECT_TRUE(eventually([&] { return daemon.has_event("unlimited", ""); }));
  EXPECT_FALSE(daemon.has_event("unlimited", "was ended"));
  EXPECT_TRUE(program.is_alive());
  for (const int fd : {go[0], go[1], done[0], done[1]}) ::close(fd);
}

TEST(Hypervisor, ends_nobody_of_a_slice_whose_record_says_not_what_its_run_allowed) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Viewed program;
  Slice slice(daemon, request("a"));
  if (!program.has_view) GTEST_SKIP() << "no mount namespace can be made here";
  ASSERT_TRUE(slice.start(program.pid));
  daemon.kill();
  const std::string file = daemon.state() + "/records/" + slice.reply.id + ".json";
  base::Json record = *base::Json::parse(*system::read_file(file));
  ASSERT_TRUE(record["ends_unlimited"].as_bool());
  record.set("ends_unlimited", nullptr);
  ASSERT_TRUE(system::replace_file(file, record.dump()));
  daemon.world(program.on_gpu());
  ASSERT_TRUE(daemon.start());
  EXPECT_TRUE(eventually([&] { return daemon.has_event("unlimited", "uses the GPU without a live limiter"); }));
  EXPECT_TRUE(program.is_alive());
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
