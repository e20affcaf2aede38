// Clients that flood the socket, do not read, or take all there is of it.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <filesystem>
#include <sstream>
#include <thread>

#include "node/hypervisor/server.h"
#include "node/hypervisor/test_slice.h"
#include "node/hypervisor/test_stranger.h"

namespace tensor_fusion::node::hypervisor {
namespace {

TEST(Hypervisor, answers_nonsense_with_a_sentence_and_goes_on) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  for (const char* line :
       {"", "x", "[]", "{}", "{\"op\":5}", "{\"op\":\"lst\"}", "{\"op\":\"run\",\"vram\":5}",
        "{\"op\":\"run\",\"vram\":\"-1\"}", "{\"op\":\"run\",\"compute\":\"nan%\"}", "{\"op\":\"run\",\"gpus\":-3}",
        "{\"op\":\"kill\",\"tenant\":\"a\"}", "{\"op\":\"limit\"}", "{\"op\":\"started\",\"id\":\"a\",\"pid\":-1}"}) {
    system::LineConnection connection(*system::connect_unix(daemon.state() + "/hypervisor.sock"));
    ASSERT_TRUE(connection.send(line, 1000));
    const auto reply = base::Json::parse(connection.receive(5000).value()).value();
    EXPECT_FALSE(reply["ok"].as_bool()) << line;
    EXPECT_FALSE(reply["error"]["message"].as_string().empty()) << line;
  }
  system::LineConnection endless(*system::connect_unix(daemon.state() + "/hypervisor.sock"));
  static_cast<void>(endless.send(std::string(3u << 20, 'x'), 2000));
  const auto refused = endless.receive(2000);
  EXPECT_TRUE(refused && refused->find("64 KiB") != std::string::npos) << refused.value_or("nothing");
  EXPECT_FALSE(endless.receive(2000)) << "a line without end closes its connection";
  EXPECT_TRUE(daemon.client().version());
}

TEST(Client, takes_for_the_reason_of_an_end_no_event_of_the_log) {
  const std::string begun = "tensor-fusion: starts a hypervisor\n";
  const std::string event = "2026-01-02T03:04:05Z tensor-fusion hypervisor: recovered tenant=night: its limits go on\n";
  EXPECT_EQ(last_complaint(begun + event), "");
  EXPECT_EQ(last_complaint(begun + "tensor-fusion: the disk is full\n" + event), "the disk is full");
  EXPECT_EQ(last_complaint("tensor-fusion: of the one before\n" + begun + event), "");
  EXPECT_EQ(last_complaint(begun + event + "error while loading shared libraries: libx.so\n"),
            "error while loading shared libraries: libx.so");
}

TEST(Hypervisor, keeps_no_requests_of_a_client_that_does_not_read_the_answers) {  // 1.3 GiB after five million
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const system::Fd flood = *system::connect_unix(daemon.state() + "/hypervisor.sock");
  std::string requests;
  for (int i = 0; i < 1000; ++i) requests += "{\"op\":\"devices\"}\n";
  std::size_t sent = 0;
  constexpr int kQuietMs = 200;
  pollfd room{flood.get(), POLLOUT, 0};
  while (sent < (64u << 20) && ::poll(&room, 1, kQuietMs) == 1) {
    const ssize_t got = ::send(flood.get(), requests.data(), requests.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (got < 0 && errno == EPIPE) break;
    sent += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  EXPECT_LT(sent, 8u << 20) << "the flood is taken in without end";
  const std::uint64_t begin = system::monotonic_ns();
  EXPECT_TRUE(daemon.client().devices());
  EXPECT_LT(system::monotonic_ns() - begin, 5'000'000'000u);
}

TEST(Hypervisor, answers_every_one_of_many_requests_sent_at_once) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  constexpr int kRequests = 500;
  system::LineConnection connection(*system::connect_unix(daemon.state() + "/hypervisor.sock"));
  std::string lines = "{\"op\":\"version\"}";
  for (int i = 1; i < kRequests; ++i) lines += i % 2 ? "\n{\"op\":\"list\"}" : "\n{\"op\":\"version\"}";
  ASSERT_TRUE(connection.send(lines, 1000));
  for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(connection.receive(5000)) << i;
}

// The second would end the account of the first, whose timer would run as long as the daemon.
TEST(Hypervisor, lets_a_connection_follow_one_thing_only) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const std::string top = R"({"op":"top","interval_ms":60000})", events = R"({"op":"events","follow":true})";
  const std::vector<std::pair<std::string, std::string>> pairs = {{top, events}, {events, top}, {events, events}};
  for (const auto& [first, second] : pairs) {
    system::LineConnection connection(*system::connect_unix(daemon.state() + "/hypervisor.sock"));
    ASSERT_TRUE(connection.send(first + "\n" + second, 1000));
    std::string line;
    for (int i = 0; i < 10 && line.find("streams already") == std::string::npos; ++i)
      line = connection.receive(5000).value_or("nothing");
    EXPECT_NE(line.find("streams already"), std::string::npos) << first << second << line;
    ASSERT_TRUE(connection.send(R"({"op":"events"})", 1000));
    const auto is_answer = [&] {
      return connection.receive(5000).value_or("").find("\"events\"") != std::string::npos;
    };
    EXPECT_TRUE(is_answer() || is_answer() || is_answer()) << "only to look is no stream";  // between what streams
  }
}

TEST(Hypervisor, leaves_connections_for_others_when_one_user_takes_all_it_can) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  int full[2], end[2];
  ASSERT_TRUE(::pipe(full) == 0 && ::pipe(end) == 0);
  std::thread flood([&] {
    as_a_stranger(daemon, kNobody, [&](const std::string& socket) {
      std::vector<system::Fd> held;
      for (std::size_t i = 0; i < Server::kMaxConnections + 50; ++i)
        if (auto one = system::connect_unix(socket)) held.push_back(*std::move(one));
      char go = 'x';
      return ::write(full[1], &go, 1) == 1 && ::read(end[0], &go, 1) == 1 ? 0 : 1;
    });
  });
  char go = 'x';
  EXPECT_EQ(::read(full[0], &go, 1), 1);
  const auto is_answered = [](const std::string& socket) {
    system::LineConnection connection(*system::connect_unix(socket));
    const bool sent = connection.send(R"({"op":"version"})", 1000).has_value();
    const auto line = connection.receive(sent ? 5000 : 0);
    const auto reply = base::Json::parse(line.value_or("")).value_or(base::Json());
    if (reply["ok"].as_bool()) return 0;
    return reply["error"]["message"].as_string().find("no more connections of yours") != std::string::npos ? 1 : 2;
  };
  EXPECT_EQ(is_answered(daemon.state() + "/hypervisor.sock"), 0) << "root";
  EXPECT_EQ(as_a_stranger(daemon, kNobody - 1, is_answered), 0) << "another user";
  EXPECT_EQ(as_a_stranger(daemon, kNobody, is_answered), 1) << "the one who has taken all";
  EXPECT_EQ(::write(end[1], &go, 1), 1);
  flood.join();
  for (const int fd : {full[0], full[1], end[0], end[1]}) ::close(fd);
}

// Each slice has files in the state directory, which all share.
TEST(Hypervisor, gives_one_user_so_many_slices_and_no_more) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestDaemon daemon;
  daemon.options.slices_per_user = 2;
  ASSERT_TRUE(daemon.start());
  const auto ask_for_three = [](const std::string& socket) {
    std::vector<Client> held;
    for (int i = 0; i < 3; ++i) {
      held.push_back(*Client::connect(std::filesystem::path(socket).parent_path()));
      RunRequest one;
      one.vram = base::Bytes{kTestGi};
      const auto reply = held.back().run(one);
      if (reply.has_value() != (i < 2)) return 1 + i;
      if (!reply && (reply.error().code != base::ErrorCode::kNoCapacity ||
                     reply.error().message.find("--slices-per-user") == std::string::npos))
        return 9;
    }
    RunRequest too_large;
    too_large.vram = base::Bytes{1'000'000 * kTestGi};
    too_large.wait_ms = 5'000;
    const auto reply = held.back().run(too_large);
    return !reply && reply.error().code == base::ErrorCode::kImpossible ? 0 : 10;
  };
  EXPECT_EQ(as_a_stranger(daemon, kNobody, ask_for_three), 0);
  EXPECT_EQ(as_a_stranger(daemon, kNobody - 1, ask_for_three), 0) << "another user";
  std::vector<Slice> of_root;
  for (const char* name : {"a", "b", "c"}) of_root.emplace_back(daemon, request(name));
}

