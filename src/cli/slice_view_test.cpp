#include "cli/slice_view.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "contract/grant.h"
#include "system/file.h"

namespace tensor_fusion::cli {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;
constexpr int kCannotEnter = 99;
#ifdef __SANITIZE_THREAD__
constexpr bool kHasThreads = true;
#else
constexpr bool kHasThreads = false;
#endif
constexpr const char* kWhyNot = "the thread sanitizer has a thread of its own, and who has two makes no user namespace";

// A slice's directory, a hypervisor's state around it, and two device files, one of them granted. Any library will do
// for a limiter: the loader's own maps say whether it is there.
class SliceViewTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_make_namespaces()) GTEST_SKIP() << "no mount namespaces here: " << can_make_namespaces().error();
    std::string pattern = "/dev/shm/slice-view-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    fs::create_directories(folder_ / "state/tenants/a");
    write("state/secret", "x");
    write("state/tenants/a/grant", "the grant");
    write("state/tenants/a/claim", "the claim");
    ASSERT_EQ(::mkfifo((folder_ / "state/tenants/a/bell").c_str(), 0666), 0);
    write("nvidia0", "zero");
    write("nvidia1", "one");
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) fs::permissions(entry, fs::perms::all);
    fs::permissions(folder_, fs::perms::all);
    Dl_info info{};
    ASSERT_NE(::dladdr(reinterpret_cast<void*>(static_cast<double (*)(double)>(&std::cbrt)), &info), 0);
    view_ = {.slice_directory = (folder_ / "state/tenants/a").string(),
             .state_directory = (folder_ / "state").string(),
             .limiter_bytes = system::read_file(info.dli_fname).value(),
             .hidden_devices = {(folder_ / "nvidia1").string()}};
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  void write(const std::string& name, std::string_view content) { std::ofstream(folder_ / name) << content; }

  // The exit code of a shell that runs `script` inside the view, as this user or as another.
  int inside(const std::string& script, uid_t user) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (user != ::geteuid() && (::setgid(user) != 0 || ::setuid(user) != 0)) ::_exit(kCannotEnter);
      ::prctl(PR_SET_DUMPABLE,
              1);  // as after a login: a process that has just changed its user may not open its own /proc
      if (const auto entered = enter_slice_view(view_); !entered) {
        std::fprintf(stderr, "%s\n", entered.error().c_str());
        ::_exit(kCannotEnter);
      }
      ::setenv("D", folder_.c_str(), 1);
      ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
      ::_exit(kCannotEnter);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  fs::path folder_;
  SliceView view_;
};

class EachUser : public SliceViewTest, public testing::WithParamInterface<uid_t> {
 protected:
  void SetUp() override {
    if (GetParam() == kNobody && kHasThreads) GTEST_SKIP() << kWhyNot;
    SliceViewTest::SetUp();
  }
  int inside(const std::string& script) {
    if (GetParam() == kNobody && ::geteuid() != 0) return SliceViewTest::inside(script, ::geteuid());
    return SliceViewTest::inside(script, GetParam() == kNobody ? kNobody : ::geteuid());
  }
};

TEST_P(EachUser, finds_its_pages_at_the_fixed_place_and_can_write_only_its_own) {
  EXPECT_EQ(
      inside("cd /run/tensor-fusion/slice && [ \"$(cat grant)\" = 'the grant' ] && echo new > claim && [ -p bell ]"),
      0);
  std::ifstream claim(folder_ / "state/tenants/a/claim");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(claim), {}), "new\n");
  EXPECT_NE(inside("echo more > /run/tensor-fusion/slice/grant 2>/dev/null"), 0);
  EXPECT_NE(inside("truncate -s 0 /run/tensor-fusion/slice/grant 2>/dev/null"), 0);
  std::ifstream grant(folder_ / "state/tenants/a/grant");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(grant), {}), "the grant");
}

TEST_P(EachUser, cannot_unlink_or_replace_a_page) {
  for (const char* page : {"grant", "claim", "bell"}) {
    const std::string path = std::string("/run/tensor-fusion/slice/") + page;
    EXPECT_NE(inside("rm -f " + path + " 2>/dev/null"), 0) << page;
    EXPECT_NE(inside("echo forged > /tmp/forged.$$ && mv -f /tmp/forged.$$ " + path +
                     " 2>/dev/null; r=$?; rm -f /tmp/forged.$$; exit $r"),
              0)
        << page;
  }
  EXPECT_NE(inside("mv /run/tensor-fusion/slice /run/tensor-fusion/other 2>/dev/null"), 0);
}

