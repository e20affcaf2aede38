#include "node/hypervisor/state_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "node/hypervisor/test_slice.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {
namespace {

class KeptLog : public ::testing::Test {
 protected:
  std::string name_of(const std::string& word, uid_t user) const {
    const auto file = kept_log(state_.path(), word, user);
    return file ? std::filesystem::path(*file).filename().string() : "none";
  }
  void keep(const std::string& id, const std::string& name, uid_t user) {
    ASSERT_TRUE(state_.make_log(id, ::geteuid(), ::getegid()));
    ASSERT_TRUE(state_.name_log(id, name, user));
  }
  system::ScratchDirectory scratch_;
  StateDirectory state_ = *StateDirectory::open(scratch_.path("state"));
  static constexpr uid_t kFirst = 70001, kSecond = 70002, kThird = 70003;
};

TEST_F(KeptLog, of_a_name_is_the_last_of_its_user) {
  keep("aaaa", "train", kFirst);
  keep("bbbb", "train", kSecond);
  EXPECT_EQ(name_of("train", kFirst), "aaaa.log");
  EXPECT_EQ(name_of("train", kSecond), "bbbb.log");
  const std::string second = state_.logs() + "/last/" + std::to_string(kSecond) + "/train";
  constexpr timespec kBefore[2] = {{1, 0}, {1, 0}};  // a file's time goes by steps of milliseconds
  ASSERT_EQ(::utimensat(AT_FDCWD, second.c_str(), kBefore, AT_SYMLINK_NOFOLLOW), 0);
  keep("cccc", "train", kFirst);
  EXPECT_EQ(name_of("train", kFirst), "cccc.log");
  EXPECT_EQ(name_of("train", kSecond), "bbbb.log");
  EXPECT_EQ(name_of("train", kThird), "none");
  EXPECT_EQ(name_of("bbbb", kThird), "bbbb.log") << "by its id for whoever knows it; the file says who may read it";
  EXPECT_EQ(name_of("train", 0), "cccc.log");
  EXPECT_EQ(name_of("train", ::geteuid()), "cccc.log");
}

TEST_F(KeptLog, has_no_name_before_the_slice_is_there) {
  keep("aaaa", "train", kFirst);
  ASSERT_TRUE(state_.make_log("bbbb", ::geteuid(), ::getegid()));
  EXPECT_EQ(name_of("train", kFirst), "aaaa.log");
  state_.remove_log("bbbb");
  EXPECT_EQ(name_of("bbbb", kFirst), "none");
}

TEST_F(KeptLog, leaves_no_link_behind) {
  keep("aaaa", "train", kFirst);
  keep("bbbb", "train", kSecond);
  state_.remove_log("aaaa");
  state_.prune_logs();
  const std::string last = state_.logs() + "/last/";
  EXPECT_FALSE(system::exists(last + std::to_string(kFirst)));
  EXPECT_TRUE(system::exists(last + std::to_string(kSecond) + "/train"));
}

TEST(Hypervisor, leaves_no_log_of_a_slice_that_it_could_not_make) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  RunRequest job = request("job");
  job.detach = true;
  std::string first;
  {
    const Slice slice(daemon, job);
    first = slice.reply.log_path;
    ASSERT_TRUE(system::exists(first));
  }
  ASSERT_TRUE(eventually([&] { return daemon.tenant("job").is_null(); }));
  std::filesystem::rename(daemon.state() + "/tenants", daemon.scratch("away"));
  ASSERT_TRUE(system::replace_file(daemon.state() + "/tenants", "in the way"));
  EXPECT_FALSE(daemon.client().run(job));
  EXPECT_EQ(kept_log(daemon.state(), "job", ::geteuid()), first);
  std::size_t logs = 0;
  for (const std::string& name : system::list_directory(daemon.state() + "/logs")) logs += name.ends_with(".log");
  EXPECT_EQ(logs, 1u);
}

TEST(StateDirectory, of_another_user_is_refused_to_root_too) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  const system::ScratchDirectory scratch;
  const auto refuses = [&](const std::string& path) {
    const auto opened = StateDirectory::open(path);
    return !opened && opened.error().message.find("belongs to another user") != std::string::npos;
  };
  const std::string theirs = scratch.path("theirs"), ours = scratch.path("ours");
  ASSERT_TRUE(StateDirectory::open(theirs));
  ASSERT_TRUE(StateDirectory::open(ours));
  ASSERT_EQ(::chown(theirs.c_str(), 70001, 70001), 0);
  EXPECT_TRUE(refuses(theirs));
  std::filesystem::create_directory_symlink(theirs, scratch.path("link"));
  EXPECT_TRUE(refuses(scratch.path("link")));
  std::filesystem::remove_all(ours + "/tenants");
  std::filesystem::create_directory_symlink(theirs, ours + "/tenants");
  EXPECT_TRUE(refuses(ours)) << "what lies in it is somebody else's";
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