// 1 MB of a name cost the one thread 0.4 s each time it looked for the name that was meant.
TEST(Hypervisor, refuses_fields_that_are_too_long_in_no_time) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  const std::string name(60u << 10, 'x');
  for (const std::string& line : std::vector<std::string>{
           R"({"op":"kill","tenant":")" + name + "\"}", R"({"op":"run","name":")" + name + "\"}",
           "{\"op\":\"" + name + "\"}", R"({"op":"run","gpu":")" + name + "\"}",
           R"({"op":"run","vram":")" + name + "\"}", R"({"op":"started","id":"a","pid":4294967297})",
           R"({"op":"kill","tenant":"a","signal":4294967305})", R"({"op":"run","vram":"1Gi","gpus":1e300})",
           R"({"op":"run","vram":"1Gi","gpus":1.5})", R"({"op":"run","vram":"1Gi","wait_ms":-1})",
           R"({"op":"top","interval_ms":-5})"}) {
    system::LineConnection connection(*system::connect_unix(daemon.state() + "/hypervisor.sock"));
    ASSERT_TRUE(connection.send(line, 1000));
    const auto reply = base::Json::parse(connection.receive(5000).value()).value();
    EXPECT_EQ(reply["error"]["code"].as_string(), "usage") << line.substr(0, 60);
    EXPECT_LT(reply["error"]["message"].as_string().size(), 200u) << line.substr(0, 60);
  }
  system::LineConnection connection(*system::connect_unix(daemon.state() + "/hypervisor.sock"));
  ASSERT_TRUE(connection.send(R"({"op":"run","vram":"1Gi","command":")" + name + "\"}", 1000));
  EXPECT_TRUE(base::Json::parse(connection.receive(5000).value()).value()["ok"].as_bool()) << "a command is cut";
}

