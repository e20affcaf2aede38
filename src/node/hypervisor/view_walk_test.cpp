#include "node/hypervisor/view_walk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "node/hypervisor/view_mount.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {
namespace {

const char* const kOurs =
    "21 1 0:30 / / rw shared:1 - overlay overlay rw,lowerdir=/a\n"
    "22 21 8:1 / /boot rw - vfat /dev/sda1 rw\n"
    "23 21 0:50 / /mnt/far rw - fuse.sshfs u@far:/ rw\n"
    "24 21 0:51 / /net rw - nfs4 server:/ rw\n";

TEST(ViewWalk, knows_which_file_systems_answer_by_themselves) {
  EXPECT_TRUE(answers_by_itself("90 80 0:99 / /run rw - tmpfs none rw", kOurs));
  EXPECT_TRUE(answers_by_itself("90 80 8:2 /x /run rw master:1 propagate_from:2 - ext4 /dev/sda2 rw", kOurs));
  EXPECT_TRUE(answers_by_itself("90 80 0:30 / / rw - overlay overlay rw", kOurs)) << "what we stand on";
  EXPECT_TRUE(answers_by_itself("90 80 8:1 / /boot rw - vfat /dev/sda1 rw", kOurs)) << "mounted by root";
  EXPECT_FALSE(answers_by_itself("90 80 0:98 / /run rw - overlay overlay rw,lowerdir=/run/f", kOurs));
  EXPECT_FALSE(answers_by_itself("90 80 0:97 / /run rw - fuse fuse rw", kOurs));
  EXPECT_FALSE(answers_by_itself("90 80 0:50 / /run rw - fuse.sshfs u@far:/ rw", kOurs)) << "a user serves it";
  EXPECT_FALSE(answers_by_itself("90 80 0:51 / /run rw - nfs4 server:/ rw", kOurs));
  EXPECT_FALSE(answers_by_itself("90 80 0:97 / /run rw", kOurs));
  EXPECT_FALSE(answers_by_itself("", kOurs)) << "it is not known which it is";
  EXPECT_TRUE(answers_by_itself("9 8 0:60 / / rw - fuse.root r rw", "1 0 0:60 / / rw - fuse.root r rw\n"));
}

// A child with mounts of its own, which it makes by `mount`.
class View {
 public:
  explicit View(const std::function<bool()>& mount) {
    int ready[2];
    if (::pipe(ready) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      const bool made =
          ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 && mount();
      if (!made || ::write(ready[1], "x", 1) != 1) std::_Exit(77);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char letter = 0;
    made_ = ::read(ready[0], &letter, 1) == 1;
    ::close(ready[0]);
  }
  ~View() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  bool made() const { return made_; }
  ViewFile find(const std::string& path) const {
    const system::Fd root(::open(("/proc/" + std::to_string(pid_) + "/root").c_str(), O_PATH | O_CLOEXEC));
    return ViewWalk(root.get(), mounts_of(pid_).text).find(path);
  }

 private:
  pid_t pid_ = -1;
  bool made_ = false;
};

TEST(ViewWalk, finds_a_file_as_the_view_shows_it_and_whether_it_is_to_be_written) {
  const system::ScratchDirectory scratch;
  const std::string file = scratch.path("file"), other = scratch.path("other");
  ASSERT_TRUE(system::replace_file(file, "1"));
  ASSERT_TRUE(system::replace_file(other, "2"));
  const View view([&] {
    return ::mount(other.c_str(), file.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
           ::mount(nullptr, file.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0;
  });
  if (!view.made()) GTEST_SKIP() << "no mount namespace can be made here";
  EXPECT_EQ(view.find(file).identity, system::identity_of(other));
  EXPECT_TRUE(view.find(file).read_only);
  EXPECT_EQ(view.find(other).identity, system::identity_of(other));
  EXPECT_FALSE(view.find(other).read_only);
  EXPECT_FALSE(view.find(scratch.path("none")).identity);
  EXPECT_FALSE(view.find(scratch.path("none")).may_wait);
}

TEST(ViewWalk, goes_by_no_link) {
  const system::ScratchDirectory scratch;
  ASSERT_TRUE(system::make_directories(scratch.path("folder")));
  ASSERT_TRUE(system::replace_file(scratch.path("folder/file"), "1"));
  std::filesystem::create_symlink("folder", scratch.path("link"));
  const View view([] { return true; });
  if (!view.made()) GTEST_SKIP() << "no mount namespace can be made here";
  EXPECT_TRUE(view.find(scratch.path("folder/file")).identity);
  EXPECT_FALSE(view.find(scratch.path("link/file")).identity);
}

// What lies below an overlay is its maker's choice, and may be served by a program that answers nothing.
TEST(ViewWalk, looks_up_no_name_in_what_the_view_stacks_on_others) {
  const system::ScratchDirectory scratch;
  for (const char* name : {"lower", "below", "over"}) ASSERT_TRUE(system::make_directories(scratch.path(name)));
  ASSERT_TRUE(system::replace_file(scratch.path("over/file"), "1"));
  const View view([&] {
    // Not on another overlay: the kernel stacks only two.
    const std::string memory = scratch.path("lower"), over = scratch.path("over");
    if (::mount("none", memory.c_str(), "tmpfs", 0, nullptr) != 0 || ::mkdir((memory + "/a").c_str(), 0755) != 0 ||
        ::mkdir((memory + "/b").c_str(), 0755) != 0 || !system::replace_file(memory + "/a/file", "2"))
      return false;
    const std::string options = "lowerdir=" + memory + "/a:" + memory + "/b";
    return ::mount("overlay", over.c_str(), "overlay", 0, options.c_str()) == 0;
  });
  if (!view.made()) GTEST_SKIP() << "no overlay can be mounted here";
  const ViewFile seen = view.find(scratch.path("over/file"));
  EXPECT_FALSE(seen.identity);
  EXPECT_TRUE(seen.may_wait);
  EXPECT_FALSE(view.find(scratch.path("over/none")).identity);
  EXPECT_TRUE(view.find(scratch.path("lower/a/file")).identity);
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
