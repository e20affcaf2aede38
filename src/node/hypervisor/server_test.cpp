// The socket's end of the protocol by itself, in a loop that the test turns.
#include "node/hypervisor/server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {
namespace {

struct ServerTest : ::testing::Test {
  void SetUp() override {
    listener = std::move(*system::listen_unix(path, 0600));
    loop = std::move(*system::Loop::make());
  }
  const system::ScratchDirectory scratch;
  const std::string path = scratch.path("socket");
  system::Fd listener;
  std::unique_ptr<system::Loop> loop;
};

TEST_F(ServerTest, takes_only_some_of_those_who_wait_before_it_looks_at_anything_else) {
  Server server(*loop, std::move(listener), {});
  constexpr std::size_t kWaiting = 3 * Server::kMostAtOnce;
  std::vector<system::Fd> clients;
  while (clients.size() < kWaiting) {
    auto client = system::connect_unix(path);
    ASSERT_TRUE(client);
    clients.push_back(std::move(*client));
  }
  for (std::size_t turn = 1; turn <= 3; ++turn) {
    loop->run_once(0);
    EXPECT_EQ(server.connections(), turn * Server::kMostAtOnce);
  }
}

TEST_F(ServerTest, knows_who_has_not_read_what_it_was_sent) {
  Server server(*loop, std::move(listener), {});
  const auto client = system::connect_unix(path);
  ASSERT_TRUE(client);
  const ConnectionId id = server.next();
  loop->run_once(0);
  ASSERT_EQ(server.connections(), 1u);
  const auto reply = base::Json::object({{"text", std::string(10'000, 'x')}});
  int sent = 0;
  for (; sent < 1000 && !server.is_behind(id); ++sent) server.send(id, reply);
  EXPECT_TRUE(server.is_behind(id)) << "the kernel keeps only so much for it";
  EXPECT_GT(sent, 1);
  std::string block(1 << 16, 0);
  for (int turns = 0; turns < 1000 && server.is_behind(id); ++turns) {
    EXPECT_GT(::recv(client->get(), block.data(), block.size(), 0), 0);
    loop->run_once(0);
  }
  EXPECT_FALSE(server.is_behind(id));
}

TEST_F(ServerTest, looks_at_one_request_of_each_who_sends_many_at_once_before_it_looks_at_the_next) {
  std::vector<std::string> seen;
  Server server(*loop, std::move(listener),
                {.request =
                     [&](ConnectionId connection, const system::Peer&, const base::Json& request) {
                       seen.push_back(request["op"].as_string());
                       server.send(connection, base::Json::object({{"ok", true}}));
                     },
                 .closed = {}});
  const auto eager = system::connect_unix(path), other = system::connect_unix(path);
  ASSERT_TRUE(eager && other);
  loop->run_once(0);
  ASSERT_EQ(server.connections(), 2u);
  constexpr std::size_t kRequests = 40;
  std::string many;
  for (std::size_t i = 0; i < kRequests; ++i) many += "{\"op\":\"" + std::to_string(i) + "\"}\n";
  const std::string one = "{\"op\":\"other\"}\n";
  ASSERT_EQ(::send(eager->get(), many.data(), many.size(), 0), static_cast<ssize_t>(many.size()));
  ASSERT_EQ(::send(other->get(), one.data(), one.size(), 0), static_cast<ssize_t>(one.size()));
  ASSERT_EQ(::shutdown(eager->get(), SHUT_WR), 0) << "whose end waits for what came before it";
  for (std::size_t turns = 0; turns < 10 * kRequests && server.connections() == 2; ++turns) {
    const std::size_t before = seen.size();
    loop->run_once(0);
    EXPECT_LE(seen.size(), before + 3);
  }
  ASSERT_EQ(seen.size(), kRequests + 1) << "all are answered";
  EXPECT_LE(std::ranges::find(seen, "other") - seen.begin(), 2);
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