rlimit descriptors_of(pid_t pid) {
  rlimit limit{};
  EXPECT_EQ(::prlimit(pid, RLIMIT_NOFILE, nullptr, &limit), 0);
  return limit;
}

TEST(Hypervisor, takes_as_many_descriptors_as_it_may_have) {
  const rlimit before = descriptors_of(::getpid());
  TestDaemon daemon;
  const pid_t starts = ::fork();  // what it gives up does not come back
  if (starts == 0) {
    const rlimit more{before.rlim_cur, before.rlim_max + 1}, few{256, 256};
    const bool may_raise = ::setrlimit(RLIMIT_NOFILE, &more) == 0;  // root that kept CAP_SYS_RESOURCE
    const bool started = ::setrlimit(RLIMIT_NOFILE, &few) == 0 && daemon.start();
    const rlim_t got = started ? descriptors_of(daemon.pid()).rlim_cur : 0;
    daemon.kill();
    ::_exit(got == (may_raise ? 65'536 : 256) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(starts, &status, 0), starts);
  EXPECT_EQ(status, 0) << "who may is not bound by what the shell allows";
  rlimit ours = before;
  ours.rlim_cur = 256;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &ours), 0);
  TestDaemon other;
  EXPECT_TRUE(other.start());
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_GE(descriptors_of(other.pid()).rlim_cur, std::min<rlim_t>(before.rlim_max, 65'536));
}

std::uint64_t cpu_ticks_of(pid_t pid) {
  const std::string stat = system::read_file("/proc/" + std::to_string(pid) + "/stat").value_or("");
  std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 2, stat.size())));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  std::uint64_t user = 0, kernel = 0;
  fields >> user >> kernel;
  return user + kernel;
}

// Whoever waits to be taken is still there: without a rest the loop would be told so for ever.
TEST(Hypervisor, rests_while_it_has_no_descriptor_left_and_keeps_some_for_its_own) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  std::vector<std::unique_ptr<system::LineConnection>> held;
  const auto add_one = [&](std::uint64_t wait_ms) {
    held.push_back(
        std::make_unique<system::LineConnection>(*system::connect_unix(daemon.state() + "/hypervisor.sock")));
    return held.back()->send(R"({"op":"version"})", 1000) && held.back()->receive(wait_ms);
  };
  ASSERT_TRUE(add_one(10'000)) << "answered after all that came and went before it";
  // The limit is about numbers: those that are free below the highest are filled.
  const auto numbers = system::list_directory("/proc/" + std::to_string(daemon.pid()) + "/fd");
  rlim_t highest = 0;
  for (const std::string& number : numbers) highest = std::max<rlim_t>(highest, std::stoul(number));
  rlimit few = descriptors_of(daemon.pid());
  few.rlim_cur = highest + 1;
  ASSERT_EQ(::prlimit(daemon.pid(), RLIMIT_NOFILE, &few, nullptr), 0);
  for (rlim_t gaps = few.rlim_cur - numbers.size(); gaps > 0; --gaps) ASSERT_TRUE(add_one(10'000));
  if (::geteuid() == 0) {
    const auto is_told = [](const std::string& socket) {
      system::LineConnection connection(*system::connect_unix(socket));
      const auto line = connection.receive(5000);
      return line && line->find("kept for root") != std::string::npos ? 0 : 1;
    };
    EXPECT_EQ(as_a_stranger(daemon, kNobody, is_told), 0);
  }
  const std::size_t before_spares = held.size();
  while (held.size() < before_spares + 2 * Server::kSpares && add_one(2000)) {
  }
  EXPECT_GE(held.size(), before_spares + Server::kSpares / 2) << "those kept for it";
  EXPECT_LT(held.size(), before_spares + 2 * Server::kSpares) << "none is left now";
  const std::uint64_t before = cpu_ticks_of(daemon.pid());
  EXPECT_FALSE(held.back()->receive(500)) << "it was taken after all";
  EXPECT_LT(cpu_ticks_of(daemon.pid()) - before, 20u) << "of 50";
  held.erase(held.begin(), held.begin() + 3);
  EXPECT_TRUE(held.back()->receive(5000)) << "who has waited is taken as soon as there is room";
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
