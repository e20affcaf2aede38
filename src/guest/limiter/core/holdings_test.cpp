#include "guest/limiter/core/holdings.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

namespace tensor_fusion::guest::limiter {
namespace {

Holding pointer(std::uint64_t key, std::uint64_t bytes) {
  Holding holding;
  holding.kind = Kind::pointer;
  holding.key = key;
  holding.bytes = bytes;
  return holding;
}

TEST(Holdings, behave_as_a_map_under_random_use) {
  auto holdings = std::make_unique<Holdings>();
  std::unordered_map<std::uint64_t, std::uint64_t> model;
  std::mt19937_64 random(3);
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t key = (random() % 3000) * 512 + 0x7f0000000000;
    Holding found;
    switch (random() % 3) {
      case 0:
        ASSERT_TRUE(holdings->insert(pointer(key, static_cast<std::uint64_t>(i))));
        model[key] = static_cast<std::uint64_t>(i);
        break;
      case 1:
        ASSERT_EQ(holdings->take(Kind::pointer, key, found), model.erase(key) == 1);
        break;
      default:
        ASSERT_EQ(holdings->find(Kind::pointer, key, found), model.contains(key));
        if (model.contains(key)) {
          ASSERT_EQ(found.bytes, model[key]);
        }
    }
  }
  std::uint64_t visited = 0;
  holdings->remove_if([&](const Holding&) { return ++visited != 0; });
  EXPECT_EQ(visited, model.size());
  Holding found;
  for (const auto& [key, bytes] : model) EXPECT_FALSE(holdings->find(Kind::pointer, key, found));
}

TEST(Holdings, keep_kinds_apart) {
  auto holdings = std::make_unique<Holdings>();
  Holding array = pointer(64, 1);
  array.kind = Kind::array;
  holdings->insert(pointer(64, 2));
  holdings->insert(array);
  Holding found;
  ASSERT_TRUE(holdings->take(Kind::array, 64, found));
  EXPECT_EQ(found.bytes, 1u);
  ASSERT_TRUE(holdings->find(Kind::pointer, 64, found));
  EXPECT_EQ(found.bytes, 2u);
}

TEST(Holdings, serve_many_threads) {
  auto holdings = std::make_unique<Holdings>();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 20'000; ++i) {
        const std::uint64_t key = (t << 40) + i * 512;
        Holding found;
        if (!holdings->insert(pointer(key, i))) ++wrong;
        if (i >= 10 && (!holdings->take(Kind::pointer, key - 10 * 512, found) || found.bytes != i - 10)) ++wrong;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
