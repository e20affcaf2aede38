// What strangers, and the processes of slices, are not given.
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <filesystem>

#include "node/hypervisor/test_slice.h"
#include "node/hypervisor/test_stranger.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using contract::ClaimPage;

TEST(Hypervisor, lets_no_stranger_start_a_slice_with_a_process_that_is_not_the_callers) {  // and then kill it by name
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const Child of_root;
  const pid_t victim = of_root.pid;
  EXPECT_EQ(as_a_stranger(daemon, kNobody,
                          [&](const std::string& socket) {
                            system::LineConnection connection(*system::connect_unix(socket));
                            const auto ask = [&](const std::string& line) {
                              static_cast<void>(connection.send(line, 1000));
                              return base::Json::parse(connection.receive(5000).value()).value();
                            };
                            const auto reply = ask(R"({"op":"run","vram":"1Gi","name":"evil"})");
                            if (!reply["ok"].as_bool()) return 1;
                            const std::string id = reply["id"].as_string();
                            const auto started = [&](pid_t pid) {
                              return ask(R"({"op":"started","id":")" + id + R"(","pid":)" + std::to_string(pid) + "}");
                            };
                            if (started(victim)["ok"].as_bool()) return 2;
                            ask(R"({"op":"kill","tenant":"evil","signal":9})");
                            started(::getpid());
                            return 3;
                          }),
            128)
      << "the kill it asked for reaches itself";
  EXPECT_TRUE(system::process_stat(victim) && !system::process_stat(victim)->dead());
}

TEST(Hypervisor, tells_no_stranger_who_lives_in_the_slice_of_another) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const auto ask = [](system::LineConnection& connection, const std::string& line) {
    static_cast<void>(connection.send(line, 1000));
    return base::Json::parse(connection.receive(5000).value()).value();
  };
  system::LineConnection own(*system::connect_unix(daemon.state() + "/hypervisor.sock"));
  const base::Json mine = ask(own, R"({"op":"run","vram":"1Gi","name":"mine"})");
  ASSERT_TRUE(mine["ok"].as_bool()) << mine.dump();
  const std::string question = R"({"op":"await_end","wait_ms":0,"id":")" + mine["id"].as_string() + "\"}";
  EXPECT_EQ(as_a_stranger(daemon, kNobody,
                          [&](const std::string& socket) {
                            system::LineConnection connection(*system::connect_unix(socket));
                            const base::Json said = ask(connection, question);
                            return said["ok"].as_bool() ? 1 : said.has("pids") ? 2 : 0;
                          }),
            0);
  const base::Json said = ask(own, question);
  EXPECT_TRUE(said["ok"].as_bool() && !said["over"].as_bool(true)) << said.dump();
}

