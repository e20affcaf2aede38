#include "node/hypervisor/view_mount.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "system/file.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {
namespace {

TEST(ViewMount, is_found_by_its_device_and_its_whole_path) {
  const std::string mounts = "36 35 0:25 /tf/a/grant /run/x rw - tmpfs none rw\n37 35 0:26 / / rw - tmpfs none rw\n";
  EXPECT_TRUE(has_mount(mounts, "0:25 /tf/a/grant"));
  EXPECT_TRUE(has_mount("36 35 0:25 /tf/a/grant//deleted /run/x rw", "0:25 /tf/a/grant"));
  EXPECT_FALSE(has_mount(mounts, "0:26 /tf/a/grant"));
  EXPECT_FALSE(has_mount(mounts, "0:25 /tf/a/gran"));
  EXPECT_FALSE(has_mount(mounts, "0:25 /a/grant"));
  EXPECT_FALSE(has_mount(mounts, "")) << "nothing is known of it";
}

TEST(ViewMount, shows_who_has_a_file_bound_whatever_covers_that) {
  const system::ScratchDirectory scratch;
  const std::string folder = scratch.path("of tests\\"), file = folder + "/grant", other = folder + "/other";
  const std::string many(200, 'm');
  for (const std::string& name : {std::string("of tests\\"), std::string("place"), many})
    ASSERT_TRUE(system::make_directories(scratch.path(name)));
  for (const std::string& path : {file, other, scratch.path("place") + "/here"})
    ASSERT_TRUE(system::replace_file(path, ""));
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string place = scratch.path("place");
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(77);
    for (int i = 0; i < 400; ++i)  // as a host of many containers has before it
      if (::mount("none", scratch.path(many).c_str(), "tmpfs", 0, nullptr) != 0) ::_exit(77);
    if (::mount(file.c_str(), (place + "/here").c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount("none", place.c_str(), "tmpfs", 0, nullptr) != 0 || ::write(ready[1], "x", 1) != 1)
      ::_exit(77);
    for (;;) ::pause();
  }
  char letter = 0;
  ::close(ready[1]);
  const bool made = ::read(ready[0], &letter, 1) == 1;
  ::close(ready[0]);
  EXPECT_NE(mount_name(file), "");
  EXPECT_FALSE(has_mount(mounts_of(::getpid()).text, mount_name(file))) << "it is there, and bound nowhere";
  if (made) {
    EXPECT_TRUE(has_mount(mounts_of(child).text, mount_name(file)));
    EXPECT_GT(mounts_of(child).text.find(mount_name(file)), 64u << 10);
    EXPECT_FALSE(has_mount(mounts_of(child).text, mount_name(other)));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(mount_name(scratch.path("nothing")), "");
  if (!made) GTEST_SKIP() << "nothing can be mounted here";
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
