#include "node/hypervisor/state_path.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;

TEST(StatePath, may_be_there_or_not_yet) {
  const system::ScratchDirectory scratch;
  EXPECT_TRUE(check_state_path(scratch.root()));
  EXPECT_TRUE(check_state_path(scratch.path("a/b/c")));
  fs::create_directory_symlink(scratch.root(), scratch.path("link"));
  EXPECT_TRUE(check_state_path(scratch.path("link/a"))) << "the user's own choice";
}

TEST(StatePath, may_have_its_log_elsewhere_but_not_its_lock) {
  const system::ScratchDirectory scratch;
  const std::string log = scratch.path("hypervisor.log");
  std::ofstream(scratch.path("kept")) << "";
  for (const char* target : {"kept", "later", "/dev/null"}) {
    fs::create_symlink(target, log);
    EXPECT_TRUE(check_state_path(scratch.root())) << target;
    fs::remove(log);
  }
  fs::create_directory_symlink(scratch.root(), log);
  EXPECT_FALSE(check_state_path(scratch.root())) << "a folder takes no lines";
  fs::remove(log);
  fs::create_symlink("kept", scratch.path("hypervisor.lock"));
  EXPECT_FALSE(check_state_path(scratch.root()));
}

TEST(StatePath, that_cannot_be_is_one_sentence_that_names_what_is_wrong) {
  const system::ScratchDirectory scratch;
  std::ofstream(scratch.path("file")) << "in the way";
  fs::create_symlink("nowhere", scratch.path("dangling"));
  fs::create_symlink("loop", scratch.path("loop"));
  for (const char* taken : {"lock/hypervisor.lock", "log/hypervisor.log", "socket/hypervisor.sock"})
    fs::create_directories(scratch.path(taken));
  fs::create_directories(scratch.path("records"));
  std::ofstream(scratch.path("records/records")) << "in the way";
  fs::create_directories(scratch.path("logs"));
  fs::create_symlink("nowhere", scratch.path("logs/logs"));
  const std::pair<std::string, std::string> cases[] = {
      {"file", "/file is not a directory"},
      {"file/state", "/file is not a directory"},
      {"dangling", "/dangling is a link"},
      {"dangling/state", "/dangling is a link"},
      {"loop", "/loop is a link"},
      {"loop/state", "/loop is a link"},
      {"lock", "/lock/hypervisor.lock is in"},
      {"log", "/log/hypervisor.log is in the way"},
      {"socket", "/socket/hypervisor.sock is"},
      {"records", "/records/records is not a directory"},
      {"logs", "/logs/logs is a link"},
      {std::string(200, 'x'), "too long for a socket"},
  };
  for (const auto& [path, what] : cases) {
    const auto checked = check_state_path(scratch.path(path));
    ASSERT_FALSE(checked) << path;
    EXPECT_EQ(checked.error().code, ErrorCode::kUsage) << path;
    EXPECT_NE(checked.error().message.find(what), std::string::npos) << checked.error().message;
    EXPECT_NE(checked.error().message.find("--state"), std::string::npos) << checked.error().message;
  }
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