// Who connects may end, and leave its connection and its number to others.
class BorrowedConnection : public ::testing::Test {
 protected:
  // Connects in a child as a user without rights; it goes back to being root, or ends, and the connection stays ours.
  pid_t connect(bool ends) {
    const std::filesystem::path state = daemon_.state();
    std::filesystem::permissions(state.parent_path(), std::filesystem::perms::others_exec,
                                 std::filesystem::perm_options::add);
    system::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int ready[2];
    if (::pipe(ready) != 0) return -1;
    const pid_t child = ::fork();
    if (child == 0) {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      (state / "hypervisor.sock").string().copy(address.sun_path, sizeof address.sun_path - 1);
      const bool connected = ::setgroups(0, nullptr) == 0 && ::setgid(kNobody) == 0 && ::seteuid(kNobody) == 0 &&
                             ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                             ::seteuid(0) == 0;
      if (!connected || ::write(ready[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    start_ = system::start_ticks(child);
    char letter = 0;
    ::close(ready[1]);
    const bool connected = ::read(ready[0], &letter, 1) == 1;
    ::close(ready[0]);
    connection_ = std::make_unique<system::LineConnection>(std::move(fd));
    if (connected) {
      const base::Json reply = ask(R"({"op":"run","vram":"1Gi","name":"evil"})");
      id_ = reply["id"].as_string();
      EXPECT_FALSE(id_.empty()) << reply.dump();
    }
    if (!connected || ends) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    return child;
  }
  base::Json ask(const std::string& line) {
    static_cast<void>(connection_->send(line, 1000));
    return base::Json::parse(connection_->receive(5000).value()).value();
  }
  void expect_that_nobody_is_taken_for_the_caller(pid_t victim) {
    ASSERT_FALSE(id_.empty());
    EXPECT_FALSE(ask(R"({"op":"started","id":")" + id_ + R"(","pid":)" + std::to_string(victim) + "}")["ok"].as_bool());
    ask(R"({"op":"kill","tenant":"evil","signal":9})");
    EXPECT_FALSE(ask(R"({"op":"started","id":")" + id_ + R"(","pid":)" + std::to_string(victim) + "}")["ok"].as_bool())
        << "nor for who is to get the signal that came before it";
    EXPECT_TRUE(system::process_stat(victim) && !system::process_stat(victim)->dead());
  }
  TestDaemon daemon_;
  std::unique_ptr<system::LineConnection> connection_;
  std::string id_;
  std::optional<std::uint64_t> start_;  // of the child
};

TEST_F(BorrowedConnection, makes_no_process_of_root_the_first_of_a_strangers_slice) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ASSERT_TRUE(daemon_.start());
  const pid_t now_root = connect(false);
  expect_that_nobody_is_taken_for_the_caller(now_root);
  ::kill(now_root, SIGKILL);
  ::waitpid(now_root, nullptr, 0);
}

TEST_F(BorrowedConnection, makes_nobody_who_got_the_callers_number_the_first_of_its_slice) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ASSERT_TRUE(daemon_.start());
  const pid_t gone = connect(true);
  // Of the same user, so that nothing but the number's story speaks against it.
  clone_args how{};
  how.exit_signal = SIGCHLD;
  how.set_tid = reinterpret_cast<std::uintptr_t>(&gone);
  how.set_tid_size = 1;
  do {  // numbers go round in minutes, and starts are counted in hundredths of a second
    const long heir = ::syscall(SYS_clone3, &how, sizeof how);
    if (heir == 0) {
      if (::setuid(kNobody) != 0) ::_exit(1);
      for (;;) ::pause();
    }
    if (heir < 0) GTEST_SKIP() << "a process cannot be given a number here";
    ASSERT_EQ(heir, gone);
    if (system::start_ticks(gone) != start_) break;
    ::kill(gone, SIGKILL);
  } while (::waitpid(gone, nullptr, 0) == gone);
  ASSERT_TRUE(eventually([&] { return system::process_user(gone) == kNobody; }));
  expect_that_nobody_is_taken_for_the_caller(gone);
  ::kill(gone, SIGKILL);
  ::waitpid(gone, nullptr, 0);
}

TEST_F(BorrowedConnection, asks_for_no_slice_when_its_process_has_gone) {  // and another one, of a slice, uses it
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ASSERT_TRUE(daemon_.start());
  connect(true);
  EXPECT_EQ(ask(R"({"op":"run","vram":"1Gi","name":"second"})")["error"]["code"].as_string(), "permission");
}

// What it was is not to be told any more: a process of a slice, with a child that would have another one.
TEST(Hypervisor, gives_no_slice_to_one_that_has_gone_whosever_it_was) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  system::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const pid_t gone = ::fork();
  if (gone == 0) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (daemon.state() + "/hypervisor.sock").copy(address.sun_path, sizeof address.sun_path - 1);
    ::_exit(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(gone, &status, 0), gone);
  ASSERT_EQ(status, 0);
  system::LineConnection connection(std::move(fd));
  ASSERT_TRUE(connection.send(R"({"op":"run","vram":"1Gi","name":"a"})", 1000));
  const auto reply = base::Json::parse(connection.receive(5000).value()).value();
  EXPECT_EQ(reply["error"]["code"].as_string(), "permission") << reply.dump();
}

// The view of a slice hides the socket; root may uncover it, and a slice without a view sees it.
TEST(Hypervisor, changes_no_limit_for_a_process_of_a_slice) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  const pid_t program = ::fork();
  if (program == 0) {
    char begin = 0;
    if (::read(go[0], &begin, 1) != 1) ::_exit(99);
    const pid_t below = ::fork();
    if (below == 0) {
      const auto changed = daemon.client().limit({"a", base::Bytes{8 * kTestGi}, {}, {}});
      ::_exit(changed ? 0 : static_cast<int>(changed.error().code));
    }
    int status = 0;
    ::waitpid(below, &status, 0);
    ::_exit(WEXITSTATUS(status));
  }
  ASSERT_TRUE(slice.start(program));
  ASSERT_EQ(::write(go[1], "x", 1), 1);
  int status = 0;
  ::waitpid(program, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(base::ErrorCode::kPermission));
  for (const int fd : go) ::close(fd);
}

