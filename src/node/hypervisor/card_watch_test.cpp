#include "node/hypervisor/card_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "system/file.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {
namespace {

class CardWatchTest : public ::testing::Test {
 protected:
  std::string card(const std::string& name) {
    EXPECT_TRUE(system::replace_file(scratch_.path(name), "x"));
    return scratch_.path(name);
  }
  system::ScratchDirectory scratch_;
  std::unique_ptr<system::Loop> loop_ = *system::Loop::make();
  const std::string us_ = "process " + std::to_string(::getpid()) + " of user " + std::to_string(::geteuid());
};

TEST_F(CardWatchTest, tells_both_of_each_other) {
  const std::string nvidia0 = card("nvidia0");
  CardWatch first(*loop_), second(*loop_);
  EXPECT_EQ(first.look("GPU-a", nvidia0), "");
  EXPECT_EQ(first.look("GPU-a", nvidia0), "") << "not of itself";
  EXPECT_EQ(second.look("GPU-a", nvidia0), us_);
  EXPECT_EQ(first.look("GPU-a", nvidia0), us_);
}

TEST_F(CardWatchTest, knows_the_card_by_any_path_and_forgets_who_has_gone) {
  const std::string nvidia0 = card("nvidia0");
  std::filesystem::create_hard_link(nvidia0, scratch_.path("other"));
  CardWatch first(*loop_);
  EXPECT_EQ(first.look("GPU-a", nvidia0), "");
  {
    CardWatch second(*loop_);
    EXPECT_EQ(second.look("GPU-a", scratch_.path("other")), us_);
  }
  EXPECT_EQ(first.look("GPU-a", nvidia0), "");
}

TEST_F(CardWatchTest, takes_cards_of_other_machines_for_others_even_if_their_uuids_are_equal) {
  CardWatch first(*loop_), second(*loop_);
  EXPECT_EQ(first.look("GPU-a", card("nvidia0")), "");
  EXPECT_EQ(second.look("GPU-a", card("nvidia1")), "");
  EXPECT_EQ(second.look("GPU-b", card("nvidia0")), "");
  EXPECT_EQ(second.look("GPU-a", ""), "");
  EXPECT_EQ(second.look("GPU-a", scratch_.path("none")), "");
}

TEST_F(CardWatchTest, answers_however_often_it_is_asked) {
  const std::string nvidia0 = card("nvidia0");
  CardWatch first(*loop_), second(*loop_);
  EXPECT_EQ(first.look("GPU-a", nvidia0), "");
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(second.look("GPU-a", nvidia0), us_) << i;
    loop_->run_once(0);
  }
}

// As long as it lives, nothing more can be opened.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST_F(CardWatchTest, takes_nobody_for_gone_whom_it_has_no_descriptor_to_ask) {
  const std::string nvidia0 = card("nvidia0");
  CardWatch first(*loop_), second(*loop_);
  EXPECT_EQ(first.look("GPU-a", nvidia0), "");
  EXPECT_EQ(second.look("GPU-a", nvidia0), us_);
  {
    const NoDescriptors none;
    EXPECT_EQ(second.look("GPU-a", nvidia0), us_);
  }
  EXPECT_EQ(second.look("GPU-a", nvidia0), us_);
}

TEST_F(CardWatchTest, answers_again_when_it_has_descriptors_again) {
  const std::string nvidia0 = card("nvidia0");
  CardWatch first(*loop_), second(*loop_);
  EXPECT_EQ(first.look("GPU-a", nvidia0), "");
  EXPECT_EQ(second.look("GPU-a", nvidia0), us_);
  loop_->run_once(0);  // a sanitizer needs descriptors to check a type that it has not met
  EXPECT_EQ(second.look("GPU-a", nvidia0), us_);
  {
    const NoDescriptors none;
    loop_->run_once(0);
  }
  constexpr int kMoreThanMayWait = 20;
  for (int i = 0; i < kMoreThanMayWait; ++i) EXPECT_EQ(second.look("GPU-a", nvidia0), us_);
  EXPECT_EQ(first.look("GPU-a", nvidia0), us_);
  for (int i = 0; i < kMoreThanMayWait; ++i) loop_->run_once(0);
  std::vector<std::string> doubts;
  CardWatch third(*loop_, [&](const std::string&, const std::string& doubt) { doubts.push_back(doubt); });
  EXPECT_EQ(third.look("GPU-a", nvidia0), us_);
  EXPECT_EQ(doubts, std::vector<std::string>()) << "both could be asked";
}

