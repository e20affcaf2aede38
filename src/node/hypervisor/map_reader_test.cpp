#include "node/hypervisor/map_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "node/hypervisor/test_slice.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using Answer = MapReader::Answer;

// Adds so many lines of some fifty letters to this process's list, and to those of its children made meanwhile.
class LongList {
 public:
  explicit LongList(int lines) {
    for (int i = 0; i < lines / 2; ++i) {
      void* page = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (page == MAP_FAILED) std::abort();
      pages_.push_back(page);
      if (::mprotect(page, kBytes / 2, PROT_READ | PROT_WRITE) != 0) std::abort();
    }
  }
  ~LongList() {
    for (void* page : pages_) ::munmap(page, kBytes);
  }
  LongList(const LongList&) = delete;
  LongList& operator=(const LongList&) = delete;

 private:
  static constexpr std::size_t kBytes = 2 * 4096;
  std::vector<void*> pages_;
};

class MapReaderTest : public ::testing::Test {
 protected:
  MapReaderTest() {
    char folder[] = "/tmp/map-reader-XXXXXX";
    folder_ = ::mkdtemp(folder);
    file_ = system::Fd(::open((folder_ + "/claim").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(::ftruncate(file_.get(), 4096), 0);
    identity_ = *system::identity_of(file_.get());
  }
  ~MapReaderTest() override {
    unmap();
    std::filesystem::remove_all(folder_);
  }
  void map() { page_ = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0); }
  void unmap() {
    if (page_ != MAP_FAILED) ::munmap(page_, 4096);
    page_ = MAP_FAILED;
  }
  Answer ask(std::uint64_t now_ns) { return reader_.has_mapped(::getpid(), ticks_, identity_, "claim", now_ns); }

  MapReader reader_;
  std::string folder_;
  system::Fd file_;
  system::FileIdentity identity_;
  void* page_ = MAP_FAILED;
  std::uint64_t ticks_ = *system::start_ticks(::getpid());
  static constexpr std::uint64_t kStart = 1'000'000'000'000;
};

TEST_F(MapReaderTest, sees_the_page_in_memory) {
  map();
  EXPECT_EQ(ask(kStart), Answer::yes);
}

TEST_F(MapReaderTest, sees_it_when_it_has_lost_its_name) {
  map();
  std::filesystem::remove(folder_ + "/claim");
  EXPECT_EQ(ask(kStart), Answer::yes);
}

// A process may map what it likes, of whatever name.
TEST_F(MapReaderTest, believes_no_path_that_only_looks_like_it) {
  const std::string inode = " " + std::to_string(identity_.inode) + " ";
  for (const std::string& name : {inode + "claim", "a" + inode + "x/claim", std::string("claim/no"),
                                  std::string("reclaim"), std::string("claim (deleted)/no")}) {
    const std::string path = folder_ + "/of/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    const system::Fd other(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::ftruncate(other.get(), 4096), 0) << path;
    void* page = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, other.get(), 0);
    ASSERT_NE(page, MAP_FAILED);
    EXPECT_EQ(MapReader().has_mapped(::getpid(), ticks_, identity_, "claim", kStart), Answer::no) << path;
    ::munmap(page, 4096);
    std::filesystem::remove_all(folder_ + "/of");
  }
}

TEST_F(MapReaderTest, keeps_a_no_for_a_while_and_a_yes_for_good) {
  EXPECT_EQ(ask(kStart), Answer::no);
  map();
  EXPECT_EQ(ask(kStart + MapReader::kNoHoldsNs / 2), Answer::no);
  EXPECT_EQ(ask(kStart + MapReader::kNoHoldsNs), Answer::yes);
  unmap();
  EXPECT_EQ(ask(kStart + 10 * MapReader::kNoHoldsNs), Answer::yes);
  ++ticks_;  // another process of that number
  EXPECT_EQ(ask(kStart + 10 * MapReader::kNoHoldsNs), Answer::no);
}

