#include "guest/limiter/core/captures.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter::gate {
namespace {

CUstream stream(std::uintptr_t number) { return reinterpret_cast<CUstream>(0x5000 + number * 16); }

TEST(Captures, are_counted_before_they_begin_and_till_they_end) {
  Captures captures;
  EXPECT_FALSE(captures.any());
  captures.count();
  EXPECT_TRUE(captures.any());
  captures.drop();
  EXPECT_FALSE(captures.any());
  captures.count();
  captures.began(stream(1), false, 0xc0);
  EXPECT_TRUE(captures.began_on(stream(1), false));
  captures.ended(stream(1), false);
  EXPECT_FALSE(captures.any());
}

TEST(Captures, begin_once_the_calls_under_way_are_done_and_let_none_in) {
  Captures captures;
  ASSERT_TRUE(captures.enter());
  std::atomic<bool> begun{false};
  std::thread beginning([&] {
    captures.count();
    captures.await_calls();
    begun = true;
  });
  while (!captures.any()) std::this_thread::yield();
  EXPECT_FALSE(captures.enter());
  EXPECT_FALSE(begun);
  captures.leave();
  beginning.join();
  EXPECT_TRUE(begun);
  captures.drop();
  EXPECT_TRUE(captures.enter());
}

// Of a thread that has ended within its call, or that waits in it for the one that would wait here.
TEST(Captures, wait_for_no_call_without_end_and_for_the_same_only_once) {
  Captures captures;
  ASSERT_TRUE(captures.enter());
  captures.count();
  EXPECT_FALSE(captures.await_calls(1'000'000));
  EXPECT_TRUE(captures.await_calls(~0ull >> 2));
  captures.drop();
  ASSERT_TRUE(captures.enter());
  captures.count();
  EXPECT_FALSE(captures.await_calls(1'000'000)) << "another one is waited for";
  captures.drop();
  captures.leave();
  captures.leave();
  ASSERT_TRUE(captures.enter());
  captures.count();
  EXPECT_FALSE(captures.await_calls(1'000'000)) << "those that were stuck have come back";
  captures.leave();
  EXPECT_TRUE(captures.await_calls(~0ull >> 2));
}

TEST(Captures, end_on_the_stream_on_which_they_began_and_only_once) {
  Captures captures;
  for (std::uintptr_t i = 1; i <= 2; ++i) {
    captures.count();
    captures.began(stream(i), false, 0xc0);
  }
  captures.ended(stream(3), false);  // one that joined by an event
  captures.ended(stream(1), false);
  captures.ended(stream(1), false);
  EXPECT_TRUE(captures.any());
  EXPECT_FALSE(captures.began_on(stream(1), false));
  captures.ended(stream(2), false);
  EXPECT_FALSE(captures.any());
}

TEST(Captures, of_streams_that_threads_have_of_their_own_are_told_apart) {
  Captures captures;
  captures.count();
  captures.began(nullptr, true, 0xc0);
  std::thread([&] {
    captures.count();
    captures.began(reinterpret_cast<CUstream>(2), false, 0xc0);
    captures.ended(nullptr, true);
  }).join();
  EXPECT_TRUE(captures.any());
  captures.ended(reinterpret_cast<CUstream>(2), false);
  EXPECT_FALSE(captures.any());
}

TEST(Captures, go_with_their_stream_their_context_and_their_thread) {
  Captures captures;
  captures.count();
  captures.began(stream(1), false, 0xc0);
  captures.stream_gone(stream(2));
  EXPECT_TRUE(captures.any());
  captures.stream_gone(stream(1));
  EXPECT_FALSE(captures.any());
  captures.count();
  captures.began(stream(1), false, 0xc0);
  captures.context_gone(0xd0);
  EXPECT_TRUE(captures.any());
  captures.context_gone(0xc0);
  EXPECT_FALSE(captures.any());
  captures.count();
  captures.began(nullptr, true, 0xc0);
  captures.thread_gone(os::thread_id() + 1);
  EXPECT_TRUE(captures.any());
  captures.thread_gone(os::thread_id());
  EXPECT_FALSE(captures.any());
}

TEST(Captures, beyond_their_places_are_counted_all_the_same) {
  constexpr std::uintptr_t kMany = 200;
  Captures captures;
  for (std::uintptr_t i = 1; i <= kMany; ++i) {
    captures.count();
    captures.began(stream(i), false, 0xc0);
  }
  for (std::uintptr_t i = kMany; i >= 1; --i) {
    EXPECT_TRUE(captures.any()) << i;
    EXPECT_TRUE(captures.began_on(stream(i), false)) << i;
    captures.ended(stream(i), false);
  }
  EXPECT_FALSE(captures.any());
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter::gate