// A stranger's program that has all these places.
class Squatter {
 public:
  explicit Squatter(const std::vector<std::string>& places) {
    int ready[2];
    if (::pipe2(ready, O_CLOEXEC) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) std::_Exit(1);
      for (const std::string& place : places) {
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        place.copy(name.sun_path + 1, sizeof name.sun_path - 1);
        const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + place.size());
        if (::bind(listener, reinterpret_cast<const sockaddr*>(&name), size) != 0 || ::listen(listener, 64) != 0)
          std::_Exit(1);
      }
      ::execl("/bin/sleep", "sleep", "1000", nullptr);
      std::_Exit(1);
    }
    ::close(ready[1]);
    char none = 0;
    if (::read(ready[0], &none, 1) != 0) std::abort();  // it executes something else now
    ::close(ready[0]);
  }
  ~Squatter() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Squatter(const Squatter&) = delete;
  Squatter& operator=(const Squatter&) = delete;

 private:
  pid_t pid_ = -1;
};

TEST_F(CardWatchTest, believes_no_stranger_that_only_has_the_name_and_says_so_once) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string nvidia0 = card("nvidia0");
  const Squatter squatter({card_place("GPU-a", nvidia0, 0), card_place("GPU-a", nvidia0, 1)});
  std::vector<std::string> doubts;
  CardWatch first(*loop_, [&](const std::string& uuid, const std::string& doubt) { doubts.push_back(uuid + doubt); });
  EXPECT_EQ(first.look("GPU-a", nvidia0), "");
  EXPECT_EQ(first.look("GPU-a", nvidia0), "");
  ASSERT_EQ(doubts.size(), 1u);
  EXPECT_NE(doubts[0].find("of user 65534"), std::string::npos) << doubts[0];
  CardWatch second(*loop_);
  EXPECT_EQ(second.look("GPU-a", nvidia0), us_) << "a real one behind it is not hidden";
}

TEST_F(CardWatchTest, says_so_where_strangers_have_all_names) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string nvidia0 = card("nvidia0");
  std::vector<std::string> places, doubts;
  for (int place = 0; place < CardWatch::kPlaces; ++place) places.push_back(card_place("GPU-a", nvidia0, place));
  const Squatter squatter(places);
  CardWatch watch(*loop_, [&](const std::string&, const std::string& doubt) { doubts.push_back(doubt); });
  EXPECT_EQ(watch.look("GPU-a", nvidia0), "");
  EXPECT_EQ(doubts.size(), 2u) << "and who has them";
}

TEST_F(CardWatchTest, believes_another_users_hypervisor_of_this_program) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string nvidia0 = card("nvidia0");
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  std::filesystem::permissions(scratch_.root(), std::filesystem::perms::others_exec,
                               std::filesystem::perm_options::add);
  const pid_t other = ::fork();
  if (other == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) std::_Exit(1);
    CardWatch watch(*loop_);
    static_cast<void>(watch.look("GPU-a", nvidia0));
    if (::write(ready[1], "x", 1) != 1) std::_Exit(1);
    for (;;) ::pause();
  }
  char letter = 0;
  EXPECT_EQ(::read(ready[0], &letter, 1), 1);
  CardWatch first(*loop_);
  EXPECT_EQ(first.look("GPU-a", nvidia0), "process " + std::to_string(other) + " of user 65534");
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  for (const int fd : ready) ::close(fd);
}

// To ask what file it is would be to ask whoever serves it, among mounts of a stranger's own.
TEST_F(CardWatchTest, believes_no_stranger_with_mounts_of_its_own) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string nvidia0 = card("nvidia0");
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  std::filesystem::permissions(scratch_.root(), std::filesystem::perms::others_exec,
                               std::filesystem::perm_options::add);
  const pid_t other = ::fork();
  if (other == 0) {
    const bool apart = ::unshare(CLONE_NEWNS) == 0;
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) std::_Exit(1);
    CardWatch watch(*loop_);
    static_cast<void>(watch.look("GPU-a", nvidia0));
    if (::write(ready[1], apart ? "x" : "-", 1) != 1) std::_Exit(1);
    for (;;) ::pause();
  }
  char letter = 0;
  EXPECT_EQ(::read(ready[0], &letter, 1), 1);
  std::vector<std::string> doubts;
  CardWatch first(*loop_, [&](const std::string&, const std::string& doubt) { doubts.push_back(doubt); });
  const std::string seen = first.look("GPU-a", nvidia0);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  for (const int fd : ready) ::close(fd);
  if (letter == '-') GTEST_SKIP() << "no mount namespace can be made here";
  EXPECT_EQ(seen, "");
  EXPECT_EQ(doubts.size(), 1u);
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