// A login over ssh, `env -i`, or a launcher that cleans the environment: the limit must not vanish.
TEST_P(EachUser, keeps_the_limiter_in_children_with_an_empty_environment) {
  EXPECT_EQ(inside("env -i /bin/grep -q libtensor_fusion_limiter.so /proc/self/maps"), 0);
  EXPECT_EQ(inside("unset LD_PRELOAD; (exec /bin/sh -c 'grep -q libtensor_fusion_limiter.so /proc/$$/maps')"), 0);
  EXPECT_NE(inside("echo > /etc/ld.so.preload 2>/dev/null"), 0) << "the list itself is read-only";
  EXPECT_NE(inside("rm -f /etc/ld.so.preload 2>/dev/null"), 0);
}

TEST_P(EachUser, can_open_the_granted_device_and_no_other) {
  EXPECT_EQ(inside("[ \"$(cat $D/nvidia0)\" = zero ]"), 0);
  EXPECT_NE(inside("cat $D/nvidia1 2>/dev/null"), 0);
  EXPECT_NE(inside(": > $D/nvidia1 2>/dev/null"), 0);
  EXPECT_NE(inside("chmod 777 $D/nvidia1 2>/dev/null; cat $D/nvidia1 2>/dev/null"), 0);
}

TEST_P(EachUser, does_not_see_the_hypervisors_own_files) {
  EXPECT_EQ(inside("[ -z \"$(ls -A $D/state)\" ]"), 0);
  EXPECT_NE(inside("echo x > $D/state/new 2>/dev/null"), 0);
}

TEST_P(EachUser, still_sees_the_rest_of_the_system) {
  EXPECT_EQ(inside("[ \"$(ls -A /etc | wc -l)\" -ge " + std::to_string(system::list_directory("/etc").size()) + " ]"),
            0);
  EXPECT_EQ(inside("cmp -s /etc/passwd /proc/self/root/etc/passwd && [ -r /etc/passwd ] && touch /tmp/view.$$ && rm "
                   "/tmp/view.$$"),
            0);
}

INSTANTIATE_TEST_SUITE_P(SliceView, EachUser, testing::Values(uid_t{0}, kNobody),
                         [](const auto& user) { return user.param == kNobody ? "without_rights" : "as_this_user"; });

// A user on a machine where nobody has ever made /etc/ld.so.preload or /run/tensor-fusion.
TEST_F(SliceViewTest, is_entered_where_the_folders_it_needs_cannot_be_written) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make such a machine here";
  if (kHasThreads) GTEST_SKIP() << kWhyNot;
  std::error_code problem;
  fs::copy("/etc", folder_ / "etc", fs::copy_options::recursive | fs::copy_options::copy_symlinks, problem);
  fs::remove(folder_ / "etc/ld.so.preload");
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string etc = (folder_ / "etc").string();
    const bool bare = ::unshare(CLONE_NEWNS) == 0 &&
                      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                      ::mount(etc.c_str(), "/etc", nullptr, MS_BIND, nullptr) == 0 &&
                      ::mount("bare", "/run", "tmpfs", 0, "mode=755") == 0 && ::mkdir("/run/lock", 0755) == 0 &&
                      ::symlink("lock", "/run/link") == 0;
    ::_exit(!bare ? kCannotEnter
                  : inside("[ \"$(cat /run/tensor-fusion/slice/grant)\" = 'the grant' ] && env -i /bin/grep -q limiter "
                           "/proc/self/maps && "
                           "[ -d /run/lock ] && [ \"$(readlink /run/link)\" = lock ] && [ -r /etc/passwd ] && [ -r "
                           "/etc/ld.so.cache ] && "
                           "[ \"$(cat /etc/ld.so.preload)\" = /run/tensor-fusion/libtensor_fusion_limiter.so ] && ! rm "
                           "-rf /run/link 2>/dev/null",
                           kNobody));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(SliceViewTest, changes_nothing_outside) {
  EXPECT_EQ(inside("true", ::geteuid()), 0);
  EXPECT_FALSE(system::exists(std::string(contract::kSlicePath) + "/grant"));
  EXPECT_TRUE(system::exists((folder_ / "state/secret").string()));
  EXPECT_EQ(system::read_file((folder_ / "nvidia1").string()).value(), "one");
}

TEST_F(SliceViewTest, is_refused_without_its_pages_and_says_which) {
  fs::remove(folder_ / "state/tenants/a/bell");
  const auto entered = enter_slice_view(view_);
  ASSERT_FALSE(entered);
  EXPECT_NE(entered.error().find("bell"), std::string::npos);
  EXPECT_TRUE(system::exists((folder_ / "state/secret").string())) << "the caller's own view is unchanged";
}

}  // namespace
}  // namespace tensor_fusion::cli