TEST_F(MapReaderTest, reads_a_long_list_in_several_periods) {
  const LongList lines(20'000);
  std::uint64_t now_ns = kStart;
  ASSERT_EQ(ask(now_ns), Answer::later);
  EXPECT_EQ(ask(now_ns), Answer::later) << "the period's share is read";
  int periods = 1;
  Answer answer = Answer::later;
  for (; answer == Answer::later && periods < 100; ++periods) answer = ask(now_ns += MapReader::kPeriodNs);
  EXPECT_EQ(answer, Answer::no);
  EXPECT_GE(periods, 3);
}

TEST_F(MapReaderTest, begins_anew_where_something_else_is_executed_meanwhile) {
  const std::string program = folder_ + "/program";
  std::filesystem::copy_file("/bin/sleep", program);
  int go[2];
  ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
  const LongList lines(20'000);
  const pid_t child = ::fork();
  if (child == 0) {
    char letter = 0;
    if (::read(go[0], &letter, 1) == 1) ::execl(program.c_str(), "sleep", "1000", nullptr);
    std::_Exit(1);
  }
  const std::uint64_t ticks = *system::start_ticks(child);
  const auto file = *system::identity_of(program);
  const auto asked = [&](std::uint64_t now_ns) { return reader_.has_mapped(child, ticks, file, "program", now_ns); };
  EXPECT_EQ(asked(kStart), Answer::later);
  EXPECT_EQ(::write(go[1], "x", 1), 1);
  ASSERT_TRUE(eventually([child] {  // the kernel says where its code begins once it has mapped that
    const auto stat = system::process_stat(child);
    return stat && stat->name == "program" && stat->layout[0] != 0;
  }));
  EXPECT_EQ(asked(kStart + MapReader::kPeriodNs), Answer::yes);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int fd : go) ::close(fd);
}

TEST_F(MapReaderTest, reads_past_a_path_of_any_length) {
  const system::ScratchDirectory scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    if (!map_long_path(scratch.path(""))) std::_Exit(1);
    map();
    ::raise(SIGSTOP);
    unmap();
    for (;;) ::pause();
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status)) << "such a path cannot be made here";
  const std::uint64_t ticks = *system::start_ticks(child);
  const auto asked = [&](std::uint64_t now_ns) {
    return MapReader().has_mapped(child, ticks, identity_, "claim", now_ns);
  };
  EXPECT_EQ(asked(kStart), Answer::yes);
  ::kill(child, SIGCONT);
  EXPECT_TRUE(eventually([&] { return asked(kStart) == Answer::no; })) << "and all of it was read";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(MapReaderTest, gives_up_nobody_whom_it_reads_for_who_comes) {
  map();
  const LongList lines(20'000);
  std::uint64_t ticks = ticks_ + 1, now_ns = kStart;  // others, by their start
  const auto other = [&] { return reader_.has_mapped(::getpid(), ticks, {0, 1, 0}, "none", now_ns); };
  for (; ticks <= ticks_ + 200; ++ticks) EXPECT_EQ(other(), Answer::later);
  Answer answer = Answer::later;
  for (int period = 0; period < 200 && answer == Answer::later; ++period) {
    now_ns += MapReader::kPeriodNs;
    answer = ask(now_ns);
    for (ticks = ticks_ + 1; ticks <= ticks_ + 200; ++ticks) static_cast<void>(other());
  }
  EXPECT_EQ(answer, Answer::yes) << "it has its turn";
}

TEST_F(MapReaderTest, opens_only_so_many_in_a_period) {
  const pid_t self = ::getpid();
  int asked = 0;
  for (std::uint64_t ticks = 1; ticks <= 512; ++ticks)
    if (reader_.has_mapped(self, ticks, identity_, "claim", kStart) != Answer::later) ++asked;
  EXPECT_GT(asked, 0);
  EXPECT_LE(asked, 64);
}

TEST_F(MapReaderTest, tells_what_it_cannot_see_from_a_no) {
  EXPECT_EQ(reader_.has_mapped(0x3ffffff, 1, identity_, "claim", kStart), Answer::unseen) << "there is none";
}

TEST_F(MapReaderTest, takes_no_thread_of_the_kernel_for_one_that_is_ending) {
  for (const pid_t pid : system::all_processes().value_or(std::vector<pid_t>())) {
    const auto stat = system::process_stat(pid);
    if (!stat || !stat->of_kernel) continue;
    EXPECT_EQ(reader_.has_mapped(pid, stat->start_ticks, identity_, "claim", kStart), Answer::no) << stat->name;
    return;
  }
  GTEST_SKIP() << "no thread of the kernel is to be seen here";
}

TEST(Hypervisor, takes_in_a_process_with_more_in_its_memory_than_is_read_at_once) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Child root;
  ASSERT_TRUE(slice.start(root.pid));
  const LongList lines(20'000);
  const TestProcess attached(slice.reply.slice_directory, 1 << 20);
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
