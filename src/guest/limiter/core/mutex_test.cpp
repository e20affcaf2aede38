#include "guest/limiter/core/mutex.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace tensor_fusion::guest::limiter {
namespace {

TEST(ForkMutex, lets_one_thread_in_at_a_time) {
  ForkMutex mutex;
  std::uint64_t counted = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5'000; ++i) {
        Guard guard(mutex);
        ++counted;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counted, 20'000u);
}

TEST(ForkMutex, held_in_the_parent_stops_no_child) {
  ForkMutex mutex;
  mutex.lock();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    mutex.lock();
    mutex.unlock();
    mutex.lock();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  mutex.unlock();
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
