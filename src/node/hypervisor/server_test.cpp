// The socket's end of the protocol by itself, in a loop that the test turns.
#include "node/hypervisor/server.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {
namespace {

TEST(Server, takes_only_some_of_those_who_wait_before_it_looks_at_anything_else) {
  const system::ScratchDirectory scratch;
  const std::string path = scratch.path("socket");
  auto listener = system::listen_unix(path, 0600);
  ASSERT_TRUE(listener);
  auto loop = system::Loop::make();
  ASSERT_TRUE(loop);
  Server server(**loop, std::move(*listener), {});
  constexpr std::size_t kWaiting = 3 * Server::kMostAtOnce;
  std::vector<system::Fd> clients;
  while (clients.size() < kWaiting) {
    auto client = system::connect_unix(path);
    ASSERT_TRUE(client);
    clients.push_back(std::move(*client));
  }
  for (std::size_t turn = 1; turn <= 3; ++turn) {
    (*loop)->run_once(0);
    EXPECT_EQ(server.connections(), turn * Server::kMostAtOnce);
  }
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
