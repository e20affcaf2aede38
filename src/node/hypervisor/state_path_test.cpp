#include "node/hypervisor/state_path.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

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
  const std::string state = scratch.path("state"), log = state + "/hypervisor.log";
  fs::create_directory(state);
  std::ofstream(scratch.path("kept")) << "";
  for (const char* target : {"../kept", "../later", "/dev/null"}) {
    fs::create_symlink(target, log);
    EXPECT_TRUE(check_state_path(state)) << target;
    fs::remove(log);
  }
  fs::create_directory_symlink(scratch.root(), log);
  EXPECT_FALSE(check_state_path(state)) << "a folder takes no lines";
  fs::remove(log);
  fs::create_symlink("../kept", state + "/hypervisor.lock");
  EXPECT_FALSE(check_state_path(state));
}

TEST(StatePath, that_another_makes_and_removes_at_that_moment_is_no_link) {
  const system::ScratchDirectory scratch;
  const std::string path = scratch.path("new");
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) {
      ::mkdir(path.c_str(), 0700);
      ::rmdir(path.c_str());
    }
  });
  std::string refused;
  for (int look = 0; look < 20'000 && refused.empty(); ++look) {
    const auto checked = check_state_path(path);
    if (!checked) refused = checked.error().message;
  }
  over = true;
  other.join();
  EXPECT_EQ(refused, "");
}

TEST(StatePath, that_holds_other_peoples_files_is_refused_and_names_one) {
  const system::ScratchDirectory scratch;
  const std::pair<std::string, std::string> cases[] = {{"home", "notes.txt"},
                                                       {"hidden", ".git/config"},
                                                       {"database", "tenants/acme/db/deep/data.sql"},
                                                       {"csv", "records/customers.csv"},
                                                       {"web", "logs/httpd.log"},
                                                       {"pages", "pages/one.html"},
                                                       {"saved", "tenants/backup/data.sql"},
                                                       {"folder", "records/backup/x"}};
  for (const auto& [folder, file] : cases) {
    const std::string path = scratch.path(folder);
    fs::create_directories(fs::path(path + "/" + file).parent_path());
    std::ofstream(path + "/" + file) << "theirs";
    const auto checked = check_state_path(path);
    ASSERT_FALSE(checked) << path;
    EXPECT_EQ(checked.error().code, ErrorCode::kUsage) << path;
    EXPECT_NE(checked.error().message.find("holds other files, such as " + path + "/" + file.substr(0, file.find('/'))),
              std::string::npos)
        << checked.error().message;
    std::ofstream(path + "/hypervisor.lock") << "";
    EXPECT_TRUE(check_state_path(path)) << "a hypervisor has it already, and removes nothing but its own";
  }
  EXPECT_FALSE(check_state_path("/"));
  EXPECT_FALSE(check_state_path("/etc"));
}

TEST(StatePath, that_lost_its_lock_is_one_still) {
  const system::ScratchDirectory scratch;
  for (const char* folder : {"tenants/k3f9qd", "logs/last/1000", "limiter/1"})
    fs::create_directories(scratch.path(folder));
  for (const char* folder : {"records", "pages"}) fs::create_directories(scratch.path(folder));
  for (const char* file : {"hypervisor.log", "events.jsonl", "events.jsonl.old", "overheads", "overheads.new.12.0",
                           "probe", "records/k3f9qd.json", "records/k3f9qd.json.new.12.3", "pages/k3f9qd.grant",
                           "pages/k3f9qd.claim", "tenants/k3f9qd/grant", "tenants/k3f9qd/claim", "tenants/k3f9qd/bell",
                           "tenants/k3f9qd/grant.back", "logs/k3f9qd.log"})
    std::ofstream(scratch.path(file)) << "";
  const auto checked = check_state_path(scratch.root());
  EXPECT_TRUE(checked) << checked.error().message;
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