// What `talk` answers in a process below the first of the slice "a", which has no view.
int within_a_slice(const TestDaemon& daemon, uid_t user, const std::function<int()>& talk) {
  const std::filesystem::path state = daemon.state();
  std::filesystem::permissions(state.parent_path(), std::filesystem::perms::others_exec,
                               std::filesystem::perm_options::add);
  const pid_t program = ::fork();
  if (program == 0) {
    if (user != 0 && (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0)) ::_exit(99);
    auto client = Client::connect(state.string());
    const auto slice = client ? client->run(request("a")) : base::Result<RunReply>(std::unexpected(client.error()));
    if (!slice || !client->started(slice->id, ::getpid())) ::_exit(98);
    const pid_t below = ::fork();
    if (below == 0) ::_exit(talk());
    int status = 0;
    ::waitpid(below, &status, 0);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 97);
  }
  int status = 0;
  ::waitpid(program, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST(Hypervisor, gives_no_process_of_a_slice_another) {  // 40 GiB beside the one it was given
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const auto ask = [&] {
    const auto second = Client::connect(daemon.state())->run(request("b"));
    if (second) return 1;
    const bool clear =
        second.error().message.find("already runs in the slice `a`; start the program directly") != std::string::npos;
    return clear ? static_cast<int>(second.error().code) : 3;
  };
  EXPECT_EQ(within_a_slice(daemon, 0, ask), static_cast<int>(base::ErrorCode::kUsage));
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a").is_null(); }));
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  EXPECT_EQ(within_a_slice(daemon, kNobody, ask), static_cast<int>(base::ErrorCode::kUsage));
}

// A program of a slice that runs with another user's rights, as one that sets its user does.
TEST(Hypervisor, signals_for_a_stranger_nobody_whom_the_kernel_keeps_from_him) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  int names[2];
  ASSERT_EQ(::pipe(names), 0);
  const std::filesystem::path state = daemon.state();
  std::filesystem::permissions(state.parent_path(), std::filesystem::perms::others_exec,
                               std::filesystem::perm_options::add);
  const pid_t first = ::fork();
  if (first == 0) {
    const pid_t below = ::fork();  // takes the signal as it comes
    if (below == 0)
      for (;;) ::pause();
    ::signal(SIGUSR1, SIG_IGN);
    if (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(99);
    auto client = Client::connect(state.string());
    const auto slice = client ? client->run(request("a")) : base::Result<RunReply>(std::unexpected(client.error()));
    if (!slice || !client->started(slice->id, ::getpid())) ::_exit(98);
    const auto killed = client->kill("a", SIGUSR1);
    const pid_t told[] = {below, killed ? static_cast<pid_t>((*killed)["processes"].as_int()) : -1,
                          killed ? static_cast<pid_t>((*killed)["notices"].items().size()) : -1};
    if (::write(names[1], told, sizeof told) != sizeof told) ::_exit(97);
    for (;;) ::pause();
  }
  ::close(names[1]);
  pid_t told[3] = {};
  ASSERT_EQ(::read(names[0], told, sizeof told), static_cast<ssize_t>(sizeof told));
  EXPECT_EQ(told[1], 1) << "itself only";
  EXPECT_EQ(told[2], 1) << "and is told of the other";
  EXPECT_TRUE(system::process_stat(told[0]));
  const auto by_root = daemon.client().kill("a", SIGUSR1);
  ASSERT_TRUE(by_root);
  EXPECT_EQ((*by_root)["processes"].as_int(), 2);
  EXPECT_TRUE(eventually([&] {
    const auto stat = system::process_stat(told[0]);
    return !stat || stat->dead();
  }));
  ::kill(first, SIGKILL);
  ::waitpid(first, nullptr, 0);
  ::close(names[0]);
}

TEST(Hypervisor, shows_the_pages_of_a_slice_to_its_user_only) {  // any other could cut and falsify the account
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const auto ask_for_one = [](const std::string& socket) {
    auto client = Client::connect(std::filesystem::path(socket).parent_path());
    const auto reply = client->run(request("b"));
    if (!reply) return 1;
    return system::MappedPage::attach(reply->slice_directory + "/claim", sizeof(ClaimPage), true) ? 0 : 2;
  };
  EXPECT_EQ(as_a_stranger(daemon, kNobody, ask_for_one), 0) << "its own";
  const Slice slice(daemon, request("a"));
  const std::string claim = slice.reply.slice_directory + "/claim";
  EXPECT_NE(
      as_a_stranger(daemon, kNobody, [&](const std::string&) { return ::truncate(claim.c_str(), 0) == 0 ? 0 : 1; }), 0);
}

TEST(Hypervisor, gives_a_stranger_one_slice_for_each_process) {  // 4,000 from one connection: 25 s to clear away
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  EXPECT_EQ(as_a_stranger(daemon, kNobody,
                          [&](const std::string& socket) {
                            const auto ask = [](system::LineConnection& connection, const std::string& line) {
                              static_cast<void>(connection.send(line, 1000));
                              return base::Json::parse(connection.receive(5000).value()).value();
                            };
                            const std::string run = R"({"op":"run","vram":"1Gi"})";
                            const auto start = [&](system::LineConnection& connection, const base::Json& slice) {
                              return ask(connection, R"({"op":"started","id":")" + slice["id"].as_string() +
                                                         R"(","pid":)" + std::to_string(::getpid()) + "}")["ok"]
                                  .as_bool();
                            };
                            system::LineConnection first(*system::connect_unix(socket));
                            system::LineConnection second(*system::connect_unix(socket));
                            const auto slice = ask(first, run), other = ask(second, run);
                            if (!slice["ok"].as_bool() || !other["ok"].as_bool()) return 1;
                            if (ask(first, run)["ok"].as_bool()) return 2;
                            if (!start(first, slice)) return 3;
                            if (start(second, other)) return 4;
                            system::LineConnection third(*system::connect_unix(socket));
                            return ask(third, run)["ok"].as_bool() ? 5 : 0;
                          }),
            0);
}

