#include "cli/capabilities.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

namespace tensor_fusion::cli {
namespace {

int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Capabilities, leave_nothing_with_which_root_could_undo_a_view) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has any to give up";
  const int status = in_child([] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
    if (!give_up_capabilities()) return 1;
    if (::mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0) return 2;
    if (::unshare(CLONE_NEWNS) == 0) return 3;
    if (::mknod("/tmp/tensor-fusion-capabilities-test", S_IFCHR | 0600, 0x103) == 0) return 4;
    // Nor does a new program get them back, and it can do what root usually does.
    ::execl("/bin/sh", "sh", "-c",
            "mount -o remount,bind,ro / 2>/dev/null && exit 5; umount -l /proc 2>/dev/null && exit 6; "
            "f=$(mktemp) && chown 1:1 $f && chmod 600 $f && echo x > $f && rm $f || exit 7; exit 42",
            nullptr);
    return 8;
  });
  if (status == 77) GTEST_SKIP() << "no mount namespace can be made here";
  EXPECT_EQ(status, 42);
}

TEST(Capabilities, are_given_up_twice_without_harm_and_not_in_silence_where_the_kernel_refuses) {
  EXPECT_EQ(in_child([] {
              if (!give_up_capabilities() && ::geteuid() == 0) return 1;
              return give_up_capabilities() ? 0 : 2;
            }),
            0);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  EXPECT_EQ(in_child([] {
              if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 3;
              return give_up_capabilities() ? 4 : 0;  // a set-user-id program could have them
            }),
            0);
}

}  // namespace
}  // namespace tensor_fusion::cli