// Whoever makes /tmp/tensor-fusion-1000 first could tell user 1000's programs what to load.
TEST(Client, does_not_believe_a_hypervisor_of_another_user) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const auto code_of_connecting = [](const std::string& socket) {
    const auto client = Client::connect(std::filesystem::path(socket).parent_path());
    return client ? 0 : static_cast<int>(client.error().code);
  };
  EXPECT_EQ(as_a_stranger(daemon, kNobody, code_of_connecting), 0) << "root's is everybody's";
  const std::string fake = daemon.scratch("fake");
  ASSERT_TRUE(system::make_directories(fake, 0755));
  std::filesystem::permissions(fake, std::filesystem::perms::all);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t impostor = ::fork();
  if (impostor == 0) {
    const bool changed = ::setgid(kNobody - 1) == 0 && ::setuid(kNobody - 1) == 0;
    const auto listener = system::listen_unix(fake + "/hypervisor.sock", 0666);
    if (!changed || !listener || ::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char go = 0;
  ASSERT_EQ(::read(ready[0], &go, 1), 1);
  EXPECT_EQ(as_a_stranger(daemon, kNobody, [&](const std::string&) { return code_of_connecting(fake + "/x"); }),
            static_cast<int>(base::ErrorCode::kPermission));
  ::kill(impostor, SIGKILL);
  ::waitpid(impostor, nullptr, 0);
  for (const int fd : ready) ::close(fd);
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
